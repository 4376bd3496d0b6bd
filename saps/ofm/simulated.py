"""OFM in the simulator: a network that copies datagrams along trees, and the controller that installs them.

A tree is the set of its brokers: what one sends reaches the others and comes back to it; a packet of stateless delivery
reaches the brokers of its bits. (That the switches' tables do
exactly this is shown with software switches and on Open vSwitch.) Loss, duplicates, disorder, slow
installation, a controller that crashes or forgets can be injected; everything random comes from the simulation's seed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv6Address

from msgspec.structs import replace as with_

from saps.agents.ofgate.ofgate import OFGate
from saps.agents.ofm import OfmAgent
from saps.agents.stateless import BY_TREES, Choice
from saps.agents.switchover import Modes
from saps.ofm.datapath.datagram import parse
from saps.ofm.datapath.datapath import Datapath
from saps.ofm.datapath.settings import DatapathSettings
from saps.ofm.keys.epochs import Keyring
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.schema import OfmRequest, OfmState, Status
from saps.ofm.stateless.address import EVERY_TOPIC, Receivers, read
from saps.ofm.stateless.tables import assign
from saps.simulator import SimBroker, Simulation


@dataclass
class OfmFaults:
    """What happens to datagrams and to changes of trees."""

    latency: tuple[float, float] = (0.0002, 0.002)
    """Least and greatest delay in seconds; each copy's is drawn anew, so copies overtake each other."""
    loss: float = 0.0
    """Probability that a copy is lost; the loopback packet is one."""
    duplicate: float = 0.0
    """Probability that a copy comes twice."""
    installation: tuple[float, float] = (0.002, 0.05)
    """Least and greatest time in seconds until the switches have taken a change in."""
    buffer: int | None = None
    """Copies under way to a broker beyond which more are lost; None: any number has room."""
    service: dict[str, float] = field(default_factory=dict)
    """Name of broker -> seconds that each copy takes it; the next one waits meanwhile, in its `buffer`."""
    deaf: set[str] = field(default_factory=set)
    """Names of brokers that no copy reaches."""
    broken: dict[int, set[str]] = field(default_factory=dict)
    """Plane -> names of brokers that it does not lead to, nor takes anything from."""


@dataclass(frozen=True)
class _Tree:
    brokers: frozenset[BrokerAddress]
    senders: frozenset[BrokerAddress]


@dataclass
class _Switches:
    """What the switches have in their tables."""

    trees: dict[str, _Tree] = field(default_factory=dict)
    """By address."""
    sets: tuple[tuple[BrokerAddress | None, ...], ...] = ()
    """Bits of stateless delivery."""


class _Transit:
    """Copies under way to brokers: lost, doubled, late, and one after the other at a broker that is slow."""

    def __init__(self, simulation: Simulation, faults: OfmFaults) -> None:
        self._simulation = simulation
        self._faults = faults
        self._under_way: Counter[str] = Counter()
        """Copies, by name of the broker they go to."""
        self._busy_until: dict[str, float] = {}

    def copy(self, broker: str, arrive: Callable[[], None]) -> None:
        """Sends a copy to the broker of this name: `arrive` runs there once, twice or never."""
        rng, faults = self._simulation.rng, self._faults
        if broker in faults.deaf or (faults.loss and rng.random() < faults.loss):
            return
        if faults.buffer is not None and self._under_way[broker] >= faults.buffer:
            return

        def arrived() -> None:
            self._under_way[broker] -= 1
            arrive()

        for _ in range(2 if faults.duplicate and rng.random() < faults.duplicate else 1):
            self._under_way[broker] += 1
            when = self._simulation.now + rng.uniform(*faults.latency)
            if (service := faults.service.get(broker)) is not None:
                when = self._busy_until[broker] = max(when, self._busy_until.get(broker, 0.0)) + service
            self._simulation.at(when, arrived)


