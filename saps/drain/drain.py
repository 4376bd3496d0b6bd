"""One broker's drain: its clients are sent away at a pace, their sessions follow them or are given away.

1. Nobody is let in any more; other brokers are asked what they can take (`saps.drain.agent`).
2. Clients are sent away, `Options.rate` a second. Each finds another broker, which takes its session over as ever.
3. A session whose client has been away for `Options.grace`, or before, is offered to another broker.
4. When none is left the broker may leave.

So each session is at one broker at any time, whose own it stays until the other has all of it; a drain that is
cancelled, or gets nowhere, leaves everything in order. Pure: driven by the timers of the frontend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import msgspec

from saps.agents.api import Answers
from saps.drain.adoption import Claims
from saps.drain.agent import DRAIN
from saps.drain.hosts import Hosts
from saps.drain.parting import ClientEviction
from saps.drain.values import Kind, Offer, Options, Progress, Stage
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.connection.connection import Connection
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.orders import Redirect
from saps.frontend.mqtt.session.session import Session
from saps.overlay.ring.keys import BrokerRef

TICK = 0.1
"""Seconds from one step to the next."""
LOOK = 2.0
"""Seconds between two questions to the other brokers, and between two looks for sessions whose clients have gone by
themselves; also how long clients stay before they are sent away without an address."""
ANSWERS = 50.0
"""Answers a second of other brokers, at most: in a large mesh they are asked less often."""
AT_ONCE = 64
"""Sessions that are offered or on the way at the same time. More is faster; each costs a few round trips, and what
its messages weigh."""
OVERDUE = 15.0
"""Seconds after which a session that was offered and is still here is offered to another broker."""
AGAIN = 1.0
"""Seconds until a session that was refused is offered again."""

Call = Callable[[str, str, tuple[Any, ...], Callable[[Answers], None]], None]
"""Calls a method of an agent by name (`saps.agents.api.AgentRegistry.call`)."""


class Drain:
    """Drains one broker when it is told to."""

    def __init__(
        self,
        me: Callable[[], BrokerRef],
        frontend: Frontend,
        claims: Claims,
        call: Call,
        *,
        kind: Callable[[Connection], Kind] = lambda connection: "mqtt",
        keys: Callable[[], int] = lambda: 0,
        addresses: Callable[[], set[str]] = set,
        on_empty: Callable[[], None] = lambda: None,
    ) -> None:
        """`kind`: how a client is connected. `keys`: how many this broker has in the overlay. `addresses`: where
        clients reach it. `on_empty`: all that can go has gone; it is to leave."""
        self._me = me
        self._frontend = frontend
        self._claims = claims
        self._call = call
        self._kind = kind
        self._keys = keys
        self._addresses = addresses
        self._on_empty = on_empty
        self.stage = Stage.SERVING
        self.options = Options()
        self.hosts = Hosts()
        self.eviction = ClientEviction(frontend, call)
        self.given = 0
        """Sessions that other brokers have, of those that were offered."""
        self._run = 0
        self._began = 0.0
        self._before = Progress(broker="", stage=Stage.SERVING)
        self._due: dict[str, float] = {}
        """Sessions of clients that are away, and when they are to be offered."""
        self._moving: dict[str, float] = {}
        """Sessions that were offered, and when that has failed."""
        self._look_at = 0.0

    # ---- what an operator does

    @property
    def draining(self) -> bool:
        return self.stage is not Stage.SERVING

    def start(self, options: Options) -> None:
        """Begin, or go on with other options."""
        self.options = options
        if self.stage in (Stage.LEAVING, Stage.LEFT):
            return
        frontend, now = self._frontend, self._frontend.clock()
        self._began = now
        if self.stage is Stage.SERVING:
            self._before = self.progress()
            self._run += 1
            self.hosts = Hosts()
            self.eviction.begin()
            self._due = {client: now for client, session in frontend.sessions.items() if session.connection is None}
            self._look_at = now
            for client in frontend.sessions:  # whoever gets a client now must learn that its session is here
                self._claims.sync_one(client)
            frontend.timers.at(now, self._tick(self._run))
        self.stage = Stage.DRAINING
        self._direct()

    def cancel(self) -> None:
        """Serve again. What has gone has gone; once the broker leaves it is too late."""
        if self.stage in (Stage.DRAINING, Stage.STUCK):
            self.stage = Stage.SERVING
            self._frontend.orders.redirect = None
            self._due.clear()
            self._moving.clear()

    def progress(self) -> Progress:
        """How far it is."""
        frontend, before = self._frontend, self._before
        keys = self._keys()
        running = self.draining
        return Progress(
            broker=self._me().name,
            stage=self.stage,
            seconds=round(frontend.clock() - self._began, 1) if running else 0.0,
            clients=sum(session.connection is not None for session in frontend.sessions.values()),
            clients_before=before.clients if running else 0,
            sessions=len(frontend.sessions),
            sessions_before=before.sessions if running else 0,
            moving=len(self._moving),
            staying=running and self._staying,
            keys=keys,
            keys_before=max(before.keys, keys) if running else 0,
            hosts=[host.broker for host in self.hosts.able] if running else [],
        )

    # ---- step by step

    def _tick(self, run: int) -> Callable[[float], None]:
        def step(now: float) -> None:
            if run != self._run or self.stage in (Stage.LEAVING, Stage.LEFT):
                return
            self.eviction.see_to_wills(now)
            if self.stage in (Stage.DRAINING, Stage.STUCK):
                self._step(now)
            if self.stage in (Stage.DRAINING, Stage.STUCK) or self.eviction.wills:
                self._frontend.timers.at(now + TICK, step)

        return step

    def _step(self, now: float) -> None:
        if now >= self._look_at:
            self._look_at = now + max(LOOK, self.hosts.number / ANSWERS)
            self._look(now)
        if self.hosts.known or now - self._began >= LOOK:
            self.eviction.send_away(self.options.rate * TICK, self._away)
        self._give(now)
        left = self._frontend.sessions
        if not self.eviction.connected:
            over = now - self._began >= self.options.timeout
            journal = self._frontend.storage.journal
            stored = journal is not None and journal.disk and all(session.stored for session in left.values())
            if not left or ((self._staying or over) and stored):
                self.stage = Stage.LEAVING
                self._on_empty()
            elif over:
                self.stage = Stage.STUCK

    def _away(self, client: str) -> None:
        """A client has been sent away."""
        self._due[client] = self._frontend.clock() + self.options.grace

    # ---- the other brokers

    @property
    def _staying(self) -> bool:
        """Nobody takes sessions."""
        return self.hosts.known and not self.hosts.able

    def _look(self, now: float) -> None:
        """Ask the other brokers what they offer, and look which sessions have been left meanwhile."""
        run = self._run

        def answered(answers: Answers) -> None:
            if run == self._run and self.stage in (Stage.DRAINING, Stage.STUCK):
                self.hosts.learn(
                    [answer.value for answer in answers if answer.error is None], self._me(), self._addresses()
                )
                self._direct()

        self._call(f"!{DRAIN}", "host", (), answered)
        for client, session in self._frontend.sessions.items():
            if session.connection is None:
                self._due.setdefault(client, now + self.options.grace)

    def _direct(self) -> None:
        """What clients are told from now on."""
        hosts, kind = self.hosts, self._kind
        if self._staying:  # they are to come back: elsewhere they would begin anew
            refusal, leave_ack = Reason.SERVER_UNAVAILABLE, Reason.SERVER_SHUTTING_DOWN
        else:
            refusal = leave_ack = Reason.SERVER_MOVED if self.options.moved else Reason.USE_ANOTHER_SERVER
        self._frontend.orders.redirect = Redirect(
            refusal, leave_ack, lambda connection: hosts.reference(kind(connection))
        )

    # ---- sessions

    def _give(self, now: float) -> None:
        """Offer what is due, and see what has become of what was offered."""
        sessions = self._frontend.sessions
        for client, overdue in list(self._moving.items()):
            if client not in sessions:
                self.given += 1
                del self._moving[client]
                self._due.pop(client, None)
            elif now >= overdue:
                self._claims.sync_one(client)  # perhaps there is a later one, and this one is to end
                self._refused(client, now)
        offers: dict[str, list[Offer]] = {}
        for offer in self._offers(now):
            host = self.hosts.choose(offer.client)
            if host is None:
                self._due[offer.client] = now + AGAIN
            else:
                self._moving[offer.client] = now + OVERDUE
                offers.setdefault(host, []).append(offer)
        for host, batch in offers.items():
            self._offer(host, batch)

    def _offers(self, now: float) -> Iterator[Offer]:
        """Of sessions that are due, as many as may go at once."""
        room = AT_ONCE - len(self._moving)
        for client, due in list(self._due.items()):
            if due > now or client in self._moving:
                continue
            session = self._frontend.sessions.get(client)
            if session is None or session.connection is not None:
                del self._due[client]
            elif room > 0 and session.ends_at < inf:  # else another broker is taking it
                room -= 1
                yield self._described(client, session, now)

    def _described(self, client: str, session: Session, now: float) -> Offer:
        will = session.will
        return Offer(
            client,
            session.user,
            self._me(),
            self._claims.leases.get(client, 0),
            session.ends_at - now,
            len(session.queue.copies or ()),
            session.queue.bytes,
            None if will is None else will.message,
            0.0 if will is None else max(0.0, will.due - now),
        )

    def _offer(self, host: str, batch: list[Offer]) -> None:
        run = self._run

        def answered(answers: Answers) -> None:
            if run != self._run:
                return
            value = answers[0].value if answers and answers[0].error is None else None
            reasons = value if isinstance(value, list) and len(value) == len(batch) else ["no answer"] * len(batch)
            for offer, reason in zip(batch, reasons, strict=True):
                if reason and offer.client in self._moving:
                    self.hosts.refused(offer.client, host)
                    self._refused(offer.client, self._frontend.clock())

        self._call(f"{host}!{DRAIN}", "adopt", (msgspec.to_builtins(batch, builtin_types=(bytes,)),), answered)

    def _refused(self, client: str, now: float) -> None:
        del self._moving[client]
        self._due[client] = now + AGAIN
