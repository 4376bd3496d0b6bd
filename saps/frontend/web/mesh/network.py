"""Reads the OpenFlow network from the controller, and the decisions from OFGate, on request only.

Rates are differences of counters between two requests: of ports for the load of links, of groups for that of trees.
"""

from __future__ import annotations

import asyncio
import builtins
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

import aiohttp
import msgspec

from saps.frontend.web.http.problems import ProblemError
from saps.frontend.web.mesh.report import AddressTrace, Receiver, Tree
from saps.ofm.network.topology import Topology
from saps.ofm.northbound.driver.client import NorthboundError, UnreachableError
from saps.ofm.northbound.schema import DecodedAddress, OfmState, OfmStats, PortTraffic, Status, SwitchBudget, WayLink
from saps.ofm.stateless.address import Receivers

FRESH = 1.0
"""Seconds for which answers of the controller and of OFGate are cached."""
COUNTED = 64
"""Most trees whose counters are read each time. Reading the counters of a tree takes a query to each of its switches.
"""
AT_ONCE = 8
"""Most concurrent queries to the controller."""
HISTORY = 500
"""Most changes of decisions remembered."""


class Controller(Protocol):
    """The client of the controller (`saps.ofm.northbound.driver.client.Client`)."""

    async def list(self) -> list[OfmState]: ...
    async def topology(self) -> Topology: ...
    async def budgets(self) -> builtins.list[SwitchBudget]: ...
    async def stats(self, topic: str) -> OfmStats: ...
    async def ports(self) -> builtins.list[PortTraffic]: ...
    async def decoded(self, named: Receivers, sender: str | None) -> DecodedAddress: ...
    async def close(self) -> None: ...


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """One switch, and OFM's use of its tables."""

    dpid: str
    """Datapath id."""
    connected: bool
    """Whether the switch is connected to the controller."""
    entries: int
    """Flow entries in use."""
    entries_budget: int
    """Most flow entries that OFM may use."""
    buckets: int
    """Group buckets in use."""
    buckets_budget: int
    """Most group buckets that OFM may use."""


class Link(WayLink, frozen=True, kw_only=True):
    """A link between two switches, and what passes it."""

    trees: int
    """Trees that pass both switches, among those whose counters were read."""
    load: float | None
    """Bytes a second of all traffic in the busier direction; None if not known (yet)."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The switch and port at which a broker is attached; None if not known."""

    address: str
    """The broker's address, as in `Broker.ofm`."""
    dpid: str | None
    port: int | None


