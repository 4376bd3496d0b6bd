"""What operators do with clients, joined with the running broker (`saps.operations`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saps.agents.api import Answers
from saps.broker.bans import LiveBans
from saps.config import SettingError
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.connection.connection import Connection
from saps.local.batch import Batch
from saps.messages import Message
from saps.operations.audit import AUDIT, Audit, Entry
from saps.operations.audit_io import AuditFile
from saps.operations.bans import BANS
from saps.operations.clients import CLIENTS, ClientsAgent
from saps.operations.following import FOLLOW, Following
from saps.operations.retained import RETAINED, RetainedAgent

if TYPE_CHECKING:
    from saps.broker.parts import Parts

TRANSPORTS = {"mqtt": "TCP", "mqtts": "TLS", "": "Web"}
SOON = 0.1
"""Seconds until what is to be written is written, with what comes meanwhile."""


class Operations:
    """Of one broker, once its MQTT server has been started."""

    def __init__(self, broker: Parts) -> None:
        """Raises `SettingError` if a file cannot be used."""
        server = broker.server
        frontend = server.frontend
        self._broker = broker
        self.file, written = _audit_file(broker.settings.operations.audit)
        """Where the audit log is written; None: nowhere."""
        write = self.file.write if self.file is not None else lambda entry: None
        self.audit = Audit(broker.ref.name, time.time, frontend.clock, write)
        self.audit.remember(written)
        self.following = Following(broker.ref.name, frontend, time.time)
        frontend.orders.witness = _Witness(self.audit, self.following)
        broker.agents.host(FOLLOW, self.following)
        broker.agents.host(AUDIT, self.audit)
        clients = ClientsAgent(
            broker.ref.name, frontend, time.time, lambda connection: TRANSPORTS[server.kind_of(connection)]
        )
        broker.agents.host(CLIENTS, clients)
        store = broker.mesh.node.retained.store
        broker.agents.host(RETAINED, RetainedAgent(store.matching, time.time))
        self.bans = LiveBans(broker.ref.name, frontend, _Others(broker), _bans_path(broker), self.audit)
        broker.agents.host(BANS, self.bans.agent)

    def retain(self, topic: str, payload: bytes) -> None:
        """Publish a retained message in the broker's own name; without a payload it deletes."""
        self._broker.hub.publish(Batch.of(Message(topic, payload, 1, retain=True)))

    def begin(self) -> None:
        """The mesh has been joined."""
        self.bans.begin()

    def reload(self, reloading: asyncio.Task[bool] | None) -> None:
        """The broker was told to read its files again; `reloading` says whether those of access control were taken."""
        if self.file is not None:
            self.file.reopen()
        before = self._rules()

        def done(task: asyncio.Task[bool]) -> None:
            if not task.cancelled() and task.exception() is None:
                after = self._rules() | {"taken": task.result()}
                self.audit.record("reload", source="signal", before=before, after=after)

        if reloading is None:
            self.audit.record("reload", source="signal")
        else:
            reloading.add_done_callback(done)

    def _rules(self) -> dict[str, int | bool]:
        """How much the files of access control say."""
        guard = self._broker.access.guard
        users, policy = (guard.access.users, guard.access.policy) if guard is not None else (None, None)
        return {"users": len(users or ()), "rules": len(policy.rules) if policy is not None else 0}

    def close(self) -> None:
        """Write what has not been written."""
        self.bans.close()
        if self.file is not None:
            self.file.close()


class _Witness:
    """Has the audit log and live traces know who comes. (A `saps.frontend.mqtt.orders.Witness`.)"""

    def __init__(self, audit: Audit, following: Following) -> None:
        self._audit = audit
        self._following = following

    def entered(self, connection: Connection) -> None:
        self._audit.entered(connection)
        self._following.entered(connection)

    def refused(self, connection: Connection, client_id: str, user: str | None, reason: Reason, text: str) -> None:
        self._audit.refused(connection, client_id, user, reason, text)
        self._following.refused(connection, client_id, user, reason, text)


class _Others:
    """The other brokers, as seen by this one. (An `Others`.)"""

    def __init__(self, broker: Parts) -> None:
        self._broker = broker

    def call(self, name: str, method: str, args: tuple[Any, ...], done: Callable[[Answers], None]) -> None:
        broker = self._broker
        if broker.mesh.node.joined:
            broker.mesh.act(lambda: broker.agents.call(name, method, args, done))

    def linked(self) -> list[str]:
        return sorted({ref.name for ref in self._broker.mesh.node.graph.linked_brokers()})


def _bans_path(broker: Parts) -> Path | None:
    """Where the bans are kept; None: in memory only."""
    settings = broker.settings
    if settings.operations.bans:
        return Path(settings.operations.bans)
    return Path(f"{settings.storage.file}.bans") if settings.storage.file else None


def _audit_file(path: str) -> tuple[AuditFile | None, list[Entry]]:
    """The file, if there is to be one, and what is in it."""
    if not path:
        return None, []
    loop = asyncio.get_running_loop()

    def later(flush: Callable[[], None]) -> None:
        loop.call_later(SOON, flush)

    try:
        file = AuditFile(Path(path), later)
        return file, file.latest()
    except OSError as error:
        raise SettingError("operations.audit", f"cannot use {path}: {error.strerror}") from None
