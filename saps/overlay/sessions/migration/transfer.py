"""The state of one migration at its target (`saps.overlay.sessions.migration.target`)."""

from __future__ import annotations

from enum import Enum

from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import SessionLease
from saps.overlay.frames.copies import Heirloom
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.claiming import Claiming
from saps.topics import shared


class Stage(Enum):
    """The stage of a migration, at the target."""

    ASKING = "asking"
    """`TakeOver` has been sent."""
    DESCRIBED = "described"
    """The source gives the session; its settings and filters are being pulled."""
    CLEARING = "clearing"
    """The settings have come; publications and an older session still have to leave this broker."""
    SUBSCRIBING = "subscribing"
    """This broker subscribes, and waits until members have acknowledged all earlier publications."""
    PULLING = "pulling"
    """The contents are being pulled."""
    PULLED = "pulled"
    """The contents have come; publications that take both ways may still be under way."""
    ARRIVED = "arrived"
    """`Arrived` has been sent; only `Departed` is missing."""


class Transfer:
    """The migration of one session to this broker."""

    __slots__ = (
        "branch",
        "claiming",
        "elsewhere",
        "filters",
        "heard",
        "here",
        "heritage",
        "lease",
        "marks",
        "parts",
        "request",
        "serial",
        "sources",
        "stage",
        "stamp",
    )

    def __init__(self, claiming: Claiming, stamp: int, sources: list[SessionLease]) -> None:
        self.claiming = claiming
        self.stamp = stamp
        self.sources = sources
        """The leases of brokers still to be asked, the latest first."""
        self.lease: SessionLease | None = None
        """Of the source."""
        self.serial = 0
        self.stage = Stage.ASKING
        self.request: Frame | None = None
        """The request without an answer so far; it is repeated."""
        self.heard = 0.0
        self.parts: list[bytes] = []
        self.filters: list[str] = []
        self.marks: dict[tuple[BrokerRef, str], int] = {}
        self.elsewhere = False
        """Whether some broker answered that the session is moving to another broker."""
        self.branch = claiming.branch
        """Whether the session is here already, and its branch at another broker is being fetched."""
        self.here = False
        """Whether the session itself has come from its first source, and branches of it follow."""
        self.heritage: tuple[list[Heirloom], bool, float] = [], False, 0.0
        """The former brokers of the session, `Snapshot.cut`, and when that was packed, in seconds of the port's clock:
        halfway between question and answer (RFC 5905, 8)."""

    @property
    def source(self) -> BrokerRef | None:
        """The broker that is asked for the session."""
        return None if self.lease is None else self.lease.broker

    @property
    def kept(self) -> bool:
        """Whether the session has copies, so that another broker adopts it if the source dies."""
        return self.lease is not None and self.lease.kept

    @property
    def plain(self) -> list[str]:
        """The filters without shared subscriptions."""
        return [each for each in self.filters if shared(each) is None]