class OfmNetwork:
    """Attach it to a simulation before brokers are added: each broker then has a data path and an OFM agent."""

    def __init__(
        self,
        simulation: Simulation,
        modes: Modes,
        faults: OfmFaults | None = None,
        settings: DatapathSettings | None = None,
        choice: Choice = BY_TREES,
    ) -> None:
        self.simulation = simulation
        self.modes = modes
        self.faults = faults or OfmFaults()
        self._of_brokers = settings, choice
        self.switches = _Switches()
        self.agents: dict[str, OfmAgent] = {}
        self.datapaths: dict[str, Datapath] = {}
        self.keyrings: dict[str, Keyring] = {}
        self.sent = 0
        """Datagrams that brokers have sent."""
        self.ring_split = 0
        """Copies that did not reach a member the sender counted on, because it was not in the tree: nothing but a fault
        that was injected may bring that about."""
        self.unreadable = 0
        """Copies that reached a member the sender counted on, which still wants them, and could not be opened there."""
        self.sides: dict[str, int] = {}
        """Name of broker -> part of the switches' network that it is in, 0 by default: copies stay inside."""
        self._transit = _Transit(simulation, self.faults)
        self._hosts: dict[str, BrokerAddress] = {}
        self._brokers: dict[BrokerAddress, SimBroker] = {}
        simulation.companions.append(self)

    @property
    def trees(self) -> dict[str, _Tree]:
        """By address, as the switches have them."""
        return self.switches.trees

    def joined(self, broker: SimBroker) -> None:
        """`saps.simulator.Companion`, as the next one."""
        self.agents[broker.name].start()

    def attach(self, broker: SimBroker) -> None:
        number = len(self._hosts) + 1
        mac = ":".join(f"{byte:02x}" for byte in (2, 0, 0, 0, *divmod(number, 256)))
        host = self._hosts.setdefault(broker.name, BrokerAddress(f"10.0.{number // 250}.{number % 250 + 1}", mac, 7400))
        self._brokers[host] = broker
        node = broker.node
        settings, choice = self._of_brokers
        keys = self.keyrings[broker.name] = Keyring(node.port.me)
        datapath = self.datapaths[broker.name] = Datapath(
            node.port,
            node.rendezvous.publishers,
            node.delivery.multicast,
            node.delivery.inbox,
            node.rendezvous.subscriptions.wants,
            lambda address, raw: self._transmit(host, address, raw),
            keys,
            settings,
        )
        node.delivery.multicast.tree_path = datapath
        self.agents[broker.name] = OfmAgent(
            node, broker.agents, datapath, keys, host, self.modes, self.simulation.rng, choice=choice
        )

    def ofgate(self, broker: SimBroker, controller: SimulatedController, lease: float = 10.0) -> OFGate:
        """Start an OFGate on a broker."""
        name = f"ofgate@{broker.name}"
        draw, tell = self.simulation.rng.randbytes, broker.node.delivery.broadcaster.tell
        gate = OFGate(name, broker.node.port, broker.agents, controller, self.modes, tell, draw, lease=lease)
        broker.act(gate.start)
        return gate

    def _transmit(self, source: BrokerAddress, address: str, raw: bytes) -> None:
        self.sent += 1
        receivers = read(IPv6Address(address[1:].partition("]")[0])) if address.startswith("[") else None
        if receivers is not None:
            self._transmit_by_bits(source, receivers, raw)
            return
        topic, served = self._counted_on(source, raw)
        tree = self.trees.get(address)
        if tree is None or source not in tree.brokers | tree.senders:
            self.ring_split += len(served)
            return
        self.ring_split += len(served - tree.brokers)
        for target in sorted(tree.brokers | {source}):
            if self._side(source) != self._side(target):
                self.ring_split += target in served
                continue
            self._copy(target, address, raw, topic if target in served else None)

    def _transmit_by_bits(self, source: BrokerAddress, receivers: Receivers, raw: bytes) -> None:
        """A plane leads to all brokers but those that it is broken for."""
        cut = self.faults.broken.get(receivers.plane, set())
        sets = self.switches.sets
        members = sets[receivers.set] if receivers.set < len(sets) else ()
        if self._brokers[source].name in cut or not any(source in each for each in sets):
            return
        for position in receivers.positions:
            target = members[position] if position < len(members) else None
            if target is None or self._side(source) != self._side(target):
                continue
            broker = self._brokers[target]
            if broker.name not in cut:
                self._transit.copy(broker.name, partial(self._arrive, broker, raw))

    def _arrive(self, broker: SimBroker, raw: bytes) -> None:
        broker.act(lambda: broker.node.receive_datagrams([raw]))

    def host_of(self, broker: str) -> BrokerAddress:
        """A broker's element of the broker list."""
        return self._hosts[broker]

    def _side(self, host: BrokerAddress) -> int:
        return self.sides.get(self._brokers[host].name, 0)

    def _counted_on(self, source: BrokerAddress, raw: bytes) -> tuple[str, set[BrokerAddress]]:
        """The topic of this publication, and the members that the sender leaves to the tree for it."""
        plain = self.keyrings[self._brokers[source].name].peek(raw)
        datagram = None if plain is None else parse(plain)
        if datagram is None or datagram.is_empty:
            return "", set()
        stream = self._brokers[source].node.rendezvous.publishers.stream(datagram.topic)
        return datagram.topic, {self._hosts[member.name] for member in stream.served}

    def _copy(self, target: BrokerAddress, address: str, raw: bytes, counted_on: str | None) -> None:
        """`counted_on`: the topic, if the sender counts on the tree to bring it there."""
        broker = self._brokers[target]

        def arrive() -> None:
            tree = self.trees.get(address)
            if tree is not None and target in tree.brokers | tree.senders:
                if counted_on is not None and broker.node.rendezvous.subscriptions.wants(counted_on):
                    self.unreadable += self.keyrings[broker.name].peek(raw) is None
                broker.act(lambda: broker.node.receive_datagrams([raw]))
            elif counted_on is not None:  # the tree has changed under it
                self.ring_split += 1

        self._transit.copy(broker.name, arrive)


