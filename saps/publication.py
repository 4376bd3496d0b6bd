"""A message on its way to the subscribers of this broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from saps.messages import Message, MessageRun


class Share(NamedTuple):
    """Why one member of a shared subscription got a publication."""

    topic_filter: str
    """``$share/group/filter``."""
    settled: Callable[[], None]
    """To be called when the member has the message, or it is lost."""


class Publication:
    """A message on its way to the local subscribers."""

    __slots__ = ("expires", "message", "packets", "retained")

    share: Share | None = None
    """For a member of a shared subscription (`Turn`): what is to be done when it has it, or has gone before."""

    def __init__(self, message: Message, expires: float | None = None, retained: bool = False) -> None:
        self.message = message
        self.expires = expires
        """When it is too late to deliver it, on the hub's clock."""
        self.retained = retained
        """It is sent because of a new subscription, not because it was published just now."""
        self.packets: dict[Any, Any] | None = None
        """A frontend keeps here what several of its subscribers can share: the encoded packets."""


class Turn(Publication):
    """A publication for one member of a shared subscription."""

    __slots__ = ("share",)

    def __init__(self, message: Message, expires: float | None, share: Share) -> None:
        super().__init__(message, expires)
        self.share = share


class Burst:
    """Plain messages with the same quality of service and the same subscribers that come without a pause."""

    __slots__ = ("_publications", "packets", "qos", "runs")

    def __init__(self, runs: list[MessageRun]) -> None:
        """`runs` are not empty."""
        self.runs = runs
        self.qos = runs[0].qos
        self._publications: list[Publication] | None = None
        self.packets: dict[Any, Any] = {}
        """As `Publication.packets`, for the burst as a whole."""

    def __len__(self) -> int:
        return sum([len(run.payloads) for run in self.runs])

    @property
    def publications(self) -> list[Publication]:
        """Each by itself, the same for all who ask: only a subscriber that cannot take the burst as a whole does."""
        if self._publications is None:
            self._publications = [Publication(message) for run in self.runs for message in run.messages]
        return self._publications
