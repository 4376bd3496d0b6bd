"""A broker's OFM port attached to a software switch: carries frames in UDP instead of an interface of its own."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from functools import lru_cache

from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.datapath.driver.udp import UdpEndpoint, target_of
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.switch.host import Host

ANNOUNCE = 5.0
"""Interval in seconds between announcements, and so the longest time until a restarted switch knows the broker again.
Each announcement costs a frame to each host and a packet-in."""


@lru_cache(4096)
def _target_of(address: str) -> tuple[int, int]:
    """Return the IP address of an OFM address as a number, and its port. Raises `ValueError`."""
    ip, port = target_of(address)
    return int(ipaddress.ip_address(ip)), port


class AttachedEndpoint:
    """An endpoint with the calls of `UdpEndpoint`. `received` gets the datagrams of one turn of the event loop."""

    def __init__(self, switch: str, received: Callable[[list[bytes]], None]) -> None:
        """`switch` is the address where the switch's port takes frames, ``IP:PORT``."""
        self._switch = switch
        self._received = received
        self._loop = asyncio.get_running_loop()
        self._cable = UdpEndpoint(self._frames)
        self._timer: asyncio.TimerHandle | None = None

    def plug_in(self, element: BrokerAddress) -> None:
        """Begin to send and receive as this broker. Raises `OSError` if the socket cannot be bound."""
        self._host = Host(element)
        at = ipaddress.ip_address(OfmAddress.parse(self._switch).ip)
        any_address = "0.0.0.0" if at.version == 4 else "::"
        self._cable.listen(str(at) if at.is_loopback else any_address, 0)
        self._announce()

    def send(self, address: str, raw: bytes, dscp: int = 0) -> None:
        """Send one datagram as `UdpEndpoint.send`."""
        self._cable.send(self._switch, self._host.frame(*_target_of(address), raw, dscp))

    @property
    def unsent(self) -> int:
        """Count of unsent datagrams, as in `UdpEndpoint`."""
        return self._cable.unsent

    def close(self) -> None:
        """Stop sending and receiving. A second call does nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._cable.close()

    def _announce(self) -> None:
        self._cable.send(self._switch, self._host.announcement())
        self._timer = self._loop.call_later(ANNOUNCE, self._announce)

    def _frames(self, frames: list[bytes]) -> None:
        datagrams = []
        for frame in frames:
            datagram, answer = self._host.receive(frame)
            if answer is not None:
                self._cable.send(self._switch, answer)
            if datagram is not None:
                datagrams.append(datagram)
        if datagrams:
            self._received(datagrams)