class SimulatedController:
    """A `saps.agents.switchover.Controller` for an OFGate in the simulation. `crash` it, and `restart` it."""

    def __init__(self, network: OfmNetwork, number: int = 0) -> None:
        """`number`: of several controllers; each has addresses of its own."""
        self._number = number
        self._network = network
        self._simulation = network.simulation
        self.ofms: dict[str, OfmState] = {}
        self._intents: dict[str, OfmRequest] = {}
        self._watchers: list[Callable[[OfmState], None]] = []
        self.alive = True
        self.planes = [0, 1, 2]
        """Of stateless delivery, those that it takes for whole; see `relay`."""
        self.room = sys.maxsize
        """Members that all trees together may have; what is more is refused, until `retry` or a deletion."""
        self._life = 0
        self._addresses = 0

    def crash(self) -> None:
        """It answers nobody; the switches keep their tables."""
        self.alive = False
        self._life += 1

    def restart(self, forgets: bool = False) -> None:
        """It is back. If it `forgets`, it has cleaned the switches of what it does not know; else it sees to it that
        they have what they should."""
        self.alive = True
        if forgets:
            gone, self.ofms = self.ofms, {}
            self._intents.clear()
            self._network.trees.clear()
            self._network.switches.sets = ()
            for topic in gone:
                self._tell(OfmState(topic=topic, status=Status.NONE))
        else:
            self._repair()

    def reset_switches(self) -> None:
        """All switches restart with empty tables; if it is alive, it notices and fills them again."""
        self._network.trees.clear()
        if self.alive:
            self._repair()

    def cut(self, topic: str, broker: str) -> None:
        """A link fails that leads to one broker of a topic's tree; the controller notices, and finds no other way."""
        state = self.ofms[topic]
        assert state.address is not None
        tree, lost = self._network.trees[state.address], self._network.host_of(broker)
        self._network.trees[state.address] = _Tree(tree.brokers - {lost}, tree.senders)
        left = [one for one in state.brokers if one != lost]
        self._set(OfmState(topic=topic, status=Status.UPDATING, address=state.address, brokers=left))

    def move(self, topic: str, overlap: float = 30.0) -> None:
        """The tree of a topic is evened out: from now on it has another address, and the former one works on for some
        seconds (`saps.ofm.trees.moves`)."""
        state = self.ofms[topic]
        assert state.address is not None
        former, address = state.address, self._fresh()
        self._network.trees[address] = self._network.trees[former]
        self._set(with_(state, address=address, former=former))

        def end() -> None:
            now = self.ofms.get(topic)
            if now is not None and now.former == former:
                self._set(with_(now, former=None))
            self._network.trees.pop(former, None)

        self._later((overlap, overlap), end)

    def _fresh(self) -> str:
        """An address that nobody has had."""
        self._addresses += 1
        return f"239.77.{self._number}.{self._addresses % 250 + 1}:{5000 + self._addresses // 250}"

    def relay(self, planes: list[int]) -> None:
        """These planes work from now on, as it has found."""
        self.planes = planes
        if (state := self.ofms.get(EVERY_TOPIC)) is not None:
            self._set(with_(state, planes=planes))

    def mend(self) -> None:
        """All links work again."""
        self._repair()

    def _repair(self) -> None:
        for request in list(self._intents.values()):
            if request.topic == EVERY_TOPIC:
                self._install_planes(request, lambda state: None)
                continue
            state = self.ofms[request.topic]
            self._set(OfmState(topic=state.topic, status=Status.UPDATING, address=state.address))
            self._install(request, self.ofms[request.topic], lambda state: None)

    def put(self, request: OfmRequest, done: Callable[[OfmState | None], None]) -> None:
        def arrived() -> None:
            if request.topic == EVERY_TOPIC:
                self._intents[request.topic] = request
                self._later(self._network.faults.installation, partial(self._install_planes, request, done))
                return
            known = self.ofms.get(request.topic)
            address = known.address if known is not None else None
            if address is None:
                address = self._fresh()
            brokers = sorted({*request.brokers, *request.senders})
            self._intents[request.topic] = request
            used = sum(len(state.brokers) for state in self.ofms.values() if state.topic != request.topic)
            if used + len(brokers) > self.room:
                if known is not None and known.address is not None:
                    self._network.trees.pop(known.address, None)
                self._set(OfmState(topic=request.topic, status=Status.REFUSED, reason="no room"))
                done(self.ofms[request.topic])
                return
            state = OfmState(topic=request.topic, status=Status.UPDATING, address=address, brokers=brokers)
            self._set(state)
            self._install(request, state, done)

        self._later((0.001, 0.005), arrived, done)

    def retry(self) -> None:
        """There may be room for what was refused."""
        for topic in [state.topic for state in self.ofms.values() if state.status is Status.REFUSED]:
            self.put(self._intents[topic], lambda state: None)

    def _install_planes(self, request: OfmRequest, done: Callable[[OfmState], None]) -> None:
        if self._intents.get(EVERY_TOPIC) is not request:
            return
        sets = self._network.switches.sets = assign(self._network.switches.sets, sorted(request.brokers))
        state = OfmState(
            topic=EVERY_TOPIC,
            status=Status.CONSTRUCTED,
            brokers=request.brokers,
            sets=[list(members) for members in sets],
            planes=self.planes,
        )
        self._set(state)
        done(state)

    def _install(self, request: OfmRequest, state: OfmState, done: Callable[[OfmState], None]) -> None:
        def installed() -> None:
            if self.ofms.get(request.topic) is not state or state.address is None:
                return  # a later intent has overtaken it, and will be answered
            self._network.trees[state.address] = _Tree(frozenset(request.brokers), frozenset(request.senders))
            brokers = sorted({*request.brokers, *request.senders})
            constructed = OfmState(
                topic=request.topic, status=Status.CONSTRUCTED, address=state.address, brokers=brokers
            )
            self._set(constructed)
            done(constructed)

        self._later(self._network.faults.installation, installed)

    def _set(self, state: OfmState) -> None:
        self.ofms[state.topic] = state
        self._tell(state)

    def _tell(self, state: OfmState) -> None:
        for changed in self._watchers:
            self._later((0.001, 0.005), partial(self._told, changed, state))

    def _told(self, changed: Callable[[OfmState], None], state: OfmState) -> None:
        if changed in self._watchers:
            changed(state)

    def watch(self, changed: Callable[[OfmState], None]) -> Callable[[], None]:
        self._watchers.append(changed)
        for state in self.ofms.values():
            self._later((0.001, 0.005), partial(self._told, changed, state))

        def end() -> None:
            if changed in self._watchers:
                self._watchers.remove(changed)

        return end

    def delete(self, topic: str, done: Callable[[OfmState | None], None]) -> None:
        def arrived() -> None:
            known = self.ofms.get(topic)
            if known is not None and known.address is not None:
                self._network.trees.pop(known.address, None)
            self.ofms.pop(topic, None)
            self._intents.pop(topic, None)
            self._tell(OfmState(topic=topic, status=Status.NONE))
            done(OfmState(topic=topic, status=Status.NONE))
            self.retry()

        self._later((0.001, 0.005), arrived, done)

    def list(self, done: Callable[[list[OfmState] | None], None]) -> None:
        self._later((0.001, 0.005), lambda: done(sorted(self.ofms.values(), key=lambda s: s.topic)), done)

    def _later(
        self, delay: tuple[float, float], action: Callable[[], None], refused: Callable[[None], None] | None = None
    ) -> None:
        """Do something later in this life; who calls while it is dead gets None."""
        life, alive = self._life, self.alive

        def due() -> None:
            if not alive and refused is not None:
                refused(None)
            elif life == self._life:
                action()

        self._simulation.at(self._simulation.now + self._simulation.rng.uniform(*delay), due)
