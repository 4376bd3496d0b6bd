"""OFM in the simulator: a network that copies datagrams along trees, and the controller that installs the trees.

A tree is the set of its brokers: a datagram of one broker reaches the others and comes back to its sender. A packet of
stateless delivery reaches the brokers of its bits. (Tests with software switches and Open vSwitch show that the
switches' tables do exactly this.) Faults can be injected: loss, duplicates, disorder, slow installation, and a
controller that crashes or forgets. All randomness comes from the simulation's seed.
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
    """Faults of datagrams and of changes of trees."""

    latency: tuple[float, float] = (0.0002, 0.002)
    """Least and greatest delay in seconds. Each copy draws its own delay, so copies overtake each other."""
    loss: float = 0.0
    """Probability that a copy is lost. The loopback packet is a copy too."""
    duplicate: float = 0.0
    """Probability that a copy comes twice."""
    installation: tuple[float, float] = (0.002, 0.05)
    """Least and greatest time in seconds until the switches have made a change."""
    buffer: int | None = None
    """Most copies under way to a broker; further ones are lost. None for no limit."""
    service: dict[str, float] = field(default_factory=dict)
    """Name of broker -> seconds that the broker takes for each copy. The next copy waits meanwhile, in the broker's
    `buffer`."""
    deaf: set[str] = field(default_factory=set)
    """Names of brokers that no copy reaches."""
    broken: dict[int, set[str]] = field(default_factory=dict)
    """Plane -> names of brokers that the plane neither leads to nor takes packets from."""
    same_wires: bool = False
    """Whether copies take the wires of the links: between brokers that are apart there are none."""


@dataclass(frozen=True)
class _Tree:
    brokers: frozenset[BrokerAddress]
    senders: frozenset[BrokerAddress]


@dataclass
class _Switches:
    """The content of the switches' tables."""

    trees: dict[str, _Tree] = field(default_factory=dict)
    """Address -> tree."""
    sets: tuple[tuple[BrokerAddress | None, ...], ...] = ()
    """The brokers of the bits of stateless delivery, by set."""


class _Transit:
    """The copies under way to brokers: lost, doubled, delayed, and queued at a slow broker."""

    def __init__(self, simulation: Simulation, faults: OfmFaults) -> None:
        self._simulation = simulation
        self._faults = faults
        self._under_way: Counter[str] = Counter()
        """Name of broker -> copies under way to it."""
        self._busy_until: dict[str, float] = {}

    def copy(self, broker: str, arrive: Callable[[], None]) -> None:
        """Send a copy to the broker of this name: `arrive` runs there once, twice or never."""
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
    """The simulated network. Attach it to a simulation before brokers are added: each broker then has a data path and
    an OFM agent."""

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
        """Copies that did not reach a member the sender counted on, because the member was not in the tree. Only an
        injected fault may cause that."""
        self.unreadable = 0
        """Copies that reached a member the sender counted on, and that the member still wanted but could not open."""
        self.sides: dict[str, int] = {}
        """Name of broker -> its part of the switches' network, 0 by default. Copies stay inside their part."""
        self._transit = _Transit(simulation, self.faults)
        self._hosts: dict[str, BrokerAddress] = {}
        self._brokers: dict[BrokerAddress, SimBroker] = {}
        simulation.companions.append(self)

    @property
    def trees(self) -> dict[str, _Tree]:
        """Address -> tree, as the switches have them."""
        return self.switches.trees

    def joined(self, broker: SimBroker) -> None:
        """Start the broker's OFM agent: the broker has joined (`saps.simulator.Companion`)."""
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
        """Start an OFGate on a broker, and return it."""
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
            if self._apart(source, target):
                self.ring_split += target in served
                continue
            self._copy(target, address, raw, topic if target in served else None)

    def _transmit_by_bits(self, source: BrokerAddress, receivers: Receivers, raw: bytes) -> None:
        """Copy a packet to the brokers of its bits, except those for which the plane is broken."""
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
        """Return a broker's element of the broker list."""
        return self._hosts[broker]

    def _apart(self, source: BrokerAddress, target: BrokerAddress) -> bool:
        one, other = self._brokers[source].name, self._brokers[target].name
        wires = self.faults.same_wires and one != other and self.simulation.apart(one, other)
        return wires or self._side(source) != self._side(target)

    def _side(self, host: BrokerAddress) -> int:
        return self.sides.get(self._brokers[host].name, 0)

    def _counted_on(self, source: BrokerAddress, raw: bytes) -> tuple[str, set[BrokerAddress]]:
        """Return the topic of a publication, and the members that the sender leaves to the tree for it."""
        plain = self.keyrings[self._brokers[source].name].peek(raw)
        datagram = None if plain is None else parse(plain)
        if datagram is None or datagram.is_empty:
            return "", set()
        stream = self._brokers[source].node.rendezvous.publishers.stream(datagram.topic)
        return datagram.topic, {self._hosts[member.name] for member in stream.served}

    def _copy(self, target: BrokerAddress, address: str, raw: bytes, counted_on: str | None) -> None:
        """Send a copy to a broker. `counted_on` is the topic if the sender counts on the tree to bring it there."""
        broker = self._brokers[target]

        def arrive() -> None:
            tree = self.trees.get(address)
            if tree is not None and target in tree.brokers | tree.senders:
                if counted_on is not None and broker.node.rendezvous.subscriptions.wants(counted_on):
                    self.unreadable += self.keyrings[broker.name].peek(raw) is None
                broker.act(lambda: broker.node.receive_datagrams([raw]))
            elif counted_on is not None:  # the tree has changed while the copy was under way
                self.ring_split += 1

        self._transit.copy(broker.name, arrive)


