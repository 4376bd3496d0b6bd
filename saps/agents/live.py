"""A broker's part in OFM on real sockets: UDP endpoint, data path and OFM agent, put together from the settings."""

from __future__ import annotations

import random
from collections.abc import Callable

from saps.agents.api import AgentRegistry
from saps.agents.ofm import OfmAgent
from saps.agents.switchover import Mode, Modes
from saps.config import Address, SettingError
from saps.config.ofm import OfmSettings
from saps.ofm.datapath import Datapath
from saps.ofm.topology import BrokerAddress
from saps.ofm.udp import UdpEndpoint, mac_of
from saps.overlay.node import OverlayNode


def modes_of(settings: OfmSettings) -> Modes:
    """The mode of each topic, by the settings."""
    return Modes(Mode(settings.mode), settings.exceptions)


class LiveOfm:
    """OFM at one broker. `listen` before it joins the mesh, `start` after, `close` at its end."""

    def __init__(self, settings: OfmSettings, received: Callable[[list[bytes]], None]) -> None:
        """`received` hands datagrams to the node."""
        self._settings = settings
        self._endpoint = UdpEndpoint(received)
        self.element: BrokerAddress | None = None

    def listen(self) -> None:
        """Raises `SettingError` if the address cannot be had."""
        host, port = Address.parse(self._settings.listen)
        try:
            host, port = self._endpoint.listen(host, port)
        except OSError as error:
            raise SettingError("ofm.listen", f"cannot listen on {self._settings.listen}: {error.strerror}") from None
        mac = self._settings.mac or mac_of(host)
        if mac is None:
            self._endpoint.close()
            raise SettingError("ofm.mac", f"is needed: no interface has the IPv4 address {host}")
        self.element = BrokerAddress(host, mac, port)

    def attach(self, node: OverlayNode, registry: AgentRegistry) -> OfmAgent:
        """Give the node its data path and its OFM agent. After `listen`."""
        assert self.element is not None
        self.datapath = Datapath(
            node,
            node.presence,
            node.multicast,
            node.inbox,
            node.subscriptions.wants,
            self._endpoint.send,
            self._settings.datapath(),
        )
        node.multicast.tree_path = self.datapath
        rng = random.Random(f"{node.me.name} {node.me.incarnation}")
        self.agent = OfmAgent(node, registry, self.datapath, self.element, modes_of(self._settings), rng)
        return self.agent

    @property
    def counts(self) -> dict[str, int]:
        """What happened to datagrams and trees, since the start."""
        return self.datapath.counts | {"unsent": self._endpoint.unsent}

    def close(self) -> None:
        """Send and receive no more."""
        self._endpoint.close()
