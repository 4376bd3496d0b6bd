"""Announces hosts to the switches in their name, so that all learn their places anew."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from saps.ofm.flows.tables import NORMAL
from saps.ofm.network.probe import announcement
from saps.ofm.network.topology import Port
from saps.ofm.openflow.driver.switch import Switch

PACE = 1000
"""Most hosts announced in a second, each by a frame that is flooded. A larger value has traffic take a changed spanning
tree sooner."""


class Announcer:
    """The hosts that are to be announced."""

    def __init__(self, switches: Mapping[int, Switch]) -> None:
        """`switches` are those connected at any time."""
        self._switches = switches
        self._waiting: dict[str, Port] = {}
        """Place of each host, by MAC address."""
        self._more = asyncio.Event()

    def announce(self, host: str, at: Port) -> None:
        """Announce a host soon."""
        self._waiting[host] = at
        self._more.set()

    async def run(self) -> None:
        """Announce hosts until the task is cancelled."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                host, at = self._waiting.popitem()
                if (switch := self._switches.get(at.dpid)) is not None:
                    switch.packet_out(NORMAL, announcement(host), at.port)
                await asyncio.sleep(1 / PACE)
