"""OFGate: the agent between the brokers and the controller (SAPS 2016, 3 and 3.2).

It tells publishers the status of a topic's OFM, and takes that back before it changes
(`saps.agents.ofgate.construction`).
All it knows can be gathered again: the members from the brokers, the trees from the controller. So a restarted OFGate
goes on, and of several the one with the lowest name leads, and the next takes over when it dies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from saps.agents.api import AgentRegistry, remote
from saps.agents.broker_list import gather
from saps.agents.ofgate.construction import Construction
from saps.agents.ofgate.leadership import Leadership
from saps.agents.ofgate.record import Lease, Topic
from saps.agents.ofgate.term import Terms
from saps.agents.switchover import Controller, Member, Mode, Modes
from saps.ofm.keys.server import Tell
from saps.ofm.northbound.schema import Status
from saps.overlay.port import Port
from saps.topics import matches

LEASE = 10.0
"""Seconds for which an answer about the status holds. Longer saves questions, but a publisher that does not answer a
revocation holds up a change of the tree for that long."""
SWEEP = 10.0
"""Seconds between two comparisons with what the brokers report and the controller has."""


class OFGate:
    """The agent. `start` it once its broker has joined the mesh."""

    def __init__(
        self,
        name: str,
        port: Port,
        registry: AgentRegistry,
        controller: Controller,
        modes: Modes,
        tell: Tell,
        draw: Callable[[int], bytes],
        *,
        lease: float = LEASE,
        on_status: Callable[[Topic], None] = lambda topic: None,
        on_lead: Callable[[], None] = lambda: None,
    ) -> None:
        """`name`: unique among the agents of the mesh. `tell` takes keys to brokers
        (`saps.overlay.delivery.broadcast`), `draw` gives so many random bytes, fit for secrets. `lease`: seconds.
        `on_status` is called with each topic whose status has changed, `on_lead` when this OFGate begins to lead."""
        self.name = name
        self.queries: Counter[str] = Counter()
        """Questions and notices from brokers, by method: the paper's queries to OFGate."""
        self._port = port
        self._registry = registry
        self._modes = modes
        self._lease = lease
        self._attribute = modes.ofgate(port.me)
        """By which its brokers, and the other OFGates of its domain, find it."""
        self._terms = Terms(port, registry, controller, modes, tell, draw, lease, on_status, on_lead)
        self._roster = self._terms.roster
        self._leadership = Leadership(name, port, registry, self._attribute, self._terms)

    @property
    def leading(self) -> bool:
        """Does this OFGate answer, and no other?"""
        return self._terms.leading

    def obey(self, permitted: Callable[[str, Member], bool]) -> None:
        """`permitted` says whether a broker may be in a topic's tree; to be called again when its answers change."""
        self._roster.permitted = permitted
        term = self._terms.construction
        if term is not None:
            for topic in list(term.topics.values()):
                term.advance(topic)

    def start(self, done: Callable[[], None] = lambda: None) -> None:
        """Be found, and take the lead if nobody with a lower name is there."""

        def started() -> None:
            self._leadership.start()
            self._port.after(SWEEP, self._sweep)
            done()

        self._registry.register(self.name, self, [self._attribute], done=started)

    def stop(self) -> None:
        """Be an OFGate no more."""
        self._leadership.stop()
        self._registry.unregister(self.name)

    def _sweep(self) -> None:
        self._terms.sweep()
        if not self._leadership.stopped:
            self._port.after(SWEEP, self._sweep)

    # --- called by other OFGates --------------------------------------------------------------------------------------

    @remote
    def hello(self, name: str, led: bool) -> list[Any]:
        """Another OFGate is there, which has `led` until now; the lower name leads. ``[name, has led until now]``."""
        return self._leadership.hello(name, led)

    # --- called by brokers --------------------------------------------------------------------------------------------

    @remote
    def joined(self, topic_filter: str, member: Any, version: int) -> bool | None:
        """EITHER: a broker has its first subscriber for a filter."""
        return self._registered("joined", topic_filter, member, version, True)

    @remote
    def left(self, topic_filter: str, member: Any, version: int) -> bool | None:
        """EITHER: the last subscriber of a filter has gone."""
        return self._registered("left", topic_filter, member, version, False)

    def _registered(self, kind: str, topic_filter: str, member: Any, version: int, there: bool) -> bool | None:
        term = self._asked(kind, taking_over=True)
        if term is None:
            return None
        if self._roster.register(member, topic_filter, version, there):
            for topic in list(term.topics.values()):
                if topic.mode is Mode.EITHER and matches(topic_filter, topic.name):
                    term.advance(topic)
        return True

    @remote
    def enrol(self, member: Any) -> bool | None:
        """A broker takes part in stateless delivery from now on."""
        term = self._asked("enrol", taking_over=True)
        if term is None:
            return None
        if self._roster.mine(member):
            self._roster.enrol(member)
        if self._terms.leading:
            term.planes.advance()
        return True

    @remote
    def status(self, topics: list[str], publisher: Any) -> Any:
        """EITHER: may this publisher use OFM? For each topic ``[status, address, epoch, [[name, incarnation], ...],
        lease in s, label of the key]``, the last only with a tree that may be used."""
        term = self._terms.answering
        if term is None:
            return None
        self.queries["status"] += len(topics)
        member = self._roster.know(publisher)
        return [self._status_of(term, topic, member) for topic in topics]

    def _status_of(self, term: Construction, topic: str, member: Member) -> list[Any]:
        record = term.topic(topic)
        if record.senders.get(member.ref.name) != member:
            record.senders[member.ref.name] = member
            term.advance(record)
        tree, built = record.tree, record.built
        usable = record.status is Status.CONSTRUCTED and built is not None and member.element in built[0] | built[1]
        holders = term.keys.holders(topic)
        usable = usable and member.ref in holders
        known = record.leases.get(member.ref.name)
        # While the tree grows, who has a lease keeps it: it is to be taken back before the tree shrinks.
        uses = usable or (known is not None and known.uses_tree and known.until > self._port.now)
        record.leases[member.ref.name] = Lease(member, self._port.now + self._lease, uses)
        if not usable or tree is None or built is None:
            shown = Status.UPDATING if record.status is Status.CONSTRUCTED else record.status
            return [shown.value, "", 0, [], self._lease]
        served = [m.ref for m in term.interested(record).values() if m.element in built[0] and m.ref in holders]
        brokers = [[ref.name, ref.incarnation] for ref in served]
        return [record.status.value, *tree, brokers, self._lease, term.keys.label(topic)]

    @remote
    def construct(self, topic: str, members: list[Any], senders: list[Any], new: bool = True) -> Any:
        """Exploit OFM for a topic. `senders` are publishers; with BOTH `members` is the broker list, with EITHER it is
        known here. Unless `new`, a topic that has no tree gets none: its publisher tells who has come since (BOTH).
        ``[status, reason]``."""
        term = self._asked("construct" if new else "outgrown")
        if term is None:
            return None
        record = term.topic(topic)
        if new or record.wanted:
            return self._terms.construct(term, topic, members, senders)
        return [record.status.value, record.reason]

    @remote
    def release(self, topic: str) -> Any:
        """The OFM of a topic is not wanted any more. ``[status, reason]``."""
        return None if self._asked("release") is None else self.give_up(topic)

    @remote
    def sends(self, topic: str, publisher: Any) -> bool | None:
        """BOTH: a publisher's datagrams do not come back. It may not be among the tree's senders."""
        term = self._asked("sends")
        if term is None:
            return None
        record = term.topics.get(topic)
        if record is not None and record.tree is not None:
            member = self._roster.know(publisher)
            record.senders[member.ref.name] = member
            term.advance(record)
            if not record.busy:
                term.tell_constructed(record)
        return True

    @remote
    def left_tree(self, topic: str, member: Any, epoch: int, sends: bool = False) -> bool | None:
        """BOTH: a member has left S(t$OFM), and goes on to publish or not."""
        term = self._asked("left_tree")
        if term is None:
            return None
        record, name = term.topics.get(topic), self._roster.know(member).ref.name
        if record is not None and record.tree is not None and record.tree.epoch == epoch:
            record.departures.members.add(name)
            left = record.members.pop(name, None)
            if sends and left is not None:
                record.senders[name] = left
            term.advance(record)
        return True

    def _asked(self, kind: str, *, taking_over: bool = False) -> Construction | None:
        """Count a query. None if another OFGate is to answer it."""
        term = self._terms.construction if taking_over else self._terms.answering
        if term is not None:
            self.queries[kind] += 1
        return term

    # --- decided here ---------------------------------------------------------------------------------------------

    def exploit(self, topic: str, done: Callable[[Any], None]) -> None:
        """As `construct`, with the broker list collected here where that is needed. `done` gets None if this OFGate
        does not lead."""

        def gathered(members: list[Any], senders: list[Any]) -> None:
            term = self._terms.answering
            done(self._terms.construct(term, topic, members, senders) if term is not None else None)

        if self._modes.of(topic) is Mode.EITHER:
            gathered([], [])
        else:
            gather(self._registry, topic, gathered)

    def give_up(self, topic: str) -> Any:
        """As `release`; None if this OFGate does not lead."""
        term = self._terms.answering
        if term is None:
            return None
        record = term.topic(topic)
        record.wanted = False
        term.advance(record)
        return [record.status.value, record.reason]

    def remeasure(self, topic: str) -> None:
        """What is expected of a topic has changed. Does nothing if this OFGate does not lead, or there is no tree."""
        term = self._terms.answering
        if term is not None and (record := term.topics.get(topic)) is not None:
            term.remeasure(record)

    def renew(self, topic: str) -> Any:
        """Give the topic's tree a new key, though nobody has joined or left. ``[status, reason]``; None if this OFGate
        does not lead."""
        term = self._terms.answering
        if term is None:
            return None
        record = term.topic(topic)
        record.renew = record.tree is not None
        term.advance(record)
        return [record.status.value, record.reason]

    def wanted(self) -> set[str]:
        """The topics for which OFM is wanted; empty if this OFGate does not lead."""
        term = self._terms.construction
        return set() if term is None else {name for name, topic in term.topics.items() if topic.wanted}

    def describe(self) -> dict[str, Any]:
        """Plain values, for status pages."""
        term = self._terms.construction
        topics = [] if term is None else sorted(term.topics.items())
        shown = [self._describe(topic) for _, topic in topics if topic.wanted or topic.status is not Status.NONE]
        return {"name": self.name, "leading": self.leading, "queries": dict(self.queries), "topics": shown}

    def _describe(self, topic: Topic) -> dict[str, Any]:
        members = topic.members if topic.mode is Mode.BOTH else self._roster.interested(topic.name)
        return {
            "topic": topic.name,
            "mode": topic.mode.value,
            "status": topic.status.value,
            "reason": topic.reason,
            "address": topic.tree.address if topic.tree is not None else None,
            "members": sorted(members),
            "senders": sorted(topic.senders),
        }
