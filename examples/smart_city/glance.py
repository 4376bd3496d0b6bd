"""What can be seen of a run at one moment: values for the screen, and the rates over the last seconds."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from examples.smart_city.latency import percentile
from examples.smart_city.loop import NAMES, Loop
from examples.smart_city.recorder import Path, Tally
from examples.smart_city.run import Phase, Run
from examples.smart_city.scene import GROUPS

WINDOW = 3.0
"""Seconds over which rates are averaged. Longer is calmer and later."""

TITLE = "SAPS smart city"
"""What the screen says above all."""

TREND = 60
"""How many past delivery rates are kept for the sparklines, one a second."""


@dataclass(frozen=True, slots=True)
class BrokerGlance:
    """One broker: its clients, and the messages from and to them."""

    name: str
    cluster: str
    up: bool
    clients: int
    received: int
    sent: int
    received_rate: float
    sent_rate: float


@dataclass(frozen=True, slots=True)
class TallyGlance:
    """The tally of a topic group or of a kind of path. Latencies in seconds."""

    name: str
    published: int
    expected: int
    delivered: int
    wrong: int
    """Duplicated, out of order or stray."""
    published_rate: float
    delivered_rate: float
    p50: float | None
    """Over the most recent deliveries, as `p99`."""
    p99: float | None
    trend: tuple[float, ...]
    """Deliveries per second, one value a second, oldest first."""


@dataclass(frozen=True, slots=True)
class SubscriberGlance:
    """One subscriber and what it has received."""

    name: str
    broker: str
    protocol: str
    qos: int
    filters: str
    subscribed: bool
    expected: int
    delivered: int
    wrong: int


@dataclass(frozen=True, slots=True)
class TopicGlance:
    """A topic between ALM and OFM."""

    topic: str
    mode: str
    rate: float
    """Publications a second."""
    between: float
    """Packets a second from one cluster to others."""
    per_publication: float
    trend: tuple[float, ...]
    """`per_publication`, one value a second, oldest first."""


@dataclass(frozen=True, slots=True)
class LoopGlance:
    """The loop of decisions and trees at one moment."""

    decider: str
    act: str
    topic: TopicGlance
    trees: tuple[str, ...]
    """Topics with trees."""
    page: str = ""
    """Address of the operator's page."""


@dataclass(frozen=True, slots=True)
class Glance:
    """A run at one moment."""

    phase: Phase
    elapsed: float
    seconds: float
    brokers: tuple[BrokerGlance, ...]
    publishers: int
    total: TallyGlance
    groups: tuple[TallyGlance, ...]
    paths: tuple[TallyGlance, ...]
    subscribers: tuple[SubscriberGlance, ...]
    duplicated: int
    out_of_order: int
    news: tuple[tuple[float, str], ...]
    title: str = TITLE
    loop: LoopGlance | None = None


class _Meter:
    """The rate of a growing count over the last `WINDOW` seconds."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def rate(self, now: float, count: int) -> float:
        points = self._points
        points.append((now, count))
        while len(points) > 2 and now - points[1][0] >= WINDOW:
            points.popleft()
        since, before = points[0]
        return (count - before) / (now - since) if now > since else 0.0


class Observer:
    """Looks at a run again and again; keeps what the rates and trends need."""

    def __init__(self, run: Run, title: str = TITLE, loop: Loop | None = None) -> None:
        self._run = run
        self._title = title
        self._loop = loop
        self._meters: dict[tuple[str, str], _Meter] = {}
        self._trends: dict[str, deque[float]] = {}
        self._trend_at = 0.0
        self._trend_due = True

    def look(self, now: float) -> Glance:
        """The run at `now`, seconds on any clock that does not step back."""
        run, recorder = self._run, self._run.recorder
        self._trend_due = now - self._trend_at >= 1
        if self._trend_due:
            self._trend_at = now
        return Glance(
            phase=run.phase,
            elapsed=run.elapsed,
            seconds=run.seconds,
            brokers=tuple(self._brokers(now)),
            publishers=len(run.scene.publishers),
            total=self._tally("total", recorder.total, now),
            groups=tuple(self._tally(g, recorder.groups.get(g) or Tally(), now) for g in GROUPS),
            paths=tuple(self._tally(path.value, recorder.paths[path], now) for path in Path),
            subscribers=tuple(self._subscribers()),
            duplicated=recorder.total.duplicated,
            out_of_order=recorder.total.out_of_order,
            news=tuple(run.news),
            title=self._title,
            loop=self._look_at(self._loop) if self._loop is not None else None,
        )

    def _look_at(self, loop: Loop) -> LoopGlance:
        topic = loop.crowd.topic
        rate, between, each = loop.figures(topic)
        trend = self._trends.setdefault(topic, deque(maxlen=TREND))
        if self._trend_due:
            trend.append(each)
        shown = TopicGlance(topic, loop.mode(topic).value, rate, between, each, tuple(trend))
        return LoopGlance(NAMES[loop.facts.decider], loop.act, shown, tuple(sorted(loop.status)), loop.page)

    def _rate(self, name: str, what: str, now: float, count: int) -> float:
        return self._meters.setdefault((name, what), _Meter()).rate(now, count)

    def _brokers(self, now: float) -> list[BrokerGlance]:
        run, recorder = self._run, self._run.recorder
        glances = []
        for broker in run.scene.brokers:
            name = broker.name
            received, sent = recorder.received.get(name, 0), recorder.sent.get(name, 0)
            glances.append(
                BrokerGlance(
                    name=name,
                    cluster=broker.cluster,
                    up=run.is_up(broker),
                    clients=run.stage.clients[name],
                    received=received,
                    sent=sent,
                    received_rate=self._rate(name, "received", now, received),
                    sent_rate=self._rate(name, "sent", now, sent),
                )
            )
        return glances

    def _tally(self, name: str, tally: Tally, now: float) -> TallyGlance:
        delivered_rate = self._rate(name, "delivered", now, tally.delivered)
        trend = self._trends.setdefault(name, deque(maxlen=TREND))
        if self._trend_due:
            trend.append(delivered_rate)
        recent = sorted(tally.latencies.recent)
        return TallyGlance(
            name=name,
            published=tally.published,
            expected=tally.expected,
            delivered=tally.delivered,
            wrong=tally.wrong,
            published_rate=self._rate(name, "published", now, tally.published),
            delivered_rate=delivered_rate,
            p50=percentile(recent, 50),
            p99=percentile(recent, 99),
            trend=tuple(trend),
        )

    def _subscribers(self) -> list[SubscriberGlance]:
        glances = []
        nothing = Tally()
        for device in self._run.scene.subscribers:
            tally = self._run.recorder.subscribers.get(device.name)
            glances.append(
                SubscriberGlance(
                    name=device.name,
                    broker=device.broker.name,
                    protocol=device.protocol,
                    qos=device.qos,
                    filters=" ".join(device.filters),
                    subscribed=tally is not None,
                    expected=(tally or nothing).expected,
                    delivered=(tally or nothing).delivered,
                    wrong=(tally or nothing).wrong,
                )
            )
        return glances
