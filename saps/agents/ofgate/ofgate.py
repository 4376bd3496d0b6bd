"""OFGate: the agent between the brokers and the controller (SAPS 2016, 3 and 3.2).

OFGate tells publishers the status of a topic's OFM, and takes that back before it changes
(`saps.agents.ofgate.construction`). All its knowledge can be gathered again: the members from the brokers, the trees
from the controller. So a restarted OFGate goes on. Of several OFGates the lowest name leads, and the next one takes
over when it dies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from saps.agents.api import AgentRegistry, remote, repeatable
from saps.agents.broker_list import gather
from saps.agents.ofgate.construction import Construction
from saps.agents.ofgate.leadership import Greeting, Leadership
from saps.agents.ofgate.record import Lease, Topic
from saps.agents.ofgate.term import Terms
from saps.agents.switchover import Controller, Grant, Member, Mode, Modes, TopicStatus
from saps.ofm.keys.server import Tell
from saps.ofm.northbound.schema import Status
from saps.overlay.port import Port
from saps.topics import matches

LEASE = 10.0
"""Time in seconds for which an answer about the status holds. A longer lease saves questions. But a publisher that does
not answer a revocation delays a change of the tree for that long."""
SWEEP = 10.0
"""Interval in seconds between two comparisons with the brokers' reports and the controller's states."""


class OFGate:
    """The OFGate agent. Call `start` once its broker has joined the mesh."""

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
        """`name` must be unique among the agents of the mesh. `tell` takes keys to brokers
        (`saps.overlay.delivery.broadcast`). `draw` returns that many random bytes, fit for secrets. `lease` is in
        seconds. `on_status` is called with each topic whose status has changed, and `on_lead` when this OFGate begins
        to lead."""
        self.name = name
        self.queries: Counter[str] = Counter()
        """Count of questions and notices from brokers, by method: the paper's queries to OFGate."""
        self._port = port
        self._registry = registry
        self._modes = modes
        self._lease = lease
        self._attribute = modes.ofgate(port.me)
        """The attribute by which its brokers and the other OFGates of its domain find this OFGate."""
        self._terms = Terms(port, registry, controller, modes, tell, draw, lease, on_status, on_lead)
        self._roster = self._terms.roster
        self._leadership = Leadership(name, port, registry, self._attribute, self._terms)

    @property
    def leading(self) -> bool:
        """Whether this OFGate leads, and so answers the brokers."""
        return self._terms.leading

    def obey(self, permitted: Callable[[str, Member], bool]) -> None:
        """Set `permitted`, which returns whether a broker may be in a topic's tree. Call this again when its answers
        change."""
        self._roster.permitted = permitted
        term = self._terms.construction
        if term is not None:
            for topic in list(term.topics.values()):
                term.advance(topic)

    def start(self, done: Callable[[], None] = lambda: None) -> None:
        """Register the agent, and take the lead if no OFGate with a lower name is there. `done` runs once calls find
        it."""

        def started() -> None:
            self._leadership.start()
            self._port.after(SWEEP, self._sweep)
            done()

        self._registry.register(self.name, self, [self._attribute], done=started)

    def stop(self) -> None:
        """Give up the lead for good, and unregister the agent."""
        self._leadership.stop()
        self._registry.unregister(self.name)

    def _sweep(self) -> None:
        self._terms.sweep()
        if not self._leadership.stopped:
            self._port.after(SWEEP, self._sweep)

    # --- called by other OFGates --------------------------------------------------------------------------------------

    @remote
    def hello(self, name: str, led: bool) -> Greeting:
        """Answer the greeting of another OFGate, which has `led` until now; the lower name leads."""
        return self._leadership.hello(name, led)

    # --- called by brokers --------------------------------------------------------------------------------------------

    @remote
    def joined(self, topic_filter: str, member: Any, version: int) -> bool | None:
        """EITHER: note a broker's first subscriber for a filter."""
        return self._registered("joined", topic_filter, member, version, True)

    @remote
    def left(self, topic_filter: str, member: Any, version: int) -> bool | None:
        """EITHER: note that a broker's last subscriber of a filter has gone."""
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
        """Note that a broker takes part in stateless delivery from now on."""
        term = self._asked("enrol", taking_over=True)
        if term is None:
            return None
        if self._roster.mine(member):
            self._roster.enrol(member)
        if self._terms.leading:
            term.planes.advance()
        return True

    @repeatable
    def status(self, topics: list[str], publisher: Any) -> list[Grant] | None:
        """EITHER: tell a publisher for each topic whether it may use OFM."""
        term = self._terms.answering
        if term is None:
            return None
        self.queries["status"] += len(topics)
        member = self._roster.know(publisher)
        return [self._status_of(term, topic, member) for topic in topics]

    def _status_of(self, term: Construction, topic: str, member: Member) -> Grant:
        record = term.topic(topic)
        if record.senders.get(member.ref.name) != member:
            record.senders[member.ref.name] = member
            term.advance(record)
        tree, built = record.tree, record.built
        usable = record.status is Status.CONSTRUCTED and built is not None and member.element in built[0] | built[1]
        holders = term.keys.holders(topic)
        usable = usable and member.ref in holders
        known = record.leases.get(member.ref.name)
        # A publisher keeps its lease while the tree grows, and the lease must be taken back before the tree shrinks.
        uses = usable or (known is not None and known.uses_tree and known.until > self._port.now)
        record.leases[member.ref.name] = Lease(member, self._port.now + self._lease, uses)
        if not usable or tree is None or built is None:
            shown = Status.UPDATING if record.status is Status.CONSTRUCTED else record.status
            return Grant(shown, "", 0, [], self._lease)
        served = [m.ref for m in term.interested(record).values() if m.element in built[0] and m.ref in holders]
        brokers = [(ref.name, ref.incarnation) for ref in served]
        return Grant(record.status, *tree, brokers, self._lease, term.keys.label(topic))

    @remote
    def construct(self, topic: str, members: list[Any], senders: list[Any], new: bool = True) -> TopicStatus | None:
        """Exploit OFM for a topic. `senders` are publishers. `members` is the broker list with BOTH; with EITHER OFGate
        knows the members. With `new` False a topic without a tree gets none: a publisher reports newcomers to an
        existing tree (BOTH). Returns None if another OFGate is to answer, like all methods here."""
        term = self._asked("construct" if new else "outgrown")
        if term is None:
            return None
        record = term.topic(topic)
        if new or record.wanted:
            return self._terms.construct(term, topic, members, senders)
        return TopicStatus(record.status, record.reason)

    @remote
    def release(self, topic: str) -> TopicStatus | None:
        """Give up the OFM of a topic."""
        return None if self._asked("release") is None else self.give_up(topic)

    @remote
    def sends(self, topic: str, publisher: Any) -> bool | None:
        """BOTH: make a publisher a sender of the tree. Its datagrams do not come back, so it may be missing there."""
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
        """BOTH: note that a member has left S(t$OFM). `sends` is whether it goes on publishing."""
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
        """Count a query, and return the term that answers it. None if another OFGate is to answer."""
        term = self._terms.construction if taking_over else self._terms.answering
        if term is not None:
            self.queries[kind] += 1
        return term

    # --- decided here ---------------------------------------------------------------------------------------------

    def exploit(self, topic: str, done: Callable[[TopicStatus | None], None]) -> None:
        """Do the same as `construct`, and collect the broker list here where it is needed. `done` gets None if this
        OFGate does not lead."""

        def gathered(members: list[Any], senders: list[Any]) -> None:
            term = self._terms.answering
            done(self._terms.construct(term, topic, members, senders) if term is not None else None)

        if self._modes.of(topic) is Mode.EITHER:
            gathered([], [])
        else:
            gather(self._registry, topic, gathered)

    def give_up(self, topic: str) -> TopicStatus | None:
        """Do the same as `release`. Returns None if this OFGate does not lead."""
        term = self._terms.answering
        if term is None:
            return None
        record = term.topic(topic)
        record.wanted = False
        term.advance(record)
        return TopicStatus(record.status, record.reason)

    def remeasure(self, topic: str) -> None:
        """Tell the controller that the expected demand of a topic has changed. Does nothing if this OFGate does not
        lead, or if the topic has no tree."""
        term = self._terms.answering
        if term is not None and (record := term.topics.get(topic)) is not None:
            term.remeasure(record)

    def spread(self, loads: dict[str, float]) -> None:
        """Spread topics that leave without a tree over the planes by these loads, in bytes a second. Does nothing if
        this OFGate does not lead."""
        term = self._terms.answering
        if term is not None:
            term.planes.spread(loads)

    def renew(self, topic: str) -> TopicStatus | None:
        """Give the topic's tree a new key, although no broker has joined or left. Returns None if this OFGate does not
        lead."""
        term = self._terms.answering
        if term is None:
            return None
        record = term.topic(topic)
        record.renew = record.tree is not None
        term.advance(record)
        return TopicStatus(record.status, record.reason)

    def wanted(self) -> set[str]:
        """Return the topics for which OFM is wanted: none if this OFGate does not lead."""
        term = self._terms.construction
        return set() if term is None else {name for name, topic in term.topics.items() if topic.wanted}

    def describe(self) -> dict[str, Any]:
        """Return plain values, for status pages."""
        term = self._terms.construction
        topics = [] if term is None else sorted(term.topics.items())
        shown = [self._describe(topic) for _, topic in topics if topic.wanted or topic.status is not Status.NONE]
        planes = [] if term is None else term.planes.carried()
        return {
            "name": self.name, "leading": self.leading, "queries": dict(self.queries), "topics": shown, "planes": planes
        }  # fmt: skip

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
