"""One broker's drain: its clients are sent away at a pace, their sessions follow them or are given away.

1. Nobody is let in any more; other brokers are asked what they can take (`saps.drain.agent`).
2. Clients are sent away, `Options.rate` a second. Each finds another broker, which takes its session over as ever.
3. A session whose client has been away for `Options.grace`, or before, is offered to another broker.
4. When none is left the broker may leave.

So each session is at one broker at any time, whose own it stays until the other has all of it; a drain that is
cancelled, or gets nowhere, leaves everything in order. Pure: driven by the timers of the frontend.
"""

from __future__ import annotations

from collections.abc import Callable

from saps.agents.api import Answers
from saps.drain.adoption import Claims
from saps.drain.agent import DRAIN
from saps.drain.hosts import Hosts
from saps.drain.offering import Call, Offering
from saps.drain.parting import ClientEviction
from saps.drain.values import Kind, Options, Progress, Stage
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.connection.connection import Connection
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.orders import Redirect
from saps.overlay.ring.keys import BrokerRef

TICK = 0.1
"""Seconds from one step to the next."""
LOOK = 2.0
"""Seconds between two questions to the other brokers, and between two looks for sessions whose clients have gone by
themselves; also how long clients stay before they are sent away without an address."""
ANSWERS = 50.0
"""Answers a second of other brokers, at most: in a large mesh they are asked less often."""


class _Run:
    """One drain, from its start to its end or its cancellation."""

    def __init__(self, began: float, before: Progress) -> None:
        """`before`: how much there was."""
        self.began = began
        self.before = before


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
        self.offering = Offering(me, frontend, claims, call)
        self._run = _Run(0.0, Progress(broker="", stage=Stage.SERVING))
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
        self._run.began = now
        if self.stage is Stage.SERVING:
            self._run = _Run(now, self.progress())
            self.hosts = Hosts()
            self.eviction.begin()
            self.offering.begin(self.hosts, now)
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
            self.offering.end()

    def progress(self) -> Progress:
        """How far it is."""
        frontend, before = self._frontend, self._run.before
        keys = self._keys()
        running = self.draining
        return Progress(
            broker=self._me().name,
            stage=self.stage,
            seconds=round(frontend.clock() - self._run.began, 1) if running else 0.0,
            clients=sum(session.connection is not None for session in frontend.sessions.values()),
            clients_before=before.clients if running else 0,
            sessions=len(frontend.sessions),
            sessions_before=before.sessions if running else 0,
            moving=len(self.offering.moving),
            staying=running and self._staying,
            keys=keys,
            keys_before=max(before.keys, keys) if running else 0,
            hosts=[host.broker for host in self.hosts.able] if running else [],
        )

    # ---- step by step

    def _tick(self, run: _Run) -> Callable[[float], None]:
        def step(now: float) -> None:
            if run is not self._run or self.stage in (Stage.LEAVING, Stage.LEFT):
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
        if self.hosts.known or now - self._run.began >= LOOK:
            self.eviction.send_away(self.options.rate * TICK, self._away)
        self.offering.offer(now)
        left = self._frontend.sessions
        if not self.eviction.connected:
            over = now - self._run.began >= self.options.timeout
            journal = self._frontend.storage.journal
            stored = journal is not None and journal.disk and all(session.stored for session in left.values())
            if not left or ((self._staying or over) and stored):
                self.stage = Stage.LEAVING
                self._on_empty()
            elif over:
                self.stage = Stage.STUCK

    def _away(self, client: str) -> None:
        """A client has been sent away."""
        self.offering.later(client, self._frontend.clock() + self.options.grace)

    # ---- the other brokers

    @property
    def _staying(self) -> bool:
        """Nobody takes sessions."""
        return self.hosts.known and not self.hosts.able

    def _look(self, now: float) -> None:
        """Ask the other brokers what they offer, and look which sessions have been left meanwhile."""
        run = self._run

        def answered(answers: Answers) -> None:
            if run is self._run and self.stage in (Stage.DRAINING, Stage.STUCK):
                self.hosts.learn(
                    [answer.value for answer in answers if answer.error is None], self._me(), self._addresses()
                )
                self._direct()

        self._call(f"!{DRAIN}", "host", (), answered)
        self.offering.look(now + self.options.grace)

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
