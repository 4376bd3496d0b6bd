"""What the overlay's machines may do to the world: send, and be woken. One port a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from saps.overlay.frames.base import Frame
from saps.overlay.ring.keys import BrokerRef, KeyOrder

Handlers = dict[type[Frame], Callable[[BrokerRef, Any], None]]
"""By kind of frame: what takes it, with its sender."""


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

    def calm(self) -> bool:
        """False while a crash is being found out or repaired: what a range call brings may not be complete."""

    def reachable(self, broker: BrokerRef) -> bool:
        """False while the broker is dead or suspected."""
