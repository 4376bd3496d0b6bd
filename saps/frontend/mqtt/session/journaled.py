"""Containers for the state of a stored session, which log each change in the journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from saps.frontend.mqtt.session.window import Copy
from saps.marks import hit
from saps.routing.batch import Batch, Form, Origin
from saps.storage.journal import Change, Journal, Stored, Table
from saps.storage.past import RECENT, RECENT_IN_CUT, TOGETHER, Asked, Recent, pack


class Entry(NamedTuple):
    """The row of a copy, and the stored message that it refers to."""

    serial: int
    stored: Stored


class Copies:
    """The rows of one client's undelivered and unacknowledged messages."""

    __slots__ = ("elsewhere", "here", "journal", "number", "repaired", "settling")

    def __init__(self, journal: Journal, number: int) -> None:
        """Make the rows of one session. `number`: the session's number in the journal."""
        self.journal = journal
        self.number = number
        self.elsewhere = Recent()
        """The last publications that the session had before it came here."""
        self.here = Recent()
        """The last ones that the client has, or will never get, since then."""
        self.settling: list[Stored] = []
        """The very last of these; the mesh may not have numbered them yet."""
        self.repaired: frozenset[Origin] = frozenset()
        """The session's publications in a repaired file."""

    @property
    def _most(self) -> int:
        return RECENT_IN_CUT if self.journal.cut() else RECENT

    @property
    def over(self) -> dict[Origin, None]:
        """The last publications of `elsewhere` and `here`, oldest first: `RECENT`, more in a cut."""
        return dict.fromkeys([*self.elsewhere, *self.here, *self._settled()][-self._most :])

    @property
    def past(self) -> list[bytes]:
        """The publications of `over`, and perhaps some before them, as `saps.storage.past.pack` returns them."""
        return [*self.elsewhere.packed, *self.here.packed, *pack(self._settled())]

    @property
    def unbroken(self) -> list[bytes]:
        """The publications of `past` since which none is forgotten, as `saps.storage.past.pack` returns them."""
        return [*self.here.packed, *pack(self._settled())] if len(self.here) >= RECENT else self.past

    @property
    def count(self) -> int:
        """Number of publications in `past`."""
        return len(self.elsewhere) + len(self.here) + len(self.settling)

    def among(self, asked: Asked) -> set[Origin]:
        """Return those of `past` that are asked for."""
        return asked.among(self.past)

    def remember(self, packed: Iterable[bytes]) -> None:
        """Add publications to `elsewhere`. Raises `ValueError` for what `pack` has not made."""
        self.elsewhere.join(packed, self._most)

    def _settled(self) -> list[Origin]:
        incarnation = self.journal.incarnation
        return [stored.settle(incarnation) for stored in self.settling]

    def _renumbered(self, origin: Origin) -> None:
        """Remember a publication by the origin that the mesh has given it since it was over."""
        hit("numbered after it was over")
        self.here.extend([origin], self._most)

    def origins(self, entries: Iterable[Entry | int | None]) -> Iterator[Origin]:
        """Yield the publications of these entries of copies."""
        return (each.stored.settle(self.journal.incarnation) for each in entries if isinstance(each, Entry))

    def add(self, single: Batch, form: Form, packet_id: int = 0) -> Entry:
        """Store a copy, and return its entry. `packet_id`: 0 until it is sent."""
        journal, deadline = self.journal, single.deadline
        lasts = None if deadline is None else deadline + journal.epoch  # as `Journal.expiry`, without a call
        stored = journal.refer(single, lasts)
        serial = journal.number()
        journal.put(Table.COPIES, serial, (serial, self.number, stored.number, packet_id, form))
        return Entry(serial, stored)

    def renew(self, entry: Entry, form: Form, packet_id: int = 0) -> Entry:
        """Store a copy again behind all others, as it is sent now or has another place. Its message stays as it is."""
        journal, serial, stored = self.journal, self.journal.number(), entry.stored
        journal.put(Table.COPIES, serial, (serial, self.number, stored.number, packet_id, form))
        journal.drop(Table.COPIES, entry.serial, once=True)
        return Entry(serial, stored)

    def rows(self, entry: Entry, copy: Copy, packet_id: int) -> Iterator[Change]:
        """Yield the current rows of a stored copy."""
        serial, stored = entry
        single, form = copy
        origin = stored.settle(self.journal.incarnation)
        yield Table.MESSAGES, stored.number, (stored.number, single.message, self.journal.expiry(single), origin)
        yield Table.COPIES, serial, (serial, self.number, stored.number, packet_id, form)

    def remove(self, entry: Entry) -> None:
        """Delete a copy that the client has or will never get."""
        settling = self.settling
        settling.append(entry.stored)
        if len(settling) >= TOGETHER:
            self.here.extend(self._settled(), most := self._most)
            for stored in settling:
                stored.tell(self._renumbered)
            settling.clear()
            if len(self.here) >= most:
                self.elsewhere = Recent()
        self.journal.drop(Table.COPIES, entry.serial, once=True)
        self.journal.release(entry.stored)


