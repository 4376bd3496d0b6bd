"""What the overlay's machines may do to the world: send, and be woken. One port a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import Body, Result
from saps.overlay.ring.keys import BrokerRef, Key, KeyOrder

Handlers = dict[type[Frame], Callable[[BrokerRef, Any], None]]
"""By kind of frame: what takes it, with its sender."""
Bodies = dict[type[Body], Callable[[Any, list[Key]], Iterable[Result]]]
"""By kind of body of a range call: what runs it at own keys."""


class Port(Protocol):
    """Given to each machine of a broker. The node (`saps.overlay.node`) implements it."""

    me: BrokerRef
    order: KeyOrder
    grace: float
    """Seconds by which two brokers' discoveries of the same crash may lie apart."""

    @property
    def now(self) -> float:
        """Seconds, monotonic."""

    def send(self, to: BrokerRef, frame: Frame) -> None:
        """Queue a frame for a broker (this one included)."""

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Run `action` in `delay` seconds."""

    def lost(self, broker: BrokerRef) -> bool:
        """True while the broker is taken for dead, or an older life of it is meant."""

    def reachable(self, broker: BrokerRef) -> bool:
        """False while the broker is dead or suspected."""
