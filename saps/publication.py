"""A message on its way to the subscribers of this broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from saps.messages import Message


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
    """Publications with the same quality of service and the same subscribers, without properties, that come without a
    pause."""

    __slots__ = ("packets", "publications")

    def __init__(self, publications: list[Publication]) -> None:
        self.publications = publications
        self.packets: dict[Any, Any] = {}
        """As `Publication.packets`, for the burst as a whole."""
