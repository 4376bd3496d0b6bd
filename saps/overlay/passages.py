"""Which publications the messages of late were, for brokers between which a session moves."""

from __future__ import annotations

from collections.abc import Callable

from saps.mesh import Origin
from saps.messages import Message
from saps.overlay.keys import BrokerRef

Seen = Callable[[Message, BrokerRef, int], None]
"""Told of a publication: its message, its broker, its number there."""


class Record:
    """Which publications the messages of late were; kept only while somebody wants to know."""

    def __init__(self) -> None:
        self.on_wanted: Callable[[Seen | None], None] = lambda seen: None
        """Told who wants to know of each publication, None for nobody."""
        self._wanted = 0
        self._known: dict[int, tuple[Message, BrokerRef, int]] = {}

    def seen(self, message: Message, origin: BrokerRef, seq: int) -> None:
        """A publication has this object as its message."""
        if message.qos:
            self._known[id(message)] = message, origin, seq

    def find(self, message: Message) -> tuple[BrokerRef, int] | None:
        """Its broker and number."""
        known = self._known.get(id(message))
        return None if known is None else known[1:]

    def identify(self, message: Message) -> Origin | None:
        known = self.find(message)
        return None if known is None else Origin(known[0].name, known[0].incarnation, known[1])

    def begin(self) -> None:
        """Somebody wants to know, until `end`."""
        self._wanted += 1
        if self._wanted == 1:
            self.on_wanted(self.seen)

    def end(self) -> None:
        self._wanted -= 1
        if not self._wanted:
            self._known.clear()
            self.on_wanted(None)
