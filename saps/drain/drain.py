"""Drains one broker: its clients are redirected at a limited rate, and their sessions move to other brokers.

1. The broker admits no more clients and asks the other brokers how much room they have (`saps.drain.agent`).
2. It redirects `Options.rate` clients a second. Each connects to another broker, to which its session migrates.
3. It offers the session of each client that has been away for `Options.grace` seconds to another broker.
4. When no session is left, the broker may leave.

Each session belongs to one broker at any time, and to the next one only when that has all of it. A drain may therefore
be cancelled or get stuck without harm. Pure: the frontend's timers drive it.
"""

from __future__ import annotations

from collections.abc import Callable

from saps.agents.api import Answers
from saps.drain.adoption import Claims
from saps.drain.agent import DRAIN
from saps.drain.hosts import Hosts
from saps.drain.offering import Call, Offering
from saps.drain.parting import ClientEviction
from saps.drain.values import Host, Kind, Options, Progress, Stage
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.connection.client_connection import ClientConnection
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.orders import Redirect
from saps.overlay.ring.keys import BrokerRef

TICK = 0.1
"""Seconds between two steps."""
LOOK = 2.0
"""Seconds between two queries to the other brokers, and between two searches for sessions whose clients have left by
themselves; also how long the drain waits for an answer before it redirects clients without an address."""
ANSWERS = 50.0
"""Most answers of other brokers a second: a larger mesh is queried less often."""


class _Run:
    """One drain, from its start to its end or its cancellation."""

    def __init__(self, began: float, before: Progress) -> None:
        """`began`: seconds on the frontend's clock; `before`: the clients, sessions and keys at that time."""
        self.began = began
        self.before = before


class Drain:
    """The drain of one broker, started and cancelled by an operator."""

    def __init__(
        self,
        me: Callable[[], BrokerRef],
        frontend: Frontend,
        claims: Claims,
        call: Call,
        *,
        kind: Callable[[ClientConnection], Kind] = lambda connection: "mqtt",
        keys: Callable[[], int] = lambda: 0,
        addresses: Callable[[], set[str]] = set,
        on_empty: Callable[[], None] = lambda: None,
    ) -> None:
        """`kind` returns how a client is connected, `keys` the number of this broker's keys in the overlay, `addresses`
        where clients reach this broker. `on_empty` is called when nothing is left that can move: the broker should
        leave."""
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
        """Start the drain, or continue it with other options."""
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
        """Cancel the drain and serve again; clients and sessions that have moved stay where they are. Has no effect
        once the broker is leaving."""
        if self.stage in (Stage.DRAINING, Stage.STUCK):
            self.stage = Stage.SERVING
            self._frontend.orders.redirect = None
            self.offering.end()

    def progress(self) -> Progress:
        """Return the progress of the drain."""
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
        """Schedule the session of a redirected client to be offered."""
        self.offering.later(client, self._frontend.clock() + self.options.grace)

    # ---- the other brokers

    @property
    def _staying(self) -> bool:
        """Return whether all other brokers have answered, and none has room."""
        return self.hosts.known and not self.hosts.able

    def _look(self, now: float) -> None:
        """Query the other brokers for room, and schedule sessions whose clients have left meanwhile."""
        run = self._run

        def answered(answers: Answers) -> None:
            if run is self._run and self.stage in (Stage.DRAINING, Stage.STUCK):
                self.hosts.learn([host for _, host in answers.of(Host)], self._me(), self._addresses())
                self._direct()

        self._call(f"!{DRAIN}", "host", (), answered)
        self.offering.look(now + self.options.grace)

    def _direct(self) -> None:
        """Set the reason code and the addresses that clients are told from now on."""
        hosts, kind = self.hosts, self._kind
        if self._staying:  # they are to come back: elsewhere they would begin anew
            refusal, leave_ack = Reason.SERVER_UNAVAILABLE, Reason.SERVER_SHUTTING_DOWN
        else:
            refusal = leave_ack = Reason.SERVER_MOVED if self.options.moved else Reason.USE_ANOTHER_SERVER
        self._frontend.orders.redirect = Redirect(
            refusal, leave_ack, lambda connection: hosts.reference(kind(connection))
        )
