"""A topic's publications by stateless delivery: the addresses they go to, and the plane they take.

The sender finds out by itself that a plane is broken: its own copy, or a member's acknowledgement, stays away for a
round trip and 50 ms. Then it writes the next plane into the address, and sends what was outstanding once more, to those
who have not acknowledged it. Nobody has to be asked; what fails again goes by ALM.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from saps.ofm.stateless.directory import Directory
from saps.overlay.ring.keys import BrokerRef

REMEMBERED = 64
"""Sets of members whose addresses are kept."""
ASK = 0.25
"""Seconds between two questions to the members, while publications of QoS 0 leave, whether they get them. Less finds a
broken plane sooner, and costs a small frame of each member."""


class Sending:
    """Of one topic."""

    def __init__(self, topic: str, directory: Directory) -> None:
        self._topic = topic
        self.directory = directory
        self._tried: set[int] = set()
        """Planes that have been given up since something came back."""
        self.plane = directory.planes[crc32(topic.encode()) % len(directory.planes)]
        self.since = 0.0
        """When that was taken: what left before says nothing about it."""
        self._addresses: dict[tuple[BrokerRef, ...], list[str]] = {}
        self._unheard: set[BrokerRef] = set()
        """Members that have not answered the last question."""
        self.asked_at = 0.0
        self._sent = False
        """Something of QoS 0 has left since the last question."""

    def follow(self, directory: Directory) -> None:
        """Others have bits now, or other planes work."""
        self.directory = directory
        self._addresses.clear()
        if self.plane not in directory.planes:
            self._tried.clear()
            self.plane = directory.planes[crc32(self._topic.encode()) % len(directory.planes)]

    def addresses(self, members: Iterable[BrokerRef]) -> list[str]:
        """Where to send what is for these."""
        key = tuple(members)
        found = self._addresses.get(key)
        if found is None:
            if len(self._addresses) >= REMEMBERED:
                self._addresses.clear()
            found = self._addresses[key] = self.directory.addresses(self.plane, key)
        return found

    def sent(self, qos: int) -> None:
        """Publications have left."""
        self._sent |= qos == 0

    def curious(self, now: float) -> bool:
        """Is it time to ask whether members get what is sent?"""
        return self._sent and not self._unheard and now - self.asked_at >= ASK

    def asked(self, members: Iterable[BrokerRef], now: float) -> None:
        """These have been asked."""
        self._unheard, self.asked_at, self._sent = set(members), now, False

    def heard(self, member: BrokerRef) -> None:
        """A member has answered, or is not there any more."""
        self._unheard.discard(member)

    @property
    def awaits(self) -> bool:
        """Answers are missing."""
        return bool(self._unheard)

    def unheard(self, before: float) -> bool:
        """Has somebody who was asked before that time not answered? They are waited for no more."""
        if not self._unheard or self.asked_at > before + 1e-9:
            return False
        self._unheard.clear()
        return self.asked_at >= self.since

    def works(self) -> None:
        """Something has come back."""
        self._tried.clear()

    def change(self, now: float) -> bool:
        """Take the next plane from now on. False: all have been tried."""
        self._tried.add(self.plane)
        left = [plane for plane in self.directory.planes if plane not in self._tried]
        if not left:
            self._tried.clear()
            return False
        self.plane, self.since = next((plane for plane in left if plane > self.plane), left[0]), now
        self._addresses.clear()
        return True
