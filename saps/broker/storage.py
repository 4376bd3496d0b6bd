"""Opens a broker's storage at the start, joins it with session replicas, and checks it against other brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from saps.config import BrokerSettings, SettingError
from saps.config.sources_io import token
from saps.overlay.missed.segments import IN_MEMORY
from saps.storage.commits import Commits
from saps.storage.damage import StorageError
from saps.storage.driver.mesh import COPIED, HeldFrames, keep_retained
from saps.storage.driver.missed import Unflushed, boot, left, segments
from saps.storage.driver.store import Store
from saps.storage.place import Server
from saps.storage.witness import EVERY, Notes

if TYPE_CHECKING:
    from saps.broker.node_driver import LiveMesh
    from saps.broker.parts import Parts

logger = logging.getLogger(__name__)


def open_store(broker: Parts, with_wills: bool) -> Store:
    """Open the storage of a broker, with what an earlier incarnation left there: a file, a database, or copies at
    other brokers alone.

    `with_wills` says that no other broker has published the stored wills. Raises `SettingError` if the storage cannot
    be used."""
    settings, mesh = broker.settings.storage, broker.mesh
    try:
        store = Store(
            place(broker.settings),
            settings.sync,
            settings.maximum_size,
            with_wills,  # else the guardians of the wills have published them
            on_backlog=partial(broker.hold, "storage"),
        )
    except StorageError as error:
        raise SettingError("storage.url" if settings.url else "storage.file", str(error)) from None
    _copy(broker, store)
    if settings.durable:
        keep_retained(store, mesh.node)
    return store


def place(settings: BrokerSettings) -> Path | Server | None:
    """Return the file or the database server of a broker's storage, or None without either.

    Raises `SettingError` for a password file that cannot be read."""
    storage = settings.storage
    if storage.url:
        return Server(storage.url, settings.name, token("storage.password_file", storage.password_file))
    return Path(storage.file) if storage.file else None


def _copy(broker: Parts, store: Store) -> None:
    """Copy stored changes of sessions to other brokers. Acknowledgements wait while changes are under way."""
    mesh, replicas, journal = broker.mesh, broker.mesh.node.replicas, store.journal
    _hold(mesh, HeldFrames(store.commits, mesh.send_now), store.commits)
    if store.held_commits is not None:
        _hold(mesh, HeldFrames(store.held_commits, mesh.send_now, COPIED, degrades=True), store.held_commits)
        replicas.restored.take(store.held, store.saved.held, store.saved.jump)
    journal.incarnation = broker.ref.name, broker.ref.incarnation
    journal.place = mesh.node.rendezvous.publishers.take_place
    journal.cut = lambda: mesh.node.delivery.cut
    mesh.node.delivery.on_numbered.append(journal.numbered)
    store.commits.copier = replicas.source
    replicas.source.shown = journal.show
    replicas.when_stored = store.commits.then


def _hold(mesh: LiveMesh, gate: HeldFrames, commits: Commits) -> None:
    """Hold frames at a gate while its commits are pending."""

    def pending(changed: bool) -> None:
        mesh.gates = [gate, *mesh.gates] if changed else [other for other in mesh.gates if other is not gate]

    commits.watch(pending)


def keep_missed(broker: Parts) -> None:
    """Set up the log of publications that other brokers have missed, in memory or beside the storage file, and the
    policy of a minority (`session.minority`).

    Raises `SettingError` if the files of an earlier incarnation cannot be read."""
    settings, catch_up = broker.settings, broker.mesh.node.delivery.catch_up
    broker.mesh.node.replicas.source.refuse = settings.session.minority == "refuse"
    catch_up.log.age = settings.overlay.missed_age
    if not settings.storage.file:
        catch_up.log.size = min(settings.overlay.missed_size, IN_MEMORY)
        return
    catch_up.log.size = settings.overlay.missed_size
    file, store, unflushed = Path(settings.storage.file), broker.server.store, None
    if settings.storage.sync == "full" and store is not None:
        unflushed = Unflushed(file.parent, store.journal.outside)
        store.flush_first(unflushed.flush)
    catch_up.log.spool.make = segments(file, unflushed)
    try:
        catch_up.restore(left(file, unflushed), broker.mesh.node.port.timers.wall(), boot())
    except OSError as error:
        raise SettingError("storage.file", str(error)) from None


class Testimony:
    """Reports the extent of the storage to other brokers, and asks them at the start if the storage is out of date."""

    def __init__(self, broker: Parts, store: Store) -> None:
        self._broker = broker
        self._store = store
        self._notes = Notes(broker.ref.name, store, broker.agents, lambda: broker.watch.linked, self._found)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Ask the other brokers, and begin to report. Call it after the mesh is joined."""
        self._act(self._notes.ask)

    def stop(self) -> None:
        """Stop the reports."""
        if self._timer is not None:
            self._timer.cancel()

    def _act(self, action: Callable[[], None]) -> None:
        self._broker.mesh.act(action)
        self._timer = asyncio.get_running_loop().call_later(EVERY, self._act, self._notes.tell)

    def _found(self, what: str, missing: int) -> None:
        self._store.missing = missing
        lacks = f"; it lacks {missing} transactions that others remember" if missing else ""
        logger.error("%s: %s%s", self._store.name, what, lacks)