class TreeRow(msgspec.Struct, frozen=True, kw_only=True):
    """The OpenFlow tree of a topic."""

    topic: str
    status: str
    """Value of `saps.ofm.northbound.schema.Status`."""
    address: str | None
    """The tree's multicast address."""
    reason: str | None
    """The reason why the tree waits or is refused."""
    brokers: list[str]
    """Addresses of the connected brokers, as in `Broker.ofm`."""
    switches: list[str]
    """Datapath ids of the switches that the tree passes; only for trees whose counters have been read."""
    rate: float | None
    """Packets a second at the busiest switch; None if not known (yet)."""


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """The OpenFlow network."""

    configured: bool
    """Whether there is a controller (`web.controller`)."""
    fault: str | None = None
    """The reason why the last request to the controller failed; the rest is then older."""
    switches: list[Switch] = []
    links: list[Link] = []
    places: list[Place] = []
    trees: list[TreeRow] = []


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that came or went between two requests."""

    at: float
    """Time at which the change was noticed, in seconds since 1970."""
    action: str
    """``build``, ``drop`` or ``revoke``."""
    topic: str
    reason: str


class Decisions(msgspec.Struct, frozen=True, kw_only=True):
    """The decisions about trees for topics, with their reasons."""

    configured: bool
    """Whether there is an OFGate (`web.ofgate`)."""
    fault: str | None = None
    """The reason why the last request to OFGate failed; the rest is then older."""
    epoch: int | None = None
    """Epoch of the last table of decisions."""
    trees: list[dict[str, Any]] = []
    """Topics that shall have trees, each with saving, cost, since, reason, and its predicted and actual saving so far
    in bytes."""
    revoked: list[dict[str, Any]] = []
    """Topics whose trees the last table revokes because they kept missing their predictions, each with the reason."""
    job: dict[str, float] | None = None
    """State of the job that decides (`saps monitor`), as last reported to OFGate."""
    topics: list[dict[str, Any]] = []
    """State of the topics at OFGate."""
    history: list[Change] = []
    """Changes noticed here, newest first."""


class NetworkView:
    """Reads the OpenFlow network from the controller."""

    def __init__(self, controller: Controller | None) -> None:
        self._controller = controller
        self._last = Network(configured=controller is not None)
        self._until = 0.0
        self._asking: asyncio.Task[Network] | None = None
        self._counts: dict[str, tuple[float, dict[str, tuple[int, int]]]] = {}
        """Topic -> time of the last count, and packets and bytes at each switch."""
        self._rates: dict[str, dict[str, tuple[float, float]]] = {}
        """Topic -> packets and bytes a second at each switch."""
        self._sent: dict[tuple[str, int], tuple[float, int]] = {}
        """Port -> time of the last count, and bytes sent so far."""
        self._loads: dict[tuple[str, int], float] = {}
        """Port -> bytes sent a second."""

    def trees(self) -> dict[str, Tree] | None:
        """Return the trees of the last answer by topic, or None without a controller."""
        if self._controller is None:
            return None
        return {row.topic: Tree(status=row.status, address=row.address, reason=row.reason) for row in self._last.trees}

    async def now(self) -> Network:
        """Return the network, at most `FRESH` seconds old; older, with its `fault`, if the controller fails."""
        if self._controller is None or time.monotonic() < self._until:
            return self._last
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask(self._controller))
        return await asyncio.shield(self._asking)

    async def decoded(self, named: Receivers, brokers: Mapping[str, str], source: str | None) -> AddressTrace:
        """Return what an address of stateless delivery means. `brokers`: addresses by name, as in `Broker.ofm`;
        `source`: name of the sending broker. Raises `ProblemError` (404) if there is no such broker or no controller,
        (503) if the controller does not answer."""
        if self._controller is None:
            raise ProblemError(404, "No controller", "this broker knows no OpenFlow controller (web.controller)")
        if source is not None and source not in brokers:
            raise ProblemError(404, "No such broker", f"{source!r} does not take part in OFM", field="from")
        try:
            found = await self._controller.decoded(
                named, None if source is None else brokers[source].rpartition(":")[0]
            )
        except NorthboundError as error:
            raise ProblemError(error.problem.status, error.problem.title, error.problem.detail) from None
        except UnreachableError as error:
            raise ProblemError(503, "No answer", f"the controller cannot be asked: {error}") from None
        names = {address: name for name, address in brokers.items()}
        receivers: list[Receiver] = []
        for each in found.receivers:
            address = None if each.broker is None else each.broker.endpoint
            name = None if address is None else names.get(address)
            receivers.append(
                Receiver(position=each.position, broker=name, address=address, dpid=each.dpid, port=each.port)
            )
        return AddressTrace(
            address=found.address,
            set=found.set,
            plane=found.plane,
            working=found.working,
            source=source,
            receivers=receivers,
            links=found.links,
        )

    async def close(self) -> None:
        """Cancel the request in progress, and close the client of the controller."""
        if self._asking is not None:
            self._asking.cancel()
        if self._controller is not None:
            await self._controller.close()

    async def _ask(self, controller: Controller) -> Network:
        try:
            states, topology, budgets = await asyncio.gather(
                controller.list(), controller.topology(), controller.budgets()
            )
            busy = [s.topic for s in states if s.status in (Status.CONSTRUCTED, Status.UPDATING)]
            await self._count(controller, busy[:COUNTED])
            await self._weigh(controller)
            self._last = self._put_together(states, topology, budgets)
        except (NorthboundError, UnreachableError) as error:
            self._last = msgspec.structs.replace(self._last, fault=str(error))
        self._until = time.monotonic() + FRESH
        return self._last

    async def _count(self, controller: Controller, topics: list[str]) -> None:
        """Read the counters of these topics' trees, compute their rates, and forget other topics."""
        room = asyncio.Semaphore(AT_ONCE)

        async def one(topic: str) -> None:
            async with room:
                try:
                    stats = await controller.stats(topic)
                except (NorthboundError, UnreachableError):
                    return
            now = time.monotonic()
            counted = {count.dpid: (count.packets, count.bytes) for count in stats.switches}
            before = self._counts.get(topic)
            self._counts[topic] = now, counted
            if before is not None and now > before[0]:
                elapsed = now - before[0]
                self._rates[topic] = {
                    dpid: (max(0, packets - p) / elapsed, max(0, size - b) / elapsed)
                    for dpid, (packets, size) in counted.items()
                    for p, b in [before[1].get(dpid, (packets, size))]
                }

        await asyncio.gather(*[one(topic) for topic in topics])
        for gone in self._counts.keys() - set(topics):
            del self._counts[gone]
            self._rates.pop(gone, None)

    async def _weigh(self, controller: Controller) -> None:
        """Read the ports' counters and compute their loads. With a controller without such counters, loads stay
        unknown."""
        try:
            ports = await controller.ports()
        except NorthboundError:
            ports = []
        now = time.monotonic()
        sent = {(traffic.dpid, traffic.port): (now, traffic.tx_bytes) for traffic in ports}
        self._loads = {
            port: max(0, size - self._sent[port][1]) / (now - self._sent[port][0])
            for port, (_, size) in sent.items()
            if port in self._sent and now > self._sent[port][0]
        }
        self._sent = sent

    def _put_together(self, states: list[OfmState], topology: Topology, budgets: list[SwitchBudget]) -> Network:
        picture = topology.to_json()
        at = {host["mac"]: host["at"] for host in picture["hosts"]}
        places = []
        for broker in picture["brokers"]:
            place = at.get(broker["mac"], {})
            address = f"{broker['ip']}:{broker['port']}"
            places.append(Place(address=address, dpid=place.get("dpid"), port=place.get("port")))
        switches = [
            Switch(
                dpid=budget.dpid,
                connected=budget.connected,
                entries=budget.entries.used,
                entries_budget=budget.entries.budget,
                buckets=budget.buckets.used,
                buckets_budget=budget.buckets.budget,
            )
            for budget in budgets
        ]
        links = [self._link(link["a"], link["b"]) for link in picture["links"]]
        trees = [self._tree(state) for state in states]
        return Network(configured=True, switches=switches, links=links, places=places, trees=trees)

    def _link(self, a: dict[str, Any], b: dict[str, Any]) -> Link:
        ends = a["dpid"], b["dpid"]
        trees = sum(all(dpid in counted for dpid in ends) for _, counted in self._counts.values())
        loads = [self._loads[end] for end in ((a["dpid"], a["port"]), (b["dpid"], b["port"])) if end in self._loads]
        load = round(max(loads), 1) if loads else None
        return Link(a=ends[0], a_port=a["port"], b=ends[1], b_port=b["port"], trees=trees, load=load)

    def _tree(self, state: OfmState) -> TreeRow:
        counted, rates = self._counts.get(state.topic), self._rates.get(state.topic)
        return TreeRow(
            topic=state.topic,
            status=state.status.value,
            address=state.address,
            reason=state.reason,
            brokers=[broker.endpoint for broker in state.brokers],
            switches=sorted(counted[1]) if counted is not None else [],
            rate=round(max(packets for packets, _ in rates.values()), 3) if rates else None,
        )