class SimulatedController:
    """The `saps.agents.switchover.Controller` for an OFGate in the simulation, with `crash` and `restart`."""

    def __init__(self, network: OfmNetwork, number: int = 0) -> None:
        """`number` tells several controllers apart: each has addresses of its own."""
        self._number = number
        self._network = network
        self._simulation = network.simulation
        self.ofms: dict[str, OfmState] = {}
        self._intents: dict[str, OfmRequest] = {}
        self._watchers: list[Callable[[OfmState], None]] = []
        self.alive = True
        self.planes = [0, 1, 2]
        """Planes of stateless delivery that the controller considers whole; `relay` changes them."""
        self.room = sys.maxsize
        """Most members of all trees together. Requests beyond that are refused, until `retry` or a deletion."""
        self._unreachable: set[BrokerAddress] = set()
        """Elements of the brokers to which there is no path."""
        self._crashes = 0
        self._addresses = 0

    def crash(self) -> None:
        """Crash: the controller answers no call, and the switches keep their tables."""
        self.alive = False
        self._crashes += 1

    def restart(self, forgets: bool = False) -> None:
        """Restart after a crash. With `forgets` the controller removes everything from the switches that it does not
        know; otherwise it restores their tables."""
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
        """Restart all switches with empty tables. A controller that is alive notices, and fills their tables again."""
        self._network.trees.clear()
        if self.alive:
            self._repair()

    def cut(self, topic: str, broker: str) -> None:
        """Break the link to one broker of a topic's tree, until `mend`. The controller notices, and finds no other
        path."""
        state = self.ofms[topic]
        assert state.address is not None
        tree, lost = self._network.trees[state.address], self._network.host_of(broker)
        self._unreachable.add(lost)
        self._network.trees[state.address] = _Tree(tree.brokers - {lost}, tree.senders)
        self._intents[topic] = with_(self._intents[topic])  # what is being installed comes too late
        left = [one for one in state.brokers if one != lost]
        self._set(OfmState(topic=topic, status=Status.UPDATING, address=state.address, brokers=left))

    def move(self, topic: str, overlap: float = 30.0) -> None:
        """Move a topic's tree to another address, as load balancing does. The former address works for `overlap`
        seconds more (`saps.ofm.trees.moves`)."""
        state = self.ofms[topic]
        assert state.address is not None
        former, address = state.address, self._fresh()
        if former in self._network.trees:
            self._network.trees[address] = self._network.trees[former]
        self._set(with_(state, address=address, former=former))

        def end() -> None:
            now = self.ofms.get(topic)
            if now is not None and now.former == former:
                self._set(with_(now, former=None))
            self._network.trees.pop(former, None)

        self._later((overlap, overlap), end)

    def _fresh(self) -> str:
        """Return an address that no topic has had."""
        self._addresses += 1
        return f"239.77.{self._number}.{self._addresses % 250 + 1}:{5000 + self._addresses // 250}"

    def relay(self, planes: list[int]) -> None:
        """Set the working planes that the controller has found."""
        self.planes = planes
        if (state := self.ofms.get(EVERY_TOPIC)) is not None:
            self._set(with_(state, planes=planes))

    def mend(self) -> None:
        """Repair all links."""
        self._unreachable.clear()
        self._repair()

    def _repair(self) -> None:
        for request in list(self._intents.values()):
            if request.topic == EVERY_TOPIC:
                self._install_planes(request, lambda state: None)
                continue
            state = self.ofms[request.topic]
            if state.status is not Status.REFUSED:  # what is refused has no tree to repair
                self._set(with_(state, status=Status.UPDATING, brokers=[], former=None))
                self._install(request, lambda state: None)

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
            self._install(request, done)

        self._later((0.001, 0.005), arrived, done)

    def retry(self) -> None:
        """Request again what was refused: there may be room now."""
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

    def _install(self, request: OfmRequest, done: Callable[[OfmState], None]) -> None:
        def installed() -> None:
            state = self.ofms.get(request.topic)
            if self._intents.get(request.topic) is not request or state is None or state.address is None:
                return  # a later request has replaced this one, and is answered instead
            lost = self._unreachable
            self._network.trees[state.address] = _Tree(frozenset(request.brokers) - lost, frozenset(request.senders))
            brokers = {*request.brokers, *request.senders}
            status = Status.UPDATING if brokers & lost else Status.CONSTRUCTED
            self._set(with_(state, status=status, brokers=sorted(brokers - lost)))
            done(self.ofms[request.topic])

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
        """Run `action` after a random delay, unless the controller crashes in between. A call to a crashed controller
        gets None."""
        crashes, alive = self._crashes, self.alive

        def due() -> None:
            if not alive and refused is not None:
                refused(None)
            elif crashes == self._crashes:
                action()

        self._simulation.at(self._simulation.now + self._simulation.rng.uniform(*delay), due)
