"""The process of `saps ofgate`: a broker without clients, the OFGate agent on it, and orders on standard input."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from saps.agents.api import Answers
from saps.agents.live_io import modes_of
from saps.agents.ofgate.northbound_io import LiveController
from saps.agents.ofgate.ofgate import OFGate
from saps.agents.ofgate.program.decisions import DecisionService
from saps.agents.ofgate.record import Topic
from saps.agents.switchover import OFM, Member, TopicStatus
from saps.broker.broker import Broker
from saps.config import Address, BrokerSettings
from saps.config.ofgate_io import GatewaySettings, OfgateSettings
from saps.config.sources_io import token
from saps.frontend.web.mesh.status import STATUS
from saps.ofm.northbound.driver.pair import northbound
from saps.ofm.northbound.schema import Demand
from saps.runtime import process
from saps.runtime.logs import configure_logging

logger = logging.getLogger(__name__)

ORDERS = "exploit TOPIC, release TOPIC, renew TOPIC, status, brokers"
NOT_LEADING = "this OFGate does not lead; the order is carried out when it does"


class _Member(Broker):
    """A broker without clients."""

    has_sessions = False


class Gateway:
    """OFGate on a broker of its own."""

    def __init__(
        self, settings: BrokerSettings, controllers: Sequence[str], token: str | None = None, lease: float = 10.0
    ) -> None:
        """`controllers` are the northbound addresses of one controller or of a pair. `lease` is in seconds (see
        `OFGate`)."""
        self.broker = _Member(settings)
        self._settings = settings
        self._urls = tuple(controllers)
        self._token = token
        self._lease = lease
        self.pinned: set[str] = set()
        """Topics that the operator has ordered. Their trees are built as soon as possible, and no table of decisions
        drops them."""
        self.demand: Callable[[str], Demand | None] = lambda topic: None
        """Returns the expected demand of a topic according to the decisions."""
        self.leads = asyncio.Event()
        """Set once this OFGate has become the leader."""

    async def start(self) -> None:
        """Join the mesh and register OFGate there. Raises `SettingError` as `Broker.start`."""
        await self.broker.start()
        self.broker.agents.dismiss(STATUS)  # it is in the mesh, but nobody's broker: not one of those that are counted
        mesh = self.broker.mesh
        identity = self.broker.identity
        self.northbound = northbound(self._urls, self._token, identity.https if identity is not None else None)
        self._controller = LiveController(
            self.northbound, mesh.act, self._settings.priority.priorities().level, self._expected
        )
        self.gate = OFGate(
            f"ofgate@{self._settings.name}",
            mesh.node.port,
            self.broker.agents,
            self._controller,
            modes_of(self._settings.ofm),
            mesh.node.delivery.broadcaster.tell,
            secrets.token_bytes,
            lease=self._lease,
            on_status=_log,
            on_lead=self._lead,
        )
        self.gate.obey(self._permits)
        started = asyncio.Event()
        mesh.act(lambda: self.gate.start(started.set))
        await started.wait()

    def _expected(self, topic: str) -> Demand | None:
        return self.demand(topic)

    def _permits(self, topic: str, member: Member) -> bool:
        files = self.broker.policy
        return files is None or files.policy.verdict(topic).receives(member.ref)

    def reload(self) -> None:
        """Read the policy files again (SIGHUP)."""
        self.broker.reload()
        self.broker.mesh.act(lambda: self.gate.obey(self._permits))

    def _lead(self) -> None:
        logger.info("%s leads", self.gate.name)
        self.leads.set()

    async def stop(self) -> None:
        """Leave the mesh in order."""
        self.broker.mesh.act(self.gate.stop)
        await self.broker.stop()
        await self._controller.close()

    async def exploit(self, topic: str) -> TopicStatus | None:
        """Exploit OFM for a topic (`OFGate.exploit`), and return the status."""
        answer: asyncio.Future[TopicStatus | None] = asyncio.get_running_loop().create_future()

        def done(status: TopicStatus | None) -> None:
            if not answer.done():
                answer.set_result(status)

        self.broker.mesh.act(lambda: self.gate.exploit(topic, done))
        return await answer

    async def brokers(self) -> list[Any]:
        """Return what became of each broker's publications and datagrams (`OfmAgent.describe`), sorted by name of
        broker."""
        gathered: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        self.broker.mesh.act(lambda: self.broker.agents.discovery_call(OFM, "describe", (), gathered.set_result))
        found = [described for _, described in (await gathered).of(dict[str, Any])]
        return sorted(found, key=lambda described: str(described.get("broker")))

    def release(self, topic: str) -> TopicStatus | None:
        """Give up the OFM of a topic (`OFGate.give_up`). Returns None if this OFGate does not lead."""
        answer: list[TopicStatus | None] = []
        self.broker.mesh.act(lambda: answer.append(self.gate.give_up(topic) if self.gate.leading else None))
        return answer[0]

    def renew(self, topic: str) -> TopicStatus | None:
        """Give the topic's tree a new key (`OFGate.renew`)."""
        answer: list[TopicStatus | None] = []
        self.broker.mesh.act(lambda: answer.append(self.gate.renew(topic)))
        return answer[0]

    async def order(self, line: str) -> Any:
        """Carry out one order from standard input, and return its answer."""
        verb, _, topic = line.strip().partition(" ")
        if verb == "exploit" and topic:
            self.pinned.add(topic)
            return {"topic": topic, "answer": await self.exploit(topic) or ["none", NOT_LEADING]}
        if verb == "release" and topic:
            self.pinned.discard(topic)
            return {"topic": topic, "answer": self.release(topic)}
        if verb == "renew" and topic:
            return {"topic": topic, "answer": self.renew(topic)}
        if verb == "status" and not topic:
            return self.gate.describe()
        if verb == "brokers" and not topic:
            return await self.brokers()
        return {"error": f"not an order: {line.strip()!r}; there are: {ORDERS}"}


def _log(topic: Topic) -> None:
    where = f" at {topic.tree.address}" if topic.tree is not None else ""
    why = f": {topic.reason}" if topic.reason is not None else ""
    logger.info("OFM of %s is %s%s%s", topic.name, topic.status.value, where, why)


def run(settings: GatewaySettings) -> int:
    """Run OFGate until SIGTERM or SIGINT, and return the exit status. Raises `SettingError` if OFGate cannot start."""
    configure_logging(settings.log_level)
    own = settings.ofgate
    gateway = Gateway(settings, own.controller, token("ofgate.token_file", own.token_file) or None, own.lease)
    return process.run(lambda stop: _serve(gateway, own, stop))


async def _serve(gateway: Gateway, settings: OfgateSettings, stop: asyncio.Event) -> int:
    if not await process.started(gateway.start(), stop):
        return 0
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, gateway.reload)
    gateway.pinned.update(settings.exploit)
    service = DecisionService(gateway, settings)
    await service.start()
    listen = settings.decisions
    door = f" decisions={Address(listen.host, service.port)}" if listen is not None and service.port else ""
    process.say(f"ready name={gateway.gate.name} overlay={gateway.broker.ref.address}{door}")
    orders = asyncio.ensure_future(_orders(gateway))
    await stop.wait()
    orders.cancel()
    logger.info("%s leaves", gateway.gate.name)
    await service.stop()
    await gateway.stop()
    return 0


async def _orders(gateway: Gateway) -> None:
    """Answer the orders on standard input, until its end."""
    async for line in process.orders():
        process.say(msgspec.json.encode(await gateway.order(line)).decode())