class JournaledInflight(dict[int, Copy | None]):
    """Messages in flight (`saps.frontend.mqtt.session.window.Window.inflight`)."""

    __slots__ = ("_copies", "_entries")

    def __init__(self, copies: Copies) -> None:
        super().__init__()
        self._copies = copies
        self._entries: dict[int, Entry | int | None] = {}
        """By packet identifier: the entry of a copy, the serial of a PUBREL's row, or None for no row."""

    def __setitem__(self, packet_id: int, copy: Copy | None) -> None:
        copies = self._copies
        if copy is None:
            serial = copies.journal.number()
            copies.journal.put(Table.RELEASES, serial, (serial, copies.number, packet_id))
            self._entries[packet_id] = serial
        else:
            self._entries[packet_id] = copies.add(*copy, packet_id)
        super().__setitem__(packet_id, copy)

    def __delitem__(self, packet_id: int) -> None:
        super().__delitem__(packet_id)
        entry = self._entries.pop(packet_id)
        if isinstance(entry, int):
            self._copies.journal.drop(Table.RELEASES, entry, once=True)
        elif entry is not None:
            self._copies.remove(entry)

    def acknowledged(self, packet_ids: Iterable[int]) -> None:
        """Delete the rows of messages that the client has acknowledged to another broker; they stay in flight here.

        A QoS 2 message leaves the row of a PUBREL, as in `saps.frontend.mqtt.session.window.Window.settle`."""
        copies = self._copies
        for packet_id in packet_ids:
            entry, copy = self._entries[packet_id], self[packet_id]
            if isinstance(entry, Entry) and copy is not None:
                copies.remove(entry)
                self._entries[packet_id] = None
                if copy[1].qos == 2:
                    self._entries[packet_id] = serial = copies.journal.number()
                    copies.journal.put(Table.RELEASES, serial, (serial, copies.number, packet_id))

    def update(self, pairs: Iterable[tuple[int, Copy | None]]) -> None:  # type: ignore[override]
        for packet_id, copy in pairs:
            self[packet_id] = copy

    def load(self, packet_id: int, copy: Copy | None, entry: Entry | int) -> None:
        """Add a message that is already in the journal."""
        self._entries[packet_id] = entry
        super().__setitem__(packet_id, copy)

    def sent(self, packet_id: int, copy: Copy, entry: Entry) -> None:
        """Add a message that has waited until now. `entry`: of the waiting one."""
        self.load(packet_id, copy, self._copies.renew(entry, copy[1], packet_id))

    @property
    def origins(self) -> Iterator[Origin]:
        """The publications in flight."""
        return self._copies.origins(self._entries.values())

    def rows(self) -> Iterator[Change]:
        """Yield the rows of all messages in flight."""
        number = self._copies.number
        for packet_id, copy in self.items():
            entry = self._entries[packet_id]
            if isinstance(entry, int):
                yield Table.RELEASES, entry, (entry, number, packet_id)
            elif entry is not None and copy is not None:
                yield from self._copies.rows(entry, copy, packet_id)

    def forget(self) -> None:
        """Delete all messages, also from the journal."""
        for packet_id in list(self):
            del self[packet_id]


class JournaledIncoming(dict[int, int]):
    """Received QoS 2 messages (`saps.frontend.mqtt.session.session.Session.incoming`).

    It logs only the changes that the session makes: setting an item, and `pop`.
    """

    __slots__ = ("_journal", "_number")

    def __init__(self, copies: Copies) -> None:
        super().__init__()
        self._journal = copies.journal
        self._number = copies.number

    def __setitem__(self, packet_id: int, reached: int) -> None:
        if self.get(packet_id) != reached:
            self._journal.put(Table.INCOMING, (self._number, packet_id), (self._number, packet_id, reached))
            super().__setitem__(packet_id, reached)

    def pop(self, packet_id: int, default: Any = None) -> Any:
        if packet_id in self:
            self._journal.drop(Table.INCOMING, (self._number, packet_id))
        return super().pop(packet_id, default)

    def load(self, packet_id: int, reached: int) -> None:
        """Add an identifier that is already in the journal."""
        super().__setitem__(packet_id, reached)

    def rows(self) -> Iterator[Change]:
        """Yield the rows of all identifiers."""
        for packet_id, reached in self.items():
            yield Table.INCOMING, (self._number, packet_id), (self._number, packet_id, reached)

    def forget(self) -> None:
        """Delete all identifiers, also from the journal."""
        for packet_id in list(self):
            self.pop(packet_id)
