"""The content of a storage as values, from which a broker starts."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from saps.messages import Message, Subscription
from saps.routing.batch import Origin
from saps.storage.damage import Damage
from saps.storage.journal import Batch, Row, Table


class SavedMessage(NamedTuple):
    """A message stored once for all its copies."""

    number: int
    message: Message
    expires: float | None
    """Expiry in seconds since the epoch; None for never."""
    origin: Origin | None
    """Identifies the publication, if known."""


class SavedForm(msgspec.Struct, frozen=True, array_like=True):
    """The form in which a client receives a message: QoS, RETAIN flag and subscription identifiers."""

    qos: int
    retain: bool
    identifiers: tuple[int, ...]


class SavedCopy(NamedTuple):
    """A message that a client has yet to receive or acknowledge."""

    serial: int
    """Row number, which orders the copies of a session."""
    message: int
    """`SavedMessage.number` of the message."""
    packet_id: int
    """Packet identifier; 0 if the message has not been sent yet."""
    form: SavedForm


class SavedSession(msgspec.Struct):
    """One client's session. A session whose expiry is 0 is stored only for its will."""

    number: int
    client_id: str
    user: str | None
    expiry: int
    ends: float | None
    """End of the session in seconds since the epoch; None if its client was connected."""
    will: Message | None
    will_delay: int
    will_due: float | None
    """Time to publish the will, in seconds since the epoch; None if the client was connected or has no will."""
    birth: int = 0
    """Identifies the session at every broker."""
    subscriptions: list[Subscription] = []
    copies: list[SavedCopy] = []
    """Messages to deliver, in the order of sending."""
    releases: list[tuple[int, int]] = []
    """(serial, packet identifier) of each delivery for which PUBREL is due, in order."""
    incoming: dict[int, int] = {}
    """Subscribers reached, by packet identifier of each QoS 2 publication before PUBREL."""
    had: list[bytes] = []
    """The publications that the session has received recently, as far as known, oldest first, as
    `saps.storage.past.pack` returns them."""
    last_id: int = 0
    """The packet identifier that its broker used last, as far as a holder of its copy knows; 0 for none."""

    @property
    def row(self) -> Row:
        """The session's row in `Table.SESSIONS`."""
        will = self.will, self.will_delay, self.will_due
        return (self.number, self.client_id, self.user, self.expiry, self.ends, *will, self.birth)


class Saved(msgspec.Struct):
    """The whole content of a storage."""

    sessions: list[SavedSession] = []
    messages: dict[int, SavedMessage] = {}
    retained: dict[str, bytes] = {}
    """Retained messages by topic, as the overlay encodes them."""
    held: dict[str, dict[str, bytes]] = {}
    """By owner and name: copies of other brokers' sessions (`saps.overlay.sessions.replicas.shelf`)."""
    highest: int = 0
    """The greatest row number in use."""
    damaged: list[Damage] = []
    """Damaged records, which the other attributes leave out. Another holder of a record may store it anew
    (`saps.storage.damage`)."""
    jump: float = 0.0
    """Seconds by which the machine's clock jumped while the storage was not in use. `move` has shifted sessions, wills
    and messages by it; retained messages follow the mesh's clock."""

    @property
    def repaired(self) -> bool:
        """Whether the storage was made from a damaged one and no broker has started from it since. Other brokers may
        then have newer copies of its sessions."""
        return bool(self.sessions) and "" not in self.held

    def move(self, seconds: float) -> None:
        """Shift the ends of sessions, wills and messages by `seconds`, and record that in `jump`."""
        self.jump = seconds
        for session in self.sessions:
            session.ends = None if session.ends is None else session.ends + seconds
            session.will_due = None if session.will_due is None else session.will_due + seconds
        for number, saved in self.messages.items():
            if saved.expires is not None:
                self.messages[number] = saved._replace(expires=saved.expires + seconds)

    def timed(self) -> Batch:
        """Return the rows that contain an end or expiry: all sessions, and the messages that expire."""
        messages = self.messages
        return {
            Table.SESSIONS: {session.number: session.row for session in self.sessions},
            Table.MESSAGES: {number: tuple(saved) for number, saved in messages.items() if saved.expires is not None},
        }

    def rows(self) -> Batch:
        """Return all rows."""
        rows: Batch = {table: {} for table in Table}
        rows[Table.RETAINED] = {topic: (topic, record) for topic, record in self.retained.items()}
        rows[Table.HELD] = {
            (owner, name): (owner, name, content)
            for owner, contents in self.held.items()
            if owner  # rows without an owner are the incarnations of a broker with this storage: a new one has none
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
            if session.had:
                rows[Table.HAD][number] = (number, session.had)
        return rows
