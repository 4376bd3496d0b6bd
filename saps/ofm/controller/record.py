"""Keeps one OFM in the controller: what is wanted, what the switches shall hold at this moment, and what comes next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.controller.events import Intent
from saps.ofm.flows.plan import Plan
from saps.ofm.flows.reconcile import Middle, rollout
from saps.ofm.flows.tables import Tables
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.schema import OfmState, Status
from saps.ofm.trees.tree import Tree

_NOTHING = Tables()


@dataclass(slots=True)
class Record:
    """The record of an OFM. Plans follow each other one at a time: a new intent waits until the switches have reached
    the present plan."""

    topic: str
    intent: Intent | None = None
    """The latest intent; None: the OFM is to be deleted."""
    address: OfmAddress | None = None
    plan: Plan | None = None
    """The plan in force, or coming into force; None: no tree."""
    former: Plan | None = None
    """The plan that `plan` replaces, until it has done so."""
    steady: Tree = field(default_factory=Tree)
    """The tree between the brokers that stay and receive as before, while `plan` replaces `former`."""
    held: dict[int, Tables] = field(default_factory=dict)
    """The tables that each switch shall hold at this moment."""
    stages: deque[Mapping[int, Tables]] = field(default_factory=deque)
    """The tables that switches shall hold next; each stage waits for the one before."""
    waiting: frozenset[int] = frozenset()
    """Switches of the present stage that have not confirmed it."""
    watched: frozenset[BrokerAddress] = frozenset()
    """Brokers whose places the network keeps for this OFM: see `concerned`."""
    lost: tuple[BrokerAddress, ...] = ()
    """Wanted brokers that cannot be connected now."""
    refusal: str | None = None
    blocked: bool = False
    """Whether a switch has refused the OFM for another reason than lack of room. Only another intent can change
    that."""
    asked: bool = False
    """Whether the present change was requested just now, so that a caller may wait for it."""
    complete: bool = False
    """Whether the OFM has been constructed since it was first wanted."""
    state: OfmState = field(default_factory=lambda: OfmState(topic="?", status=Status.NONE))
    """The state as last told."""

    @property
    def busy(self) -> bool:
        """Whether a plan is coming into force."""
        return bool(self.waiting or self.stages)

    @property
    def concerned(self) -> frozenset[BrokerAddress]:
        """The brokers that are wanted, or are in the present or former tree: a leaving broker may be in use until it
        has left."""
        members = self.intent.members if self.intent is not None else frozenset()
        return members.union(*(plan.tree.brokers for plan in (self.former, self.plan) if plan is not None))

    def come_to_rest(self) -> None:
        """Record that all stages are done: there is no former plan any more."""
        self.former = None
        self.held = {dpid: tables for dpid, tables in self.held.items() if tables != _NOTHING}

    def head_for(self, plan: Plan | None, first: Iterable[int] = ()) -> None:
        """Bring a new plan into force by stages; None: no tree. The record must not be busy. `first` are switches that
        must know of this OFM before anything else, even if they have no part in it."""
        self.former, self.plan = self.plan, plan
        middle = None
        if self.former is not None and plan is not None:
            middle = Middle.of(self.former.tree, plan.tree)
            changed = self.former.silent ^ plan.silent
            self.steady = middle.core.without(changed) if changed else middle.core
        if informed := {dpid: self.held.get(dpid, _NOTHING) for dpid in first}:
            self.stages.append(informed)
        now = dict(self.held)
        for stage in rollout(self.former, plan, middle):
            now |= stage
            self.stages.append(stage)
        # Whatever happened to switches since the former plan was made, this is what they shall hold in the end.
        final = plan.tables if plan is not None else {}
        self.stages.append({dpid: final.get(dpid, _NOTHING) for dpid in now.keys() | final.keys()})

    def abandon(self) -> None:
        """Remove everything of this OFM from all switches in one stage."""
        self.former, self.plan = self.plan, None
        self.stages.clear()
        self.stages.append(dict.fromkeys(self.held, _NOTHING))
        self.waiting = frozenset()

    def stable(self) -> Tree:
        """Return the tree between the brokers that neither join nor leave at the moment, nor begin or cease to
        receive."""
        if self.plan is None or (self.busy and self.former is None):
            return Tree()
        if not self.busy or self.former is None:
            return self.plan.tree
        return self.steady

    def describe(
        self, connected: Iterable[BrokerAddress], settled: bool, reason: str | None, former: str | None = None
    ) -> OfmState:
        """Return the present state. `settled` says whether all switches of the tree have confirmed; `reason` is what
        the OFM waits for; `former` is an address that still works (`moves`)."""
        if self.intent is None:
            status = Status.DELETING
        elif self.refusal is not None:
            status, reason = Status.REFUSED, self.refusal
        elif settled and not self.busy and not self.lost and self.plan is not None:
            status = Status.CONSTRUCTED
        else:
            status = Status.UPDATING if self.complete else Status.CONSTRUCTING
        return OfmState(
            topic=self.topic,
            status=status,
            address=str(self.address) if self.plan is not None and self.plan.tables else None,
            brokers=sorted(connected),
            version=self.state.version,
            reason=reason,
            former=former,
        )
