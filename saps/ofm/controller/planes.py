"""Manages stateless delivery in the controller: its brokers' bits, the planes over them, and their rollout to the
switches.

Stateless delivery is requested like an OFM, under the name `EVERY_TOPIC`. It shares the network, the budgets and the
state file with OFMs. There is only one, and it changes with brokers and links, never with topics. A broker keeps its
bit. A plane keeps its number, and its links as long as these carry packets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from operator import is_not

from saps.ofm.controller.admission import Rules
from saps.ofm.flows.budget import Ledger, OverBudgetError
from saps.ofm.flows.plan import PLANES
from saps.ofm.flows.tables import Tables
from saps.ofm.network.network import Network
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.schema import OfmState, Status
from saps.ofm.stateless.address import BITS, EVERY_TOPIC, SETS
from saps.ofm.stateless.planes import lay_planes
from saps.ofm.stateless.tables import SHUT, Layout, TooFewTablesError, assign, rollout, tables
from saps.ofm.trees.growth import reachable
from saps.ofm.trees.tree import Tree

_NOTHING = Tables()
_UNSEEN = (None, None)


class Planes:
    """Stateless delivery: what is wanted, what the switches shall hold at this moment, and what comes next."""

    def __init__(self, network: Network, ledger: Ledger, rules: Rules) -> None:
        self._network, self._ledger, self._rules = network, ledger, rules
        self.brokers: frozenset[BrokerAddress] | None = None
        """Brokers to reach; None: stateless delivery is not wanted."""
        self.sets: tuple[tuple[BrokerAddress | None, ...], ...] = ()
        self.layout: Layout | None = None
        """Layout in force, or coming into force."""
        self._former: Layout | None = None
        """Layout that `layout` replaces, until it has done so."""
        self._held: dict[int, Tables] = {}
        self._stages: deque[Mapping[int, Tables]] = deque()
        self._waiting: frozenset[int] = frozenset()
        self._watched: frozenset[BrokerAddress] = frozenset()
        self._seen: tuple[object, object] = _UNSEEN
        """What was looked at last, and the inputs of the latest planning."""
        self._refusal: str | None = None
        self.state = OfmState(topic=EVERY_TOPIC, status=Status.NONE)
        """State as last told."""
        self._described: tuple[tuple[object, ...], OfmState] | None = None
        """The inputs of the latest `describe`, and its state."""

    @property
    def busy(self) -> bool:
        """Whether a layout is coming into force."""
        return bool(self._waiting or self._stages)

    def reach(self, brokers: Iterable[BrokerAddress] | None) -> None:
        """Set the brokers to reach from now on; None ends stateless delivery."""
        self.brokers = None if brokers is None else frozenset(brokers)
        self._seen = _UNSEEN
        self._watch()

    def retry(self) -> None:
        """Plan again what was refused, as room has become free."""
        if self._refusal is not None and not self.busy:
            self._seen = _UNSEEN

    def refuse(self, why: str) -> None:
        """Remove stateless delivery, since a switch has refused a part of it. It is planned again when room is free,
        the wanted brokers change, or the network changes."""
        self._refusal, self._former = why, self.layout
        self._ledger.set_aside({})
        self._head_for(None, [dict.fromkeys(self._held, _NOTHING)])

    def run(self) -> list[int]:
        """Advance as far as possible without an answer. Return the switches whose wanted tables have changed."""
        touched: list[int] = []
        while self.brokers is not None or self.layout is not None or self.busy:
            self._waiting = frozenset(dpid for dpid in self._waiting if not self._network.confirmed(dpid, PLANES))
            if self._waiting:
                break
            if self._stages:
                stage = self._stages.popleft()
                for dpid, wanted in stage.items():
                    self._held[dpid] = wanted
                    if self._network.want(dpid, PLANES, wanted):
                        touched.append(dpid)
                self._waiting = frozenset(stage)
                continue
            self._ledger.set_aside(self._held)
            if self._former is not None:
                self._former = None
                self._watch()
            if not self._plan():
                break
        return touched

    def _plan(self) -> bool:
        """Head for the best layout now. Return whether it is another one than the present."""
        network, topology = self._network, self._network.topology
        looked = (self.brokers, topology.version, network.settled, dict(network.table_counts))
        if looked == self._seen[0] or (self.brokers is not None and not network.settled and self._early(self.brokers)):
            return False
        places = [topology.where(broker) for broker in sorted(self.brokers or ())]
        inputs = (self.brokers, topology.usable, places, network.settled, looked[-1])
        before, self._seen = self._seen[1], (looked, inputs)
        if inputs == before:
            return False
        self._refusal = None
        try:
            layout = self._best()
            wanted = tables(layout, available=network.table_counts) if layout is not None else {}
            self._ledger.set_aside(wanted)
        except (TooFewTablesError, OverBudgetError, ValueError) as error:
            self._refusal, layout, wanted = str(error), None, {}
            self._ledger.set_aside(wanted)
        if layout == self.layout:
            return False
        final = {dpid: wanted.get(dpid, _NOTHING) for dpid in self._held.keys() | wanted.keys()}
        self._former = self.layout
        self._head_for(layout, self._with_room([*rollout(self.layout, layout), final]))
        return True

    def _with_room(self, stages: Iterable[Mapping[int, Tables]]) -> list[Mapping[int, Tables]]:
        """Return these stages. Both what a switch holds and what comes count until the end, since `difference` puts
        before it drops. A switch without room for both is shut before, and no plane works meanwhile."""
        held, counted, found = dict(self._held), dict[int, Tables](), list[Mapping[int, Tables]]()
        for stage in stages:
            tight = list[int]()
            for dpid, wanted in stage.items():
                before = held.get(dpid, _NOTHING)
                both = before.with_(wanted)
                if self._ledger.has_room(dpid, both):
                    counted[dpid] = max(counted.get(dpid, _NOTHING), both, key=lambda each: each.entries)
                elif both.entries > before.entries:
                    tight.append(dpid)
            if tight:
                found.append(dict.fromkeys(tight, SHUT))
                self._former = None
            found.append(stage)
            held |= stage
        self._ledger.set_aside({**found[-1], **counted})
        return found

    def _early(self, brokers: frozenset[BrokerAddress]) -> bool:
        """Return whether it is too early to plan, while the network has not settled: what is missing may still be
        found."""
        return not self._network.all_read or reachable(self._network.topology, brokers) != brokers

    def _head_for(self, layout: Layout | None, stages: Iterable[Mapping[int, Tables]]) -> None:
        self.layout, self._stages = layout, deque(stages)
        self._waiting = frozenset()
        self._watch()

    def _best(self) -> Layout | None:
        """Return the layout for the wanted brokers over the present network, or None if stateless delivery is not
        wanted. Raises `ValueError` if no layout is possible."""
        if self.brokers is None:
            self.sets = ()
            return None
        rules = self._rules
        if not rules.planes or rules.coding is not None:
            raise ValueError("the controller has no planes (--planes 0, or coded addresses)")
        if ":" not in rules.loopback.ip:
            raise ValueError("stateless delivery is for IPv6 (--loopback, --ofm-range)")
        if len(self.brokers) > SETS * BITS:
            raise ValueError(f"more than {SETS * BITS} brokers")
        self.sets = assign(self.sets, sorted(self.brokers))
        before = self.layout.planes if self.layout is not None else ()
        here = reachable(self._network.topology, self.brokers)
        planes = lay_planes(self._network.topology, here, rules.planes, before)
        return Layout(self.sets, tuple(planes), loopback=rules.loopback)

    def _watch(self) -> None:
        """Make the network keep the places of the brokers that stateless delivery depends on."""
        now = self.brokers or frozenset[BrokerAddress]()
        now = now.union(*(plane.brokers for each in (self.layout, self._former) if each for plane in each.planes))
        self._network.expect(now - self._watched)
        self._network.dismiss(self._watched - now)
        self._watched = now

    def resume(
        self,
        brokers: Iterable[BrokerAddress],
        sets: Sequence[Sequence[BrokerAddress | None]],
        planes: Sequence[Tree],
        version: int,
    ) -> None:
        """Take over what an earlier run had. Call it before any event, after the topology is filled."""
        self.brokers, self.sets = frozenset(brokers), tuple(map(tuple, sets))
        self.state = OfmState(topic=EVERY_TOPIC, status=Status.UPDATING, version=version)
        try:
            self.layout = Layout(self.sets, tuple(planes), loopback=self._rules.loopback) if planes else None
            self._held = tables(self.layout) if self.layout is not None else {}
            self._ledger.set_aside(self._held)
        except (ValueError, OverBudgetError):
            self.layout, self._held = None, {}
        self._watch()
        for dpid, wanted in self._held.items():
            self._network.want(dpid, PLANES, wanted)
        self._waiting = frozenset(self._held)

    def describe(self) -> OfmState:
        """Return the present state. It is cached until an input changes, since every event asks for it."""
        version = self._network.topology.version
        made_of = (self.brokers, self.layout, self._former, self.busy, self._refusal, version, self.state)
        if self._described is None or any(map(is_not, self._described[0], made_of)):
            self._described = made_of, self._describe()
        return self._described[1]

    def _describe(self) -> OfmState:
        status, reason = Status.UPDATING if self.state.planes else Status.CONSTRUCTING, self._refusal
        missing = [broker for broker in self.brokers or () if self._network.topology.where(broker) is None]
        planes = self._working()
        if self.brokers is None:
            status = Status.DELETING if self.layout is not None or self.busy else Status.NONE
        elif self._refusal is not None:
            status = Status.REFUSED
        elif self.layout is not None and not self.busy and not missing and len(planes) == len(self.layout.planes):
            status = Status.CONSTRUCTED
        elif missing:
            reason = f"waiting for {', '.join(sorted(broker.mac for broker in missing))}"
        return OfmState(
            topic=EVERY_TOPIC,
            status=status,
            brokers=sorted(self._reached()) if planes else [],
            version=self.state.version,
            reason=reason,
            sets=[list(members) for members in self.sets] if planes else [],
            planes=planes,
        )

    def _reached(self) -> frozenset[BrokerAddress]:
        """Return the brokers that every plane reaches now."""
        if self.layout is None:
            return frozenset()
        layouts = [self.layout, *([self._former] if self.busy and self._former is not None else [])]
        found = [
            frozenset(broker for broker in plane.brokers if layout.receivers.get(broker) == at.get(broker))
            for layout in layouts
            for plane in layout.planes
            for at in [self.layout.receivers]
        ]
        return frozenset.intersection(*found)

    def _working(self) -> list[int]:
        """Return the numbers of the planes that may be used now: intact, and not about to take other links."""
        if self.layout is None or (self.busy and self._former is None):
            return []
        former = self._former.planes if self.busy and self._former is not None else self.layout.planes
        return [
            number
            for number, (old, new) in enumerate(zip(former, self.layout.planes, strict=False))
            if (old.links <= new.links or new.links <= old.links)
            and all(map(self._network.topology.carries, old.links & new.links))
        ]
