"""A controller machine over software switches: what it wants is done change by change, in any order among switches."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from msgspec.structs import replace

from saps.ofm.controller.admission import Rules
from saps.ofm.controller.controller import Controller
from saps.ofm.controller.events import (
    Announce,
    Applied,
    Apply,
    Effect,
    Event,
    Failed,
    HostMoved,
    Intended,
    Intent,
    LinkChanged,
    PortChanged,
    Read,
    Settled,
    SwitchDown,
    SwitchUp,
    TablesRead,
    Tick,
    Told,
)
from saps.ofm.controller.record import Record
from saps.ofm.controller.saved import restore
from saps.ofm.flows.budget import Budget
from saps.ofm.flows.plan import BROKER, CLOSED, COOKIE, Loopback
from saps.ofm.flows.tables import Change, PutFlow, Room
from saps.ofm.network.topology import BrokerAddress, Link, Port
from saps.ofm.northbound.schema import OfmState, Status
from saps.ofm.openflow.base import BASE_FLOWS
from saps.ofm.switch.packets import Packet
from saps.ofm.switch.switch import RefusedError
from tests.ofm.fabric import Fabric, NormalOf
from tests.ofm.networks import Network, came_out, received_by, sent_by

LOOPBACK = Loopback("10.0.255.254", "02:ff:00:00:00:01")
RANGE = "239.77.0.0/24:5000-5003"


AMPLE = 1_000_000
"""A limit that no test comes to."""


def rules(
    entries: int = 1000,
    buckets: int = 10_000,
    limit: int = 0,
    *,
    spread: bool = False,
    failover: bool = False,
    spanning_tree: bool = False,
) -> Rules:
    return Rules(
        RANGE,
        LOOPBACK,
        Budget(entries, buckets),
        limit=limit,
        spread=spread,
        failover=failover,
        spanning_tree=spanning_tree,
    )


def unmarked(copies: Counter[tuple[Port, Packet]]) -> Counter[tuple[Port, Packet]]:
    """The same copies without priority: while that changes, they may have the one or the other."""
    return Counter({(at, replace(packet, ip_dscp=0)): count for (at, packet), count in copies.items()})


class World:
    """The network as it is, and a controller that hears of it."""

    def __init__(
        self,
        network: Network,
        wanted: Rules | None = None,
        capacity: int | None = None,
        most_meters: int | None = None,
        normal: NormalOf = lambda dpid: lambda port, packet: (),
    ) -> None:
        self.network = network
        self.truth = network.topology
        self.rules = wanted or rules()
        self.fabric = Fabric(self.truth, capacity=capacity, most_meters=most_meters, normal=normal)
        self.places = {broker: network.place(broker) for broker in network.brokers}
        self.all_links = list(self.truth.links)
        self.todo: dict[int, deque[Change] | None] = {}
        """Per connected switch what is still to be done: changes, or None: to be read."""
        self.connected: set[int] = set()
        self.table_counts: dict[int, int] = {}
        """Number of flow tables of switches that have few."""
        self.announced: list[tuple[str, Port]] = []
        """Hosts that were to be announced, with their ports."""
        self.applied = 0
        """Changes made at switches."""
        self.start()

    # -- the controller's life

    def start(self, state: bytes | None = None) -> None:
        """A fresh controller, which knows nothing but the state given; no switch has connected yet."""
        self.machine = self.controller()
        self.told: dict[str, OfmState] = {}
        self.todo, self.connected = {}, set()
        if state is not None:
            restore(self.machine, state)

    def controller(self) -> Controller:
        """A new machine."""
        return Controller(self.rules)

    def links_of(self, topic: str) -> frozenset[Link]:
        """Of the topic's tree."""
        plan = self.machine.records[topic].plan
        assert plan is not None
        return plan.tree.links

    def hear(self, event: Event) -> None:
        for effect in self.machine.handle(event):
            self._take(effect)

    def _take(self, effect: Effect) -> None:
        match effect:
            case Told(state):
                before = self.told.get(state.topic)
                assert before is None or state.version > before.version
                assert state != before
                self.told[state.topic] = state
            case Read(dpid) if dpid in self.connected:
                assert dpid not in self.todo, "one thing at a time"
                self.todo[dpid] = None
            case Apply(dpid, changes):
                assert dpid in self.connected
                assert dpid not in self.todo, "one thing at a time"
                self.todo[dpid] = deque(changes)
            case Announce(host, at):
                self.announced.append((host, at))

    def step(self, dpid: int) -> None:
        """One change at a switch, or one answer of it."""
        work = self.todo[dpid]
        switch = self.fabric.switches[dpid]
        if work is None:
            del self.todo[dpid]
            self.hear(TablesRead(dpid, switch.tables))
        elif work:
            change = work.popleft()
            self.applied += 1
            try:
                switch.apply([change])
            except RefusedError as error:
                del self.todo[dpid]
                short = Room.METERS if str(error).startswith("OFPMMFC_") else None
                if str(error) == "OFPFMFC_TABLE_FULL":
                    short = Room.ENTRIES
                self.hear(Failed(dpid, f"switch {dpid} refuses it: {error}", change, short))
        else:
            del self.todo[dpid]
            self.hear(Applied(dpid))

    def run(self) -> None:
        """Until nothing is to be done."""
        for _ in range(100_000):
            if not self.todo:
                return
            self.step(min(self.todo))
        raise AssertionError("it never ends")

    # -- what happens

    def connect(self, dpid: int) -> None:
        """A switch connects, and its ports, links and hosts come to be known."""
        self.connected.add(dpid)
        self.fabric.switches[dpid].apply([PutFlow(flow) for flow in BASE_FLOWS])
        picture = self.truth.to_json()
        [ports] = [switch["ports"] for switch in picture["switches"] if switch["dpid"] == f"{dpid:016x}"]
        tables = self.table_counts.get(dpid, 254)
        self.hear(SwitchUp(dpid, {port["port"]: port["up"] for port in ports}, tables=tables))

    def disconnect(self, dpid: int) -> None:
        """A switch's connection ends; what it was told is done as far as it is done."""
        self.connected.discard(dpid)
        self.todo.pop(dpid, None)
        self.hear(SwitchDown(dpid))

    def discover(self) -> list[Event]:
        """All there is to be found."""
        links: list[Event] = [LinkChanged(link, up=True) for link in self.truth.links]
        return [*links, *(HostMoved(broker.mac, place) for broker, place in self.places.items())]

    def appear(self, events: Iterable[Event] | None = None) -> None:
        """Everything connects and is discovered."""
        for dpid in self.truth.switches:
            self.connect(dpid)
        for event in self.discover() if events is None else events:
            self.hear(event)

    def tick(self, now: float) -> None:
        """It is this time now."""
        self.hear(Tick(now))

    def settle(self) -> None:
        self.hear(Settled(set(self.connected), self.truth.links))

    def set_link(self, link: Link, up: bool) -> None:
        """A link fails at both ends, or works again."""
        for end in link:
            self.truth.port_status(*end, up=up)
            self.hear(PortChanged(end, up))

    def move(self, mac: str, to: Port) -> None:
        """A host is at another port from now on, and seen there."""
        for broker in [broker for broker in self.places if broker.mac == mac]:
            self.truth.attach(broker, *to)
            self.places[broker] = to
        self.hear(HostMoved(mac, to))

    def intent(self, topic: str, brokers: Iterable[BrokerAddress], senders: Iterable[BrokerAddress] = ()) -> None:
        chosen = frozenset(brokers)
        self.hear(Intended(topic, Intent(chosen, frozenset(senders) - chosen)))

    def forget(self, topic: str) -> None:
        self.hear(Intended(topic, None))

    # -- what must hold

    def delivered(self, topic: str, sender: BrokerAddress) -> Counter[tuple[Port, Packet]]:
        """What becomes of a packet of this sender to the topic's address; fails if anything arrives twice."""
        record = self.machine.records[topic]
        assert record.plan is not None
        came = came_out(self.fabric.send(self.places[sender], sent_by(sender, record.plan.ofm)))
        assert set(came.values()) <= {1}, "a packet arrived twice"
        return came

    def check_truth(self) -> None:
        """Nothing ever arrives twice. Brokers told to be connected hear each other and themselves, and in an OFM told
        to be constructed these are all."""
        for topic, record in self.machine.records.items():
            state = record.state
            for sender in record.plan.tree.brokers if record.plan is not None else ():
                came = self.delivered(topic, sender)
                if sender in state.brokers:
                    assert unmarked(self.expected(record, sender, state.brokers)) <= unmarked(came)
                if state.status is Status.CONSTRUCTED:
                    assert record.intent is not None
                    assert set(state.brokers) == record.intent.members
                    assert self.expected(record, sender, state.brokers) == came

    def expected(
        self, record: Record, sender: BrokerAddress, brokers: Iterable[BrokerAddress]
    ) -> Counter[tuple[Port, Packet]]:
        """What these brokers must get of a packet of one of them."""
        assert record.plan is not None
        packet = sent_by(sender, record.plan.ofm)
        return Counter(
            (
                self.places[other],
                received_by(other, packet, record.plan.ofm, returned=self.places[other] == self.places[sender]),
            )
            for other in brokers
            if other == sender or other not in record.plan.silent
        )

    def check_limits(self) -> None:
        """Where packets enter a tree there is a meter, if there is a limit and the switch has room for meters, and
        no other is left when nothing is to be done."""
        for dpid, switch in self.fabric.switches.items():
            tables = switch.tables
            entries = [flow for flow in tables.flows.values() if flow.priority == BROKER]
            if switch.meters.most is None and self.rules.limit:
                assert all(flow.meter in tables.meters for flow in entries)
            if not self.todo and dpid in self.connected and self.machine.network.settled:
                assert {flow.meter for flow in entries} - {None} == tables.meters.keys()

    def check_budget(self) -> None:
        """No switch holds more than its budget, beside what is there without any OFM."""
        for dpid, switch in self.fabric.switches.items():
            tables = switch.tables
            base = len(BASE_FLOWS) + 1 + sum(flow.cookie == COOKIE | CLOSED for flow in tables.flows.values())
            budget = self.machine.ledger.budget(dpid)
            assert tables.entries - base <= budget.entries
            assert tables.buckets <= budget.buckets
