"""Joins a broker's drain with the running broker: its offer to other brokers, its orders, and its end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from saps.agents.api import Answers
from saps.config import Address
from saps.drain.adoption import Adopter
from saps.drain.agent import DRAIN, DrainAgent
from saps.drain.drain import Drain
from saps.drain.values import Drained, Host, Order, Stage
from saps.frontend.mqtt.session.session import Session
from saps.mesh import Arrival
from saps.overlay.frames.calls import SessionLease
from saps.runtime.systemd import announce_status

if TYPE_CHECKING:
    from saps.broker.parts import Parts

logger = logging.getLogger(__name__)

TOLD_EVERY = 1.0
"""Seconds between two status lines for the service manager."""
LAST_LOOK = 10.0
"""Seconds for which a broker that has left the mesh waits until whoever watches it at the Web port has seen that:
longer than two looks are apart on a busy machine. Otherwise `saps drain` could not tell its end from a crash."""
WILDCARDS = ("0.0.0.0", "::", "")


class LiveClaims:
    """The claims of one running broker (a `saps.drain.adoption.Claims`)."""

    def __init__(self, broker: Parts) -> None:
        self._mesh = broker.mesh
        self._sessions = broker.mesh.node.sessions
        self.leases = self._sessions.leases

    def adopt(self, lease: SessionLease, user: str | None, arrived: Callable[[Arrival], None]) -> bool:
        return self._sessions.adopt(lease, user, arrived)

    def sync_one(self, client: str) -> None:
        self._mesh.act(lambda: self._sessions.sync_one(client))


class BrokerDrain:
    """The drain of one running broker."""

    def __init__(self, broker: Parts, on_left: Callable[[], None]) -> None:
        """`on_left` runs when the broker has left the mesh and must be stopped. The MQTT server must have been started,
        and the overlay node made."""
        self._broker = broker
        frontend, node = broker.server.frontend, broker.mesh.node
        claims = LiveClaims(broker)
        self.drain = Drain(
            lambda: broker.ref,
            frontend,
            claims,
            self._call,
            kind=broker.server.kind_of,
            keys=lambda: len(node.graph.nodes),
            addresses=lambda: {*self._addresses()},
            on_empty=self._leave,
        )
        self._on_left = on_left
        self._watched = False
        """Whether somebody at the Web port has ordered the drain or asked how far it is."""
        self._seen = asyncio.Event()
        """Set once somebody there has been told that the broker has left."""
        self._tasks: set[asyncio.Task[None]] = set()
        adopter = Adopter(frontend, claims, self._welcome)
        agent = DrainAgent(self._host, adopter, broker.hub.connected, self.obey, self.progress)
        broker.agents.host(DRAIN, agent)

    # ---- orders

    def obey(self, order: Order) -> None:
        """Begin a drain, change its options, or cancel it."""
        if order.cancel:
            self.drain.cancel()
            logger.info("%s serves again", self._broker.ref.name)
            self._tell()
            return
        beginning = not self.drain.draining
        self.drain.start(order.options(self._broker.settings.drain.options()))
        if beginning:
            logger.info("%s begins to drain", self._broker.ref.name)
            self._run(self._report())

    def progress(self) -> Drained:
        """Return the progress of the drain at present."""
        return Drained(at=round(time.time(), 3), **msgspec.structs.asdict(self.drain.progress()))

    def watched(self) -> Drained:
        """Return the progress to somebody at the Web port, who is expected to look again until the broker has left."""
        found = self.progress()
        self._watched = self.drain.draining
        if found.stage is Stage.LEFT:
            self._seen.set()
        return found

    # ---- the drain's needs and effects

    def _call(self, name: str, method: str, args: tuple[Any, ...], done: Callable[[Answers], None]) -> None:
        broker = self._broker
        broker.mesh.act(lambda: broker.agents.call(name, method, args, done))

    def _host(self) -> Host | None:
        """Return this broker's offer to take sessions of others, or None while it cannot."""
        broker, frontend = self._broker, self._broker.server.frontend
        if self.drain.draining or frontend.sessions.leaving or not broker.mesh.node.joined:
            return None
        count = len(frontend.sessions)
        room = 0 if frontend.storage.refusal is not None else max(0, frontend.limits.maximum_sessions - count)
        return Host(broker.ref.name, broker.ref.cluster, *self._addresses(), count, room)

    def _addresses(self) -> tuple[str, str]:
        """Return the MQTT addresses advertised to clients of other brokers, plain and with TLS; empty if none."""
        server, settings = self._broker.server, self._broker.settings.drain
        return advertised(settings.mqtt, [server.address]), advertised(settings.mqtts, server.tls_addresses)

    def _welcome(self, session: Session) -> None:
        self._broker.server.admit_session(session)

    def _leave(self) -> None:
        self._run(self._go())

    async def _go(self) -> None:
        """Leave the mesh, keep the Web port open until somebody has seen that or `LAST_LOOK` is over, and run
        `on_left`."""
        drain = self.drain
        logger.info("%s has nothing left to hand over and leaves", self._broker.ref.name)
        await self._broker.leave()
        drain.stage = Stage.LEFT
        if self._watched:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_LOOK):
                    await self._seen.wait()
        self._on_left()

    async def _report(self) -> None:
        while self.drain.draining:
            self._tell()
            await asyncio.sleep(TOLD_EVERY)

    def _tell(self) -> None:
        now = self.drain.progress()
        left = f": {now.clients} clients, {now.sessions} sessions left" if self.drain.draining else ""
        announce_status(f"{now.stage.value}{left}")

    def _run(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Stop the reports; the task that calls this goes on."""
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()


def advertised(setting: str, listening: list[tuple[str, int]]) -> str:
    """Return the address advertised to clients of other brokers: the setting, or else the first of `listening`.

    Return an empty string for a wildcard host, which clients elsewhere cannot reach."""
    if setting or not listening:
        return setting
    host, port = listening[0]
    return "" if host in WILDCARDS else str(Address(host, port))
