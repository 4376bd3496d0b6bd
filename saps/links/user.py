"""The receiver of what a broker's links bring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from saps.overlay.frames.base import Frame
from saps.overlay.ring.keys import BrokerRef

Answer = Callable[[BrokerRef | None], None]


class LinkUser(Protocol):
    """Handles the events of all links; the mesh's implementation is `saps.broker.node_driver`."""

    def receive(self, sender: BrokerRef, frames: list[Frame], /) -> None:
        """Handle frames from another broker."""

    def session_started(self, sender: BrokerRef, /) -> None:
        """Handle the start of a new session of the link from a broker."""

    def express_started(self, sender: BrokerRef, /) -> None:
        """Handle the start of a new session of the express lane from a broker."""

    def link_down(self, peer: BrokerRef, /) -> None:
        """Handle a link to a broker that broke or could not be made."""

    def met(self, broker: BrokerRef, /) -> None:
        """Take note of a broker found at the address of another one, or of its earlier incarnation."""

    def answered_for(self, peer: BrokerRef, frame: Frame, /) -> None:
        """Handle an answer given in the place of a peer that does not speak the version; it is no sign of life."""

    def whois(self, name: str, answer: Answer, /) -> None:
        """Answer a guest that asks for the broker with a name."""


class Nobody:
    """A `LinkUser` that ignores everything."""

    def receive(self, sender: BrokerRef, frames: list[Frame], /) -> None: ...

    def session_started(self, sender: BrokerRef, /) -> None: ...

    def express_started(self, sender: BrokerRef, /) -> None: ...

    def link_down(self, peer: BrokerRef, /) -> None: ...

    def met(self, broker: BrokerRef, /) -> None: ...

    def answered_for(self, peer: BrokerRef, frame: Frame, /) -> None: ...

    def whois(self, name: str, answer: Answer, /) -> None: ...
