"""The MQTT machine with a guard, without sockets and threads: passwords are checked when the test says so."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from saps.frontend.mqtt.access.acl_file import parse_acl
from saps.frontend.mqtt.access.guard import Access, Guard, Origin
from saps.frontend.mqtt.access.guarded import GuardedAuthorizer
from saps.frontend.mqtt.access.options import Anonymous
from saps.frontend.mqtt.access.users import Scrypt, Stored, Users
from saps.frontend.mqtt.codec.packets import V5
from saps.frontend.mqtt.connection.connection import Connection
from saps.frontend.mqtt.driver.access_control import obey
from saps.frontend.mqtt.limits import Limits
from saps.mesh import Mesh
from saps.messages import Message
from saps.routing.batch import Batch
from tests.frontend.mqtt.bench import Bench, Client

LOCAL = Origin("127.0.0.1", True)
REMOTE = Origin("192.0.2.7")


def users(**passwords: bytes) -> Users:
    """Users with these passwords, at no cost worth the name."""
    return {
        name: Scrypt(1, 1, 1, b"salt", hashlib.scrypt(word, salt=b"salt", n=2, r=1, p=1, dklen=32))
        for name, word in passwords.items()
    }


class Checker:
    """A `PasswordChecker` in the test's hands."""

    def __init__(self, queue: int = 8) -> None:
        self.queue = queue
        self.checked = 0
        self._jobs: list[tuple[Stored, bytes, Callable[[], bool], Callable[[bool], None]]] = []

    def check(
        self, stored: Stored, password: bytes, host: str, wanted: Callable[[], bool], done: Callable[[bool], None]
    ) -> bool:
        if len(self._jobs) >= self.queue:
            return False
        self._jobs.append((stored, password, wanted, done))
        return True

    def run(self) -> None:
        """Check all passwords that wait."""
        jobs, self._jobs = self._jobs, []
        for stored, password, wanted, done in jobs:
            self.checked += wanted()
            done(wanted() and stored.matches(password))


class GuardedBench(Bench):
    """One broker's hub and frontend, with a guard."""

    def __init__(
        self,
        users: Users | None = None,
        acl: str = "",
        anonymous: Anonymous = "loopback",
        limits: Limits | None = None,
        mesh: Mesh | None = None,
        queue: int = 8,
    ) -> None:
        super().__init__(limits, mesh)
        self.checker = Checker(queue)
        policy = parse_acl(acl) if acl else None
        self.guard = Guard(
            Access(users, policy), self.checker, b"k" * 32, anonymous, lambda: self.now, lambda: self.now
        )
        if policy is not None:
            self.hub.routes.restricted = True

    def arriving(self, version: int = V5, origin: Origin = LOCAL) -> GuardedClient:
        """A client that has not sent anything."""
        return GuardedClient(self, version, origin)

    def login(self, client_id: str, user: str | None = None, **fields: Any) -> GuardedClient:
        """A client that is let in, as this user by certificate, so that no password is needed."""
        client = self.arriving(fields.get("version", V5), LOCAL._replace(certificate_user=user))
        client.connect(client_id, **fields)
        return client

    def check_passwords(self) -> None:
        self.checker.run()
        self.flush()

    def publish(self, topic: str, qos: int = 0, retain: bool = False) -> None:
        """Publish the topic's own name."""
        self.hub.publish(Batch.of(Message(topic, topic.encode(), qos, retain)))
        self.flush()

    def replace(self, users: Users | None = None, acl: str = "") -> None:
        """As after a reload."""
        self.guard.access = Access(users, parse_acl(acl) if acl else None)
        obey(self.guard, self.frontend)
        self.flush()


class GuardedClient(Client):
    """A peer of one guarded connection."""

    def __init__(self, bench: GuardedBench, version: int = V5, origin: Origin = LOCAL) -> None:
        super().__init__(bench, version)
        bench.frontend.connections.discard(self.connection)
        self.connection = Connection(bench.frontend, self, "test", GuardedAuthorizer(bench.guard, origin))
