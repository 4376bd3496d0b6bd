"""Simulated brokers whose sessions have copies at others, with disks or without, and crashes that take these along."""

from __future__ import annotations

from typing import Any

import msgspec

from saps.frontend.mqtt.connection.held import HeldOutput
from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.session.durable import DurableSession
from saps.frontend.mqtt.session.restore import restore
from saps.messages import Message
from saps.overlay.frames.base import Frame
from saps.overlay.frames.kinds import AnyFrame
from saps.overlay.ring.keys import BrokerRef
from saps.routing.batch import Origin
from saps.simulator import SimBroker
from saps.storage.commits import Commits
from saps.storage.driver.mesh import COPIED, HeldFrames
from saps.storage.journal import Batch, Journal, Row, Table
from saps.storage.saved import Saved, SavedCopy, SavedForm, SavedMessage, SavedSession
from tests.overlay.missed_files import Files, keep_missed
from tests.overlay.roams import Bench, Roams

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(AnyFrame).decode

Tables = dict[Table, dict[Any, Row]]


class Disk:
    """What one broker has stored. Writes take a moment. (A `saps.storage.commits.Driver`.)"""

    def __init__(self, mesh: Replicated, broker: SimBroker, tables: Tables | None) -> None:
        """`tables`: what is on it; None: there is none."""
        self.mesh = mesh
        self.broker = broker
        self.tables = tables

    def write(self, batch: Batch, commits: Commits) -> None:
        if self.tables is None:
            commits.written(0)
        else:
            self.later(self.mesh.rng.uniform(0.0005, 0.01), lambda: self._written(batch, commits))

    def _written(self, batch: Batch, commits: Commits) -> None:
        assert self.tables is not None
        for table, rows in batch.items():
            for key, row in rows.items():
                if row is None:
                    self.tables.setdefault(table, {}).pop(key, None)
                else:
                    self.tables.setdefault(table, {})[key] = row
        commits.written(0)

    def later(self, delay: float, action: Any) -> None:
        self.mesh.at(self.mesh.now + delay, lambda: self.broker.act(action))


def saved(tables: Tables) -> Saved:
    """What a broker finds."""
    found, sessions = Saved(), {}

    def rows(table: Table) -> list[Row]:
        return [row for _, row in sorted(tables.get(table, {}).items())]

    for number, client, user, expiry, ends, _, _, _, birth in rows(Table.SESSIONS):
        sessions[number] = SavedSession(number, client, user, expiry, ends, None, 0, None, birth)
    for number, _, subscription in rows(Table.SUBSCRIPTIONS):
        sessions[number].subscriptions.append(subscription)
    for number, message, expires, origin in rows(Table.MESSAGES):
        assert isinstance(message, Message)
        assert isinstance(origin, Origin)
        found.messages[number] = SavedMessage(number, message, expires, origin)
    for serial, number, message, packet_id, form in rows(Table.COPIES):
        sessions[number].copies.append(SavedCopy(serial, message, packet_id, SavedForm(*form)))
    for serial, number, packet_id in rows(Table.RELEASES):
        sessions[number].releases.append((serial, packet_id))
    for number, packet_id, reached in rows(Table.INCOMING):
        sessions[number].incoming[packet_id] = reached
    for number, had in rows(Table.HAD):
        sessions[number].had = had
    found.sessions = list(sessions.values())
    for owner, name, content in rows(Table.HELD):
        found.held.setdefault(owner, {})[name] = content
    keys = [key for rows in tables.values() for key in rows]
    found.highest = max((key if isinstance(key, int) else key[0] for key in keys if not _is_text(key)), default=0)
    return found


def _is_text(key: Any) -> bool:
    return isinstance(key, tuple) and isinstance(key[0], str)


def carried(frame: Frame) -> Frame:
    """A frame as the other side of a link reads it: a value of its own, within the bounds of its fields."""
    read: Frame = decode(encode(frame))
    return read


class Replicated(Roams):
    """A simulation in which sessions that last are held by several brokers."""

    def __init__(
        self,
        seed: int,
        *,
        disks: bool = False,
        copies: int = 3,
        **options: object,
    ) -> None:
        options.setdefault("check", False)
        super().__init__(seed, Limits(), session_copies=copies, **options)
        self.disks: dict[str, Tables] | None = {} if disks else None
        """By broker."""
        self.jump = 0.0
        """Seconds by which the clock of a broker that starts has jumped."""
        self.missed: dict[str, Files] = {}
        """By broker with a disk: its log of what others have missed."""

    def attach(self, broker: SimBroker) -> None:
        super().attach(broker)
        self._store(broker, self.benches[broker])

    def _store(self, broker: SimBroker, bench: Bench) -> None:
        node, frontend = broker.node, bench.frontend
        tables = None if self.disks is None else self.disks.setdefault(broker.ref.name, {})
        broker.former = [other for other in self.disks or () if tables and other != broker.name]
        disk = Disk(self, broker, tables)
        journal = frontend.storage.journal = Journal()
        journal.disk, journal.incarnation = tables is not None, (broker.ref.name, broker.ref.incarnation)
        journal.place = node.rendezvous.publishers.take_place
        journal.cut = lambda: node.delivery.cut
        node.delivery.on_numbered.append(journal.numbered)
        journal.begin_after(broker.ref.incarnation << 40)
        commits = Commits(journal, disk)
        held = frontend.turn.held = HeldOutput(commits)
        commits.held.append(held)
        gates = [HeldFrames(commits, lambda frames: self._send_all(broker, frames))]
        found = saved(tables or {})
        found.move(self.jump)
        node.port.timers.epoch += self.jump
        journal.epoch = self.jump
        if tables is not None:
            others = Journal()
            lane = Commits(others, Disk(self, broker, tables))
            gates.append(HeldFrames(lane, lambda frames: self._send_all(broker, frames), COPIED, degrades=True))
            node.replicas.restored.take(others, found.held, self.jump)
            keep_missed(broker, self.missed.setdefault(broker.name, {}))
        self._gate(broker, gates)
        commits.copier = node.replicas.source
        node.replicas.source.shown = journal.show
        node.replicas.when_stored = commits.then
        restore(frontend, journal, found, with_wills=False)
        node.sessions.restored(list(frontend.sessions))
        # One crash after the other holds up claims.
        node.sessions._waiting.timeouts.seconds = 20.0

    def _gate(self, broker: SimBroker, gates: list[HeldFrames]) -> None:
        take = broker.node.take

        def taken() -> list[tuple[BrokerRef, Frame]]:
            return [(to, carried(frame)) for to, frame in take() if not any(g.holds(to, frame) for g in gates)]

        broker.node.take = taken  # type: ignore[method-assign]

    def _send_all(self, broker: SimBroker, frames: list[tuple[BrokerRef, Frame]]) -> None:
        for to, frame in frames:
            self._send(broker, to, carried(frame))

    def restart(self, name: str, contact: str | None, wiped: bool = False) -> SimBroker:
        """A broker that has crashed begins again."""
        if wiped and self.disks is not None:
            self.lose_disk(name)
        return self.add(name, self.brokers[name].ref.cluster, contact)

    def lose_disk(self, name: str) -> None:
        assert self.disks is not None
        self.disks[name] = {}
        self.missed.pop(name, None)

    def owners(self, client: str) -> list[str]:
        return self.sessions(client)


def stored(mesh: Replicated, broker: SimBroker) -> DurableSession:
    """The session of the client c at a broker."""
    session = mesh.benches[broker].frontend.sessions["c"]
    assert isinstance(session, DurableSession)
    return session
