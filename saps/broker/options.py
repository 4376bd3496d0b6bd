"""The optional parts of a broker: upstream, OFM, policies, priorities, statistics, storage and tracing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from saps.broker.storage import Testimony, keep_missed, open_store
from saps.config import BrokerSettings, SettingError
from saps.frontend.web.mesh.status import STATUS, StatusAgent
from saps.identity.plain import say_plain
from saps.messages import Message
from saps.overlay.node import OverlayNode
from saps.overlay.retained.store import TOPICS
from saps.policy.files_io import PolicyFiles
from saps.policy.model import Policy
from saps.routing.batch import Batch
from saps.routing.hub import Hub
from saps.routing.priority import Priorities
from saps.routing.reserved import COUNTS
from saps.routing.retained import CAPACITY
from saps.storage.driver.mesh import restore_retained
from saps.storage.driver.store import Store

logger = logging.getLogger(__name__)

LOOK = 60.0
"""Interval between two checks whether retained messages were left out, in seconds."""

if TYPE_CHECKING:
    from saps.agents.live_io import LiveOfm
    from saps.broker.parts import Parts
    from saps.broker.tracing import LiveTracing
    from saps.frontend.upstream.bridge_io import Upstream
    from saps.statistics.files_io import StatisticsFiles


class Options:
    """The optional parts of one broker, made in the order of its start: `connect`, `add`, `begin`. The broker stops and
    closes each part itself at its time; `end` runs `ends`."""

    def __init__(self, broker: Parts) -> None:
        """Raises `SettingError` if tracing is wanted and its libraries are not installed."""
        self._broker = broker
        self.tracing = _tracing(broker.settings)
        self.upstream: Upstream | None = None
        self.ofm: LiveOfm | None = None
        self.statistics: StatisticsFiles | None = None
        self.store: Store | None = None
        """The durable storage; None without it, even if sessions are copied to other brokers."""
        self.policy: PolicyFiles | None = None
        self.ends: list[Callable[[], object]] = []
        """Actions that end tasks and timers beside the parts; `end` runs them."""

    def connect(self) -> None:
        """Make the bridge to an existing broker, if one is set. Raises `SettingError` if its library is missing."""
        if self._broker.settings.upstream.url:
            self.upstream = _upstream(self._broker)

    def add(self, node: OverlayNode, *, begins: bool) -> None:
        """Make the other optional parts that the settings ask for. `begins` says whether this broker begins the mesh.

        Raises `SettingError` if a file or the storage cannot be used, or a library is missing."""
        settings = self._broker.settings
        if settings.ofm.listen:
            from saps.agents.live_io import LiveOfm  # here: most brokers need none of it

            self.ofm = LiveOfm(settings.ofm, self._broker.mesh.datagrams)
            self.ofm.attach(node, self._broker.agents)
        if settings.policy.file:
            self.policy = PolicyFiles("policy.file", settings.policy.file, partial(self._obey, node))
        if settings.priority.topics:
            self._prioritise(node, settings.priority.priorities())
        if settings.monitoring.directory or settings.monitoring.publish:
            self.statistics = _statistics(self._broker, node)
        if settings.storage.durable or settings.session.copies > 1:
            self._broker.server.store = open_store(self._broker, with_wills=begins)
            self.store = self._broker.server.store if settings.storage.durable else None
        keep_missed(self._broker)

    def begin(self, node: OverlayNode) -> None:
        """Begin the parts that need the mesh, which has been joined."""
        broker = self._broker
        if self.store is not None:
            broker.mesh.act(partial(restore_retained, self.store, node))
            testimony = Testimony(broker, self.store)
            testimony.start()
            self.ends.append(testimony.stop)
        if self.upstream is not None:
            self.upstream.start()
        if self.ofm is not None:
            broker.mesh.act(self.ofm.agent.start)
        watch_retained(broker.hub, node)
        status = StatusAgent(broker.settings.name, broker.watch, monotonic, lambda: broker.hub.statistics)
        broker.agents.host(STATUS, status)
        if self.statistics is not None:
            from saps.statistics.agent import MonitorAgent  # here: most brokers need none of it

            files = self.statistics
            files.start()
            broker.mesh.act(lambda: broker.agents.register("monitor", MonitorAgent(lambda: files.latest)))
        if broker.identity is not None:
            watching = asyncio.create_task(broker.identity.watch(broker.links.review))
            self.ends.append(watching.cancel)
        else:
            say_plain(broker.settings)

    def _obey(self, node: OverlayNode, policy: Policy) -> None:
        """Apply a policy to the publications that leave this broker, and to its own subscribers."""
        me = self._broker.ref
        self._broker.hub.routes.obey(lambda topic: policy.verdict(topic).receives(me))
        self._broker.mesh.act(partial(node.mesh.obey, policy))

    def _prioritise(self, node: OverlayNode, priorities: Priorities) -> None:
        """Give priority topics lanes of their own. A client that publishes only to them is never held back."""
        node.rendezvous.ways.prioritise(priorities.urgent)
        self._broker.hub.priorities = priorities
        if self.ofm is not None:
            self.ofm.datapath.mark = lambda topic: priorities.dscp if priorities.urgent(topic) else 0

    def end(self) -> None:
        """Run all `ends`."""
        for end in self.ends:
            end()


def watch_retained(hub: Hub, node: OverlayNode) -> None:
    """Log, once in `LOOK` seconds at most, that retained messages were not kept."""
    told = 0

    def look() -> None:
        nonlocal told
        here, mesh = hub.retained.refused, node.retained.store.refused
        if here + mesh > told:
            told = here + mesh
            logger.warning(
                "too many retained messages: %d left out so far of those for new subscribers here, of at most %d; "
                "%d of those kept here for the mesh, of at most %d in each partition",
                here, CAPACITY, mesh, TOPICS,
            )  # fmt: skip

    node.port.timers.every(LOOK, look)


def _tracing(settings: BrokerSettings) -> LiveTracing | None:
    """Make the tracing, if the settings ask for it. Raises `SettingError` if its libraries are missing."""
    if not settings.tracing.endpoint:
        return None
    from saps.broker.tracing import LiveTracing  # here: without traces none of it is loaded

    return LiveTracing(settings)


def _statistics(broker: Parts, node: OverlayNode) -> StatisticsFiles:
    """Begin to count topics at a broker, and make the files of the counts. Raises `SettingError` without pyarrow."""
    from saps.statistics.files_io import StatisticsFiles  # here: most brokers need none of it

    settings, streams = broker.settings.monitoring, node.rendezvous.publishers.streams

    def reaches(topic: str) -> int:
        stream = streams.get(topic)
        return len(stream.members or ()) if stream is not None else 0

    def level(topic: str) -> int:
        return priorities.level(topic) or 0

    priorities = broker.settings.priority.priorities()
    counts = broker.hub.count(settings.topics)
    node.delivery.multicast.count(counts)
    me = (broker.ref.name, broker.ref.incarnation, broker.ref.cluster)
    directory = Path(settings.directory) if settings.directory else None

    def publish(payload: bytes) -> None:
        broker.hub.publish(Batch.of(Message(COUNTS, payload, 1)))

    try:
        files = StatisticsFiles(
            counts, directory, settings.interval, settings.keep, me, reaches, level,
            publish=publish if settings.publish else None,
        )  # fmt: skip
    except ImportError:
        name = "directory" if settings.directory else "publish"
        raise SettingError(f"monitoring.{name}", "needs pyarrow: install saps[monitoring]") from None
    return files


def _upstream(broker: Parts) -> Upstream:
    """Make the bridge to an existing broker. Raises `SettingError` if its library is missing."""
    try:
        from saps.frontend.upstream.bridge_io import Upstream  # here: most brokers need none of its libraries
    except ImportError:
        raise SettingError("upstream.url", "needs aiomqtt: install saps[upstream]") from None
    return Upstream(broker.hub, broker.settings.upstream, broker.settings.name, partial(broker.hold, "upstream"))
