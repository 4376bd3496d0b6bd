"""A broker that can be killed at any step, its disk, and clients that keep their side: no sockets, no threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from benchmarks.durable_clients import DurableClient
from saps.frontend.mqtt.connection.connection import Connection
from saps.frontend.mqtt.connection.held import HeldOutput, reason_of
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.session.restore import restore
from saps.routing.hub import Hub
from saps.storage.commits import Commits
from saps.storage.driver.database import Database
from saps.storage.error import StorageFault
from saps.storage.journal import Batch, Journal
from tests.storage.conftest import Place


class Disk:
    """Writes when it is told to. (A `saps.storage.commits.Driver`.)"""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.writing: tuple[Batch, Commits] | None = None
        self.waiting: deque[Callable[[], None]] = deque()

    def write(self, batch: Batch, commits: Commits) -> None:
        assert self.writing is None, "two transactions at once"
        self.writing = batch, commits

    def later(self, delay: float, action: Callable[[], None]) -> None:
        self.waiting.append(action)

    def go_on(self) -> None:
        """What was to be done later is done."""
        for _ in range(len(self.waiting)):
            self.waiting.popleft()()

    def finish(self, good: bool = True) -> None:
        """The present transaction succeeds, or fails."""
        writing, self.writing = self.writing, None
        if writing is None:
            return
        batch, commits = writing
        if good:
            self.database.write(batch)
            commits.written(0)
        else:
            commits.failed(True, "no space")


class Life:
    """One life of a broker, from what the disk has."""

    def __init__(self, place: Place, now: float) -> None:
        self.now = now
        database = Database(place, "off")
        saved = database.load()
        self.hub = Hub(clock=lambda: self.now)
        self.frontend = Frontend(self.hub, Limits(), lambda: self.now, Random(1))
        self.disk = Disk(database)
        self.journal = self.frontend.storage.journal = Journal()
        self.commits = Commits(self.journal, self.disk, on_storage_fault=self._trouble)
        held = self.frontend.turn.held = HeldOutput(self.commits)
        self.commits.held.append(held)
        restore(self.frontend, self.journal, saved, with_wills=True)

    def _trouble(self, storage_fault: StorageFault | None) -> None:
        self.frontend.storage.refusal = None if storage_fault is None else reason_of(storage_fault)
        self.frontend.storage.broken = storage_fault is not None

    def flush(self) -> None:
        """What the server does after each input."""
        self.frontend.turn.flush()


class Wire:
    """A connection between a client and a life, with what is on its way in both directions."""

    def __init__(self, life: Life, client: DurableClient) -> None:
        self.life = life
        self.client = client
        self.open = True
        self.down = b""
        self.connection = Connection(life.frontend, self, client.client_id)
        self._up = client.greeting()
        self._greeted = False

    # ---- the connection's port

    def flush(self) -> None:
        self.down += self.connection.output.take()
        if self.connection.closing:
            self.open = False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def taken(self) -> int:
        return 0

    # ---- steps

    def rise(self) -> None:
        """What the client has sent arrives."""
        data, self._up = self._up, b""
        if self.open and data:
            self.connection.receive(data)
            self.life.flush()

    def fall(self) -> None:
        """What the broker has sent arrives."""
        data, self.down = self.down, b""
        while data:
            size, shift, pos = 0, 0, 1
            while True:
                digit = data[pos]
                size |= (digit & 0x7F) << shift
                shift, pos = shift + 7, pos + 1
                if digit < 0x80:
                    break
            first, body, data = data[0], data[pos : pos + size], data[pos + size :]
            if self._greeted:
                self.client.packet(first, body)
            else:
                try:
                    self.client.greeted(Up(self), first, body)
                except ConnectionRefusedError:
                    self.open = False
                    return
                self._greeted = True

    def send(self, data: bytes) -> None:
        self._up += data

    def end(self) -> None:
        """The connection breaks: what has not arrived never will."""
        if self.open:
            self.open = False
            self.connection.lost()
            self.life.flush()
        self.client.gone()


class Up:
    """The client's end of a wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def write(self, data: bytes) -> None:
        self._wire.send(data)
