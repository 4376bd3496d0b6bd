"""A topic's publications by stateless delivery: chooses their addresses and their plane.

The sender itself detects a broken plane: its own copy, or a member's acknowledgement, stays away for a round trip and
50 ms. Then it writes the next plane into the address. It sends what was outstanding once more, to the members that have
not acknowledged it. No other broker has to be asked. What fails again goes by ALM.
"""

from __future__ import annotations

from collections.abc import Iterable

from saps.ofm.stateless.directory import Directory
from saps.overlay.ring.keys import BrokerRef

REMEMBERED = 64
"""Most sets of members whose addresses are cached."""
ASK = 0.25
"""Interval in seconds between two questions to the members whether they get publications of QoS 0, while such
publications leave. A shorter interval finds a broken plane sooner, and costs each member a small frame."""


class Sending:
    """The sending of one topic."""

    def __init__(self, topic: str, directory: Directory) -> None:
        self._topic = topic
        self.directory = directory
        self._tried: set[int] = set()
        """Planes that have been given up since a datagram last came back."""
        self.plane = self._first = directory.first(topic)
        self.since = 0.0
        """Time at which `plane` was chosen. Datagrams that left before say nothing about it."""
        self._addresses: dict[tuple[BrokerRef, ...], list[str]] = {}
        self._unheard: set[BrokerRef] = set()
        """Members that have not answered the last question."""
        self.asked_at = 0.0
        self._sent = False
        """Whether publications of QoS 0 have left since the last question."""

    def follow(self, directory: Directory, now: float) -> None:
        """Follow a new directory: other brokers have bits now, other planes work, or topics are spread otherwise."""
        self.directory = directory
        self._addresses.clear()
        before, self._first = self._first, directory.first(self._topic)
        if self.plane not in directory.planes or self._first != before:
            self._tried.clear()
            self.plane, self.since = self._first, now

    def addresses(self, members: Iterable[BrokerRef]) -> list[str]:
        """Return the OFM addresses that reach these members by the present plane."""
        key = tuple(members)
        found = self._addresses.get(key)
        if found is None:
            if len(self._addresses) >= REMEMBERED:
                self._addresses.clear()
            found = self._addresses[key] = self.directory.addresses(self.plane, key)
        return found

    def sent(self, qos: int) -> None:
        """Note that publications have left."""
        self._sent |= qos == 0

    def curious(self, now: float) -> bool:
        """Return whether it is time to ask the members if they get what is sent."""
        return self._sent and not self._unheard and now - self.asked_at >= ASK

    def asked(self, members: Iterable[BrokerRef], now: float) -> None:
        """Note that these members have been asked."""
        self._unheard, self.asked_at, self._sent = set(members), now, False

    def heard(self, member: BrokerRef) -> None:
        """Note that a member has answered, or has gone."""
        self._unheard.discard(member)

    @property
    def awaits(self) -> bool:
        """Whether answers are missing."""
        return bool(self._unheard)

    def unheard(self, before: float) -> bool:
        """Return whether a member that was asked of the present plane before `before` has not answered. Late members
        are not waited for any more."""
        if not self._unheard or self.asked_at > before + 1e-9:
            return False
        self._unheard.clear()
        return self.asked_at >= self.since

    def works(self) -> None:
        """Note that a datagram has come back."""
        self._tried.clear()

    def change(self, now: float) -> bool:
        """Choose the next plane. Returns False if all planes have been tried."""
        self._tried.add(self.plane)
        left = [plane for plane in self.directory.planes if plane not in self._tried]
        if not left:
            self._tried.clear()
            return False
        self.plane, self.since = next((plane for plane in left if plane > self.plane), left[0]), now
        self._addresses.clear()
        return True
