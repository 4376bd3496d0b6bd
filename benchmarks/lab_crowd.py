"""MQTT subscribers on the hosts of a lab, and publications sent one at a time to all of them."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from benchmarks import packets
from benchmarks.client import connected, read_exactly, subscribed
from lab.lab import Lab
from lab.programs import MQTT

TIMEOUT = 180.0
"""Seconds a publication may take to arrive everywhere."""


def spread(hosts: Sequence[str], subscribers: int, rng: random.Random) -> Counter[str]:
    """How many subscribers each host has: everyone picks a host at random."""
    return Counter(rng.choice(hosts) for _ in range(subscribers))


class Crowd:
    """Subscribers to one topic, and a publisher on each host that has asked for one. A context manager."""

    def __init__(self, lab: Lab, topic: str, at: Counter[str]) -> None:
        """`at`: how many subscribers on each host, whose broker must be up."""
        self.topic = topic
        self._lab = lab
        self._at = at
        self._stack = contextlib.ExitStack()
        self._subscribers: list[socket.socket] = []
        self._publishers: dict[str, socket.socket] = {}
        self._serial = 0

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for host, count in sorted(self._at.items()):
                with self._lab.host(host).inside():
                    for _ in range(count):
                        subscriber = stack.enter_context(subscribed(MQTT, self.topic, 0))
                        subscriber.settimeout(TIMEOUT)
                        self._subscribers.append(subscriber)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def payload(self, size: int) -> bytes:
        """The next payload, unlike any other."""
        self._serial += 1
        return self._serial.to_bytes(8, "big").ljust(size, b".")

    def publish(self, host: str, size: int) -> float:
        """Publish `size` bytes with QoS 0 on a host. Returns when all subscribers have them, and nothing else: the
        seconds it took. Raises AssertionError for a message that came twice, or out of order."""
        if host not in self._publishers:
            with self._lab.host(host).inside():
                self._publishers[host] = self._stack.enter_context(connected(MQTT))
        packet = packets.publish(self.topic, self.payload(size), 0, 0)
        began = time.monotonic()
        self._publishers[host].sendall(packet)
        for subscriber in self._subscribers:
            assert read_exactly(subscriber, len(packet)) == packet
        return time.monotonic() - began
