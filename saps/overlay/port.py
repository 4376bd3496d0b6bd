"""The interface between the overlay's state machines and the world: send frames, and set timers. One port per
broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import Body, Result
from saps.overlay.ring.keys import BrokerRef, Key, KeyOrder

Handlers = dict[type[Frame], Callable[[BrokerRef, Any], None]]
"""The handler of each type of frame, called with sender and frame."""
Bodies = dict[type[Body], Callable[[Any, list[Key]], Iterable[Result]]]
"""The function that runs each type of range-call body, called with the body and this broker's keys in the range."""


class Port(Protocol):
    """The port given to each machine of a broker; implemented by `saps.overlay.node_port`."""

    me: BrokerRef
    order: KeyOrder
    grace: float
    """Longest time between two brokers' detections of the same crash, in seconds."""

    @property
    def now(self) -> float:
        """The time in seconds of a monotonic clock."""

    def send(self, to: BrokerRef, frame: Frame) -> None:
        """Queue a frame for a broker; it may be this broker itself."""

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Run `action` in `delay` seconds."""

    @property
    def first_heard(self) -> Mapping[str, tuple[int, float]]:
        """The first incarnation heard of each broker, by name, and when, in seconds of `now`."""

    def lost(self, broker: BrokerRef) -> bool:
        """Return whether the broker is declared dead, or the reference names a stale incarnation."""

    def reachable(self, broker: BrokerRef) -> bool:
        """Return False while the broker is declared dead or suspected."""
