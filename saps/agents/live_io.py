"""A broker's part in OFM on real sockets: builds UDP endpoint, data path and OFM agent from the settings."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from saps.agents.api import AgentRegistry
from saps.agents.ofm import OfmAgent
from saps.agents.stateless import Choice
from saps.agents.switchover import Mode, Modes
from saps.config import Address, SettingError
from saps.config.ofm import OfmSettings
from saps.ofm.datapath.datapath import Datapath
from saps.ofm.datapath.driver.attached import AttachedEndpoint
from saps.ofm.datapath.driver.udp import UdpEndpoint, mac_of
from saps.ofm.keys.epochs import Keyring
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.switch.host import mac_for
from saps.overlay.node import OverlayNode

NO_MAC = "00:00:00:00:00:00"
"""The MAC address of an interface without hardware, such as the loopback."""


def modes_of(settings: OfmSettings) -> Modes:
    """Return the modes of the topics according to the settings."""
    return Modes(Mode(settings.mode), settings.exceptions, settings.domains)


class LiveOfm:
    """OFM at one broker. Call `attach` before the broker joins the mesh, start its agent after, and call `close` at the
    end."""

    def __init__(self, settings: OfmSettings, received: Callable[[list[bytes]], None]) -> None:
        """`received` takes the received datagrams to the node."""
        self._settings = settings
        self._endpoint: UdpEndpoint | AttachedEndpoint = (
            AttachedEndpoint(settings.attach, received) if settings.attach else UdpEndpoint(received)
        )
        self.element: BrokerAddress | None = None

    def _listen(self) -> BrokerAddress:
        """Listen, and return the element of the broker list. Raises `SettingError` if the address is not available."""
        host, port = Address.parse(self._settings.listen)
        if self._settings.delivery != "trees" and ":" not in host:
            raise SettingError("ofm.delivery", f"{self._settings.delivery} needs an IPv6 address in ofm.listen: {host}")
        if isinstance(self._endpoint, AttachedEndpoint):
            return self._plug_in(self._endpoint, host, port)
        try:
            host, port = self._endpoint.listen(host, port)
        except OSError as error:
            raise SettingError("ofm.listen", f"cannot listen on {self._settings.listen}: {error.strerror}") from None
        mac = self._settings.mac or mac_of(host)
        if mac is None or mac == NO_MAC:
            self._endpoint.close()
            if mac == NO_MAC:
                raise SettingError("ofm.listen", f"{host} is on this machine only: switches cannot send there")
            raise SettingError("ofm.mac", f"is needed: no interface has the address {host}")
        return BrokerAddress(host, mac, port)

    def _plug_in(self, endpoint: AttachedEndpoint, host: str, port: int) -> BrokerAddress:
        """Connect as a host to a software switch's port. Raises `SettingError`."""
        try:
            element = BrokerAddress(host, self._settings.mac or mac_for(host), port)
            endpoint.plug_in(element)
        except (ValueError, OSError) as error:
            raise SettingError("ofm.attach", f"{self._settings.listen} cannot be attached there: {error}") from None
        return element

    def attach(self, node: OverlayNode, registry: AgentRegistry) -> OfmAgent:
        """Listen, and give the node its data path and its OFM agent. Raises `SettingError` if the address is not
        available."""
        element = self.element = self._listen()
        keys = Keyring(node.port.me, self._admit)
        self._admit(())
        self.datapath = Datapath(
            node.port,
            node.rendezvous.publishers,
            node.delivery.multicast,
            node.delivery.inbox,
            node.rendezvous.subscriptions.wants,
            self._endpoint.send,
            keys,
            self._settings.datapath(),
        )
        node.delivery.multicast.tree_path = self.datapath
        rng = random.Random(f"{node.port.me.name} {node.port.me.incarnation}")
        choice = Choice(self._settings.delivery, self._settings.stateless)
        modes = modes_of(self._settings)
        self.agent = OfmAgent(node, registry, self.datapath, keys, element, modes, rng, self._counts, choice)
        return self.agent

    def _admit(self, labels: Iterable[bytes]) -> None:
        """Have the kernel drop every datagram that no key of these labels can have sealed. An endpoint attached to a
        switch takes all."""
        if isinstance(self._endpoint, UdpEndpoint):
            self._endpoint.admit(labels)

    def _counts(self) -> dict[str, int]:
        kept_out = self._endpoint.kept_out if isinstance(self._endpoint, UdpEndpoint) else 0
        return {"unsent": self._endpoint.unsent, "kept_out": kept_out}

    def close(self) -> None:
        """Stop sending and receiving."""
        self._endpoint.close()
