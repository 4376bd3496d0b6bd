"""OFGate: the agent between the brokers and the controller (SAPS 2016, 3 and 3.2).

It tells publishers the status of a topic's OFM, and takes that back before it changes
(`saps.agents.ofgate.construction`).
All it knows can be gathered again: the members from the brokers, the trees from the controller. So a restarted OFGate
goes on, and of several the one with the lowest name leads, and the next takes over when it dies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from saps.agents.api import AgentRegistry, Answers, remote
from saps.agents.broker_list import gather
from saps.agents.ofgate.audit import Audit
from saps.agents.ofgate.construction import CONTROLLER_PATIENCE, Construction
from saps.agents.ofgate.record import Lease, Topic
from saps.agents.ofgate.roster import Roster
from saps.agents.switchover import OFM, Controller, Member, Mode, Modes
from saps.ofm.keys.server import Tell
from saps.ofm.northbound.schema import OfmState, Status
from saps.overlay.port import Port
from saps.topics import matches

LEASE = 10.0
"""Seconds for which an answer about the status holds. Longer saves questions, but a publisher that does not answer a
revocation holds up a change of the tree for that long."""
HELLO = 1.0
"""Seconds between two looks at who else is an OFGate."""
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
    ) -> None:
        """`name`: unique among the agents of the mesh. `tell` takes keys to brokers
        (`saps.overlay.delivery.broadcast`), `draw`
        gives so many random bytes, fit for secrets."""
        self.name = name
        self.leading = False
        self.queries: Counter[str] = Counter()
        """Questions and notices from brokers, by method: the paper's queries to OFGate."""
        self._port = port
        self._registry = registry
        self._controller = controller
        self._modes = modes
        self._tell = tell
        self._draw = draw
        self._lease = lease
        self._attribute = modes.ofgate(port.me)
        """By which its brokers, and the other OFGates of its domain, find it."""
        domain = modes.domains.of(port.me)
        self._roster = Roster(lambda ref: modes.domains.of(ref) == domain)
        self._construction: Construction | None = None
        """Of this term; None while another OFGate leads."""
        self._stopped = False
        self._rival = False
        """Another OFGate has led at the same time, on the far side of a partition."""
        self._audit: Audit | None = None
        """Of this term, while this one leads."""
        self.on_status: Callable[[Topic], None] | None = None
        """Called with each topic whose status has changed."""
        self.on_lead: Callable[[], None] | None = None
        """Called when this one begins to lead."""

    def obey(self, permitted: Callable[[str, Member], bool]) -> None:
        """`permitted` says whether a broker may be in a topic's tree; to be called again when its answers change."""
        self._roster.permitted = permitted
        if self._construction is not None:
            for topic in list(self._construction.topics.values()):
                self._construction.advance(topic)

    def start(self, done: Callable[[], None] | None = None) -> None:
        """Be found, and take the lead if nobody with a lower name is there."""

        def started() -> None:
            self._hello()
            self._port.after(SWEEP, self._sweep)
            if done is not None:
                done()

        self._registry.register(self.name, self, [self._attribute], done=started)

    def stop(self) -> None:
        """Be an OFGate no more."""
        self._stopped = True
        self._step_down()
        self._registry.unregister(self.name)

    # --- who leads ----------------------------------------------------------------------------------------------

    def _hello(self) -> None:
        if not self._stopped:
            self._registry.discovery_call(
                self._attribute, "hello", (self.name, self._construction is not None), self._met
            )
            self._port.after(HELLO, self._hello)

    @remote
    def hello(self, name: str, led: bool) -> list[Any]:
        """Another OFGate is there, which has `led` until now; the lower name leads. ``[name, has led until now]``."""
        answer = [self.name, self._construction is not None]
        if name < self.name:
            self._step_down()
        elif name > self.name:
            self._rival |= led
        return answer

    def _met(self, answers: Answers) -> None:
        """Who is there. When two have led, on the two sides of a partition, the lower name begins anew: with that all
        that either has said is taken back, after the other has stepped down."""
        if self._stopped:
            return
        others = [answer for answer in answers if answer.error is None and answer.agent != self.name]
        if any(answer.agent < self.name for answer in others):
            self._rival = False
            self._step_down()
            return
        self._rival |= any(answer.value[1] for answer in others)
        if answers.complete and (self._construction is None or self._rival):
            self._rival = False
            self._take_over()

    def _step_down(self) -> None:
        self.leading = False
        if self._audit is not None:
            self._audit.close()
            self._audit = None
        if self._construction is not None:
            self._construction.close()
            self._construction = None

    def _take_over(self) -> None:
        """Gather what is known, and take back what the former leader has said."""
        self._step_down()
        self._roster.clear()
        term = self._construction = Construction(
            self._port,
            self._controller,
            self._modes,
            self._roster,
            self._call_broker,
            self._changed,
            self._tell,
            self._draw,
        )
        self._gather(term, self._port.now + self._lease)

    def _gather(self, term: Construction, give_up: float) -> None:
        """Have all brokers report and drop their leases. Who cannot be reached has none any more at `give_up`."""

        def reported(answers: Answers) -> None:
            if term is self._construction:
                self._roster.take(answers)
                if answers.complete or self._port.now >= give_up:
                    self._recover(term)
                else:
                    self._gather(term, give_up)

        self._registry.discovery_call(OFM, "report", (True,), reported)

    def _recover(self, term: Construction) -> None:
        """Take over the trees that the controller has; from then on this OFGate leads."""
        if term is not self._construction or self.leading:
            return

        def listed(states: list[OfmState] | None) -> None:
            if term is self._construction and not self.leading and states is not None:
                self.leading = True
                for state in states:
                    term.adopt(state)
                for topic in [topic.name for topic in term.topics.values() if topic.mode is Mode.BOTH]:
                    gather(self._registry, topic, partial(self._found, term, topic))
                self._dissolve(term)
                self._audit = Audit(self._port, self._controller, term)
                if self.on_lead is not None:
                    self.on_lead()

        self._controller.list(listed)
        self._port.after(CONTROLLER_PATIENCE, lambda: self._recover(term))

    def _found(self, term: Construction, topic: str, members: list[Any], senders: list[Any]) -> None:
        """BOTH: who takes part in a topic whose tree was there before. The controller may have been told of fewer."""
        if term is self._construction and term.topic(topic).wanted:
            self._construct(term, topic, members, senders)

    def _dissolve(self, term: Construction) -> None:
        """BOTH: whoever has joined a tree that the controller does not have any more shall leave it."""
        for topic in self._roster.joined_topics:
            if topic not in term.topics:
                for member in self._roster.joined(topic).values():
                    self._call_broker(member, "revoke", (topic, self._roster.epoch_of(topic)), lambda answers: None)

    # --- now and then: is all as it should be? ------------------------------------------------------------------------

    def _sweep(self) -> None:
        term = self._construction
        if term is not None and self._audit is not None:
            self._registry.discovery_call(OFM, "report", (False,), lambda answers: self._swept(term, answers))
            self._audit.look()
        if not self._stopped:
            self._port.after(SWEEP, self._sweep)

    def _swept(self, term: Construction, answers: Answers) -> None:
        """Brokers that do not report have died; publishers without lease publish no more."""
        if term is not self._construction or not answers.complete:
            return
        reporting = self._roster.take(answers)
        self._roster.forget_all_but(reporting)
        for topic in term.topics.values():
            self._roster.refresh(topic.name, topic.members)
            for name in list(topic.senders):
                lease = topic.leases.get(name)
                idle = topic.mode is Mode.EITHER and (lease is None or lease.until < self._port.now)
                if idle or name not in reporting:
                    del topic.senders[name]
        for topic in list(term.topics.values()):
            term.advance(topic)
            if topic.mode is Mode.BOTH and topic.wanted and topic.name in self._roster.outgrown:
                gather(self._registry, topic.name, partial(self._found, term, topic.name))

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
    def status(self, topic: str, publisher: Any) -> Any:
        """EITHER: may this publisher use OFM? ``[status, address, epoch, [[name, incarnation], ...], lease in s, label
        of the key]``, the last only with a tree that may be used."""
        term = self._asked("status")
        if term is None:
            return None
        record, member = term.topic(topic), self._roster.know(publisher)
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
            return self._construct(term, topic, members, senders)
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
            record.gone.add(name)
            left = record.members.pop(name, None)
            if sends and left is not None:
                record.senders[name] = left
            term.advance(record)
        return True

    def _asked(self, kind: str, *, taking_over: bool = False) -> Construction | None:
        """Count a query. None if another OFGate is to answer it."""
        if self._construction is None or not (self.leading or taking_over):
            return None
        self.queries[kind] += 1
        return self._construction

    # --- decided here ---------------------------------------------------------------------------------------------

    def exploit(self, topic: str, done: Callable[[Any], None]) -> None:
        """As `construct`, with the broker list collected here where that is needed. `done` gets None if this OFGate
        does not lead."""

        def gathered(members: list[Any], senders: list[Any]) -> None:
            term = self._construction
            done(self._construct(term, topic, members, senders) if term is not None and self.leading else None)

        if self._modes.of(topic) is Mode.EITHER:
            gathered([], [])
        else:
            gather(self._registry, topic, gathered)

    def give_up(self, topic: str) -> Any:
        """As `release`; None if this OFGate does not lead."""
        if self._construction is None or not self.leading:
            return None
        record = self._construction.topic(topic)
        record.wanted = False
        self._construction.advance(record)
        return [record.status.value, record.reason]

    def _construct(self, term: Construction, topic: str, members: list[Any], senders: list[Any]) -> Any:
        record = term.topic(topic)
        record.wanted, record.reason = True, None
        for plains, into in ((senders, record.senders), (members, record.members)):
            for member in map(self._roster.know, filter(self._roster.mine, plains)):
                into[member.ref.name] = member
        term.advance(record)
        if not record.busy:
            term.tell_constructed(record)
        return [record.status.value, record.reason]

    def remeasure(self, topic: str) -> None:
        """What is expected of a topic has changed. Does nothing if this OFGate does not lead, or there is no tree."""
        record = self._construction.topics.get(topic) if self._construction is not None and self.leading else None
        if self._construction is not None and record is not None:
            self._construction.remeasure(record)

    def renew(self, topic: str) -> Any:
        """Give the topic's tree a new key, though nobody has joined or left. ``[status, reason]``; None if this OFGate
        does not lead."""
        if self._construction is None or not self.leading:
            return None
        record = self._construction.topic(topic)
        record.renew = record.tree is not None
        self._construction.advance(record)
        return [record.status.value, record.reason]

    def wanted(self) -> set[str]:
        """The topics for which OFM is wanted; empty if this OFGate does not lead."""
        term = self._construction
        return set() if term is None else {name for name, topic in term.topics.items() if topic.wanted}

    def describe(self) -> dict[str, Any]:
        """Plain values, for status pages."""
        topics = [] if self._construction is None else sorted(self._construction.topics.items())
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

    def _changed(self, topic: Topic) -> None:
        if self.on_status is not None:
            self.on_status(topic)

    def _call_broker(self, member: Member, method: str, args: tuple[Any, ...], done: Callable[[Answers], None]) -> None:
        self._registry.call(f"{member.ref.name}!{OFM}", method, args, done)