class DecisionView:
    """Reads the decisions from OFGate."""

    def __init__(self, url: str, token: str = "") -> None:
        """`url`: OFGate's URL for decisions (``saps ofgate --decisions``); empty without an OFGate. `token`: bearer
        token; may be empty."""
        self._url = url.rstrip("/")
        self._token = token
        self._history: deque[Change] = deque(maxlen=HISTORY)
        self._last = Decisions(configured=bool(url))
        self._answered = False
        self._until = 0.0
        self._session: aiohttp.ClientSession | None = None

    async def now(self) -> Decisions:
        """Return the decisions, at most `FRESH` seconds old; older, with their `fault`, if OFGate fails."""
        if not self._url or time.monotonic() < self._until:
            return self._last
        self._until = time.monotonic() + FRESH
        try:
            table, gate = await asyncio.gather(self._get("/v1/decisions"), self._get("/v1/topics"))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._last = msgspec.structs.replace(self._last, fault=f"{self._url}: {error or type(error).__name__}")
            return self._last
        trees, revoked = list((table or {}).get("trees", [])), list((table or {}).get("revoked", []))
        self._note(trees, {str(each["topic"]): str(each["reason"]) for each in revoked})
        self._last = Decisions(
            configured=True,
            epoch=(table or {}).get("epoch"),
            trees=trees,
            revoked=revoked,
            job=(table or {}).get("job"),
            topics=list((gate or {}).get("topics", [])),
            history=list(self._history),
        )
        return self._last

    async def close(self) -> None:
        """Close the HTTP session."""
        if self._session is not None:
            await self._session.close()

    def _note(self, trees: list[dict[str, Any]], revoked: Mapping[str, str]) -> None:
        """Add the decisions that have come and gone since the last answer to the history; the first answer adds none.
        `revoked`: reason by topic."""
        if not self._answered:
            self._answered = True
            return
        now = round(time.time(), 3)
        before = {str(tree["topic"]) for tree in self._last.trees}
        for tree in trees:
            if tree["topic"] not in before:
                reason = str(tree.get("reason", ""))
                self._history.appendleft(Change(at=now, action="build", topic=tree["topic"], reason=reason))
        for topic in sorted(before - {tree["topic"] for tree in trees}):
            action, reason = "revoke" if topic in revoked else "drop", revoked.get(topic, "not in the last table")
            self._history.appendleft(Change(at=now, action=action, topic=topic, reason=reason))

    async def _get(self, path: str) -> Any:
        if self._session is None:
            headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
            self._session = aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=10))
        async with self._session.get(self._url + path) as response:
            if response.status != 200:
                raise ValueError(f"status {response.status}")
            return msgspec.json.decode(await response.read())
