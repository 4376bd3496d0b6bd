"""What a storage file holds, as values: what a broker starts from."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from saps.local.batch import Origin
from saps.messages import Message, Subscription
from saps.storage.damage import Damage
from saps.storage.journal import Batch, Row, Table


class SavedMessage(NamedTuple):
    """A message, stored once for all its copies."""

    number: int
    message: Message
    expires: float | None
    """Seconds since the epoch; None: never."""
    origin: Origin | None
    """Which publication it was, if that is known."""


class SavedForm(msgspec.Struct, frozen=True, array_like=True):
    """In which form a client gets a message."""

    qos: int
    retain: bool
    identifiers: tuple[int, ...]


class SavedCopy(NamedTuple):
    """A message that a client is still to get, or to acknowledge."""

    serial: int
    message: int
    packet_id: int
    """0: not sent yet."""
    form: SavedForm


class SavedSession(msgspec.Struct):
    """One client's session; without an expiry only a will."""

    number: int
    client_id: str
    user: str | None
    expiry: int
    ends: float | None
    """Seconds since the epoch when it ends; None: its client was connected."""
    will: Message | None
    will_delay: int
    will_due: float | None
    """Seconds since the epoch; None: the client was connected, or there is no will."""
    birth: int = 0
    """The session's own name, wherever it goes."""
    subscriptions: list[Subscription] = []
    copies: list[SavedCopy] = []
    """In the order in which they were sent, or are to be."""
    releases: list[tuple[int, int]] = []
    """Serials and packet identifiers for which PUBREL is due, in order."""
    incoming: dict[int, int] = {}
    """Packet identifiers of QoS 2 publications that were not released, with the number of subscribers reached."""
    had: dict[Origin, None] = {}
    """What it has had of late, where that is known."""

    @property
    def row(self) -> Row:
        """Its own row."""
        will = self.will, self.will_delay, self.will_due
        return (self.number, self.client_id, self.user, self.expiry, self.ends, *will, self.birth)


class Saved(msgspec.Struct):
    """All that a file holds."""

    sessions: list[SavedSession] = []
    messages: dict[int, SavedMessage] = {}
    retained: dict[str, bytes] = {}
    """By topic: records as the overlay encodes them."""
    held: dict[str, dict[str, bytes]] = {}
    """By owner and name: copies of other brokers' sessions (`saps.overlay.sessions.replicas.shelf`)."""
    highest: int = 0
    """The greatest number in use."""
    damaged: list[Damage] = []
    """Records that are not what was stored. They are not among the others; who holds them elsewhere may store them anew
    (`saps.storage.damage`)."""
    jump: float = 0.0
    """Seconds by which the machine's clock jumped while the file was not in use. Sessions, wills and messages have been
    moved by it (`move`); retained messages go by the mesh's clock."""

    @property
    def repaired(self) -> bool:
        """The file was made of a damaged one, and no broker has begun with it before: it may be older than what other
        brokers have of the sessions in it."""
        return bool(self.sessions) and "" not in self.held

    def move(self, seconds: float) -> None:
        """Sessions, wills and messages end later by so many seconds."""
        self.jump = seconds
        for session in self.sessions:
            session.ends = None if session.ends is None else session.ends + seconds
            session.will_due = None if session.will_due is None else session.will_due + seconds
        for number, saved in self.messages.items():
            if saved.expires is not None:
                self.messages[number] = saved._replace(expires=saved.expires + seconds)

    def timed(self) -> Batch:
        """The rows of what ends at a time."""
        messages = self.messages
        return {
            Table.SESSIONS: {session.number: session.row for session in self.sessions},
            Table.MESSAGES: {number: tuple(saved) for number, saved in messages.items() if saved.expires is not None},
        }

    def rows(self) -> Batch:
        """The rows of everything."""
        rows: Batch = {table: {} for table in Table}
        rows[Table.RETAINED] = {topic: (topic, record) for topic, record in self.retained.items()}
        rows[Table.HELD] = {
            (owner, name): (owner, name, content)
            for owner, contents in self.held.items()
            if owner  # else the lives of a broker with this file, which another one does not continue
            for name, content in contents.items()
        }
        rows[Table.MESSAGES] = {number: tuple(saved) for number, saved in self.messages.items()}
        for session in self.sessions:
            number = session.number
            rows[Table.SESSIONS][number] = session.row
            for subscription in session.subscriptions:
                rows[Table.SUBSCRIPTIONS][number, subscription.filter] = (number, subscription.filter, subscription)
            for copy in session.copies:
                rows[Table.COPIES][copy.serial] = (copy.serial, number, copy.message, copy.packet_id, copy.form)
            for serial, packet_id in session.releases:
                rows[Table.RELEASES][serial] = (serial, number, packet_id)
            for packet_id, reached in session.incoming.items():
                rows[Table.INCOMING][number, packet_id] = (number, packet_id, reached)
        return rows
