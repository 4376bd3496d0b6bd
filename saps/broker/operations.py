"""Joins the operators' access to clients (`saps.operations`) with the running broker."""

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
from saps.frontend.mqtt.connection.client_connection import ClientConnection
from saps.messages import Message
from saps.operations.audit import AUDIT, SIGNAL, Audit, Entry
from saps.operations.audit_io import AuditFile
from saps.operations.bans import BANS
from saps.operations.clients import CLIENTS, ClientsAgent
from saps.operations.following import FOLLOW, Following
from saps.operations.retained import RETAINED, RetainedAgent
from saps.routing.batch import Batch

if TYPE_CHECKING:
    from saps.broker.parts import Parts

TRANSPORTS = {"mqtt": "TCP", "mqtts": "TLS", "": "Web"}
SOON = 0.1
"""Delay in seconds of a write to the audit log, so that several entries share a write."""


class Operations:
    """The audit log, bans and agents for the operators of one broker. Its MQTT server must have been started."""

    def __init__(self, broker: Parts) -> None:
        """Raises `SettingError` if the file of the audit log or of the bans cannot be used."""
        server = broker.server
        frontend = server.frontend
        self._broker = broker
        self.file, written = _audit_file(broker.settings.operations.audit)
        """The file of the audit log; None if it is kept in memory only."""
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
        """Publish a retained message in the broker's own name. An empty payload deletes the topic's message."""
        self._broker.hub.publish(Batch.of(Message(topic, payload, 1, retain=True)))

    def begin(self) -> None:
        """Begin to compare bans, since the mesh has been joined."""
        self.bans.begin()

    def reload(self, reloading: asyncio.Task[bool] | None) -> None:
        """Reopen the audit log and record a reload. `reloading` returns whether the files of access control were valid;
        None without such files."""
        if self.file is not None:
            self.file.reopen()
        before = self._rules()

        def done(task: asyncio.Task[bool]) -> None:
            if not task.cancelled() and task.exception() is None:
                after = self._rules() | {"taken": task.result()}
                self.audit.record("reload", source=SIGNAL, before=before, after=after)

        if reloading is None:
            self.audit.record("reload", source=SIGNAL)
        else:
            reloading.add_done_callback(done)

    def _rules(self) -> dict[str, int | bool]:
        """Return the number of users and of rules in the files of access control."""
        guard = self._broker.access.guard
        users, policy = (guard.access.users, guard.access.policy) if guard is not None else (None, None)
        return {"users": len(users or ()), "rules": len(policy.rules) if policy is not None else 0}

    def close(self) -> None:
        """Close the bans and the audit log, and write what is unwritten."""
        self.bans.close()
        if self.file is not None:
            self.file.close()


class _Witness:
    """Reports connections to the audit log and to live traces (a `saps.frontend.mqtt.orders.Witness`)."""

    def __init__(self, audit: Audit, following: Following) -> None:
        self._audit = audit
        self._following = following

    def entered(self, connection: ClientConnection) -> None:
        self._audit.entered(connection)
        self._following.entered(connection)

    def refused(
        self, connection: ClientConnection, client_id: str, user: str | None, reason: Reason, text: str
    ) -> None:
        self._audit.refused(connection, client_id, user, reason, text)
        self._following.refused(connection, client_id, user, reason, text)


class _Others:
    """The other brokers, as this one reaches them (a `saps.broker.bans.Others`)."""

    def __init__(self, broker: Parts) -> None:
        self._broker = broker

    def call(self, name: str, method: str, args: tuple[Any, ...], done: Callable[[Answers], None]) -> None:
        broker = self._broker
        if broker.mesh.node.joined:
            broker.mesh.act(lambda: broker.agents.call(name, method, args, done))

    def linked(self) -> list[str]:
        return sorted({ref.name for ref in self._broker.mesh.node.graph.linked_brokers()})


def _bans_path(broker: Parts) -> Path | None:
    """Return the file of the bans, or None to keep them in memory only."""
    settings = broker.settings
    if settings.operations.bans:
        return Path(settings.operations.bans)
    return Path(f"{settings.storage.file}.bans") if settings.storage.file else None


def _audit_file(path: str) -> tuple[AuditFile | None, list[Entry]]:
    """Open the file of the audit log, if `path` names one. Return it with its latest entries.

    Raises `SettingError` if the file cannot be used."""
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
