"""Who is told what the links of a broker bring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from saps.overlay.frames.base import Frame
from saps.overlay.ring.keys import BrokerRef

Answer = Callable[[BrokerRef | None], None]


class LinkUser(Protocol):
    """What a mesh does with it (`saps.broker.node_driver`)."""

    def receive(self, sender: BrokerRef, frames: list[Frame], /) -> None:
        """Frames from another broker."""

    def session_started(self, sender: BrokerRef, /) -> None:
        """A new session of the link from a broker begins."""

    def express_started(self, sender: BrokerRef, /) -> None:
        """The same of an express lane."""

    def link_down(self, peer: BrokerRef, /) -> None:
        """The link to a broker broke, or could not be made."""

    def met(self, broker: BrokerRef, /) -> None:
        """It was found at the address of another broker, or of its earlier life."""

    def answered_for(self, peer: BrokerRef, frame: Frame, /) -> None:
        """An answer that was not asked of the peer, as it does not speak the version: no sign of life."""

    def whois(self, name: str, answer: Answer, /) -> None:
        """A guest asks for the broker of a name."""


class Nobody:
    """A `LinkUser` that does not care."""

    def receive(self, sender: BrokerRef, frames: list[Frame], /) -> None: ...

    def session_started(self, sender: BrokerRef, /) -> None: ...

    def express_started(self, sender: BrokerRef, /) -> None: ...

    def link_down(self, peer: BrokerRef, /) -> None: ...

    def met(self, broker: BrokerRef, /) -> None: ...

    def answered_for(self, peer: BrokerRef, frame: Frame, /) -> None: ...

    def whois(self, name: str, answer: Answer, /) -> None: ...
