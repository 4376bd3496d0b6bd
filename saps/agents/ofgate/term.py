"""A term of OFGate: takes the lead, gathers what is known, leads, and gives the lead up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from saps.agents.api import AgentRegistry, Answers
from saps.agents.broker_list import gather
from saps.agents.ofgate.audit import Audit
from saps.agents.ofgate.calls import TIMEOUT
from saps.agents.ofgate.construction import Construction
from saps.agents.ofgate.record import Topic
from saps.agents.ofgate.roster import Roster
from saps.agents.switchover import OFM, Controller, Member, Mode, Modes, TopicStatus
from saps.ofm.keys.server import Tell
from saps.ofm.northbound.schema import OfmState
from saps.overlay.port import Port


class Terms:
    """The terms of one OFGate, one after the other. Each term begins with nothing but the roster's epochs. The members
    come from the brokers, the trees from the controller."""

    def __init__(
        self,
        port: Port,
        registry: AgentRegistry,
        controller: Controller,
        modes: Modes,
        tell: Tell,
        draw: Callable[[int], bytes],
        lease: float,
        on_status: Callable[[Topic], None],
        on_lead: Callable[[], None],
    ) -> None:
        """`lease` is the time in seconds for which an answer about the status holds, also one of a former leader.
        `on_status` runs with each topic whose status has changed, and `on_lead` when this OFGate begins to answer. The
        other arguments: see `OFGate`."""
        domain = modes.domains.of(port.me)
        self.roster = Roster(lambda ref: modes.domains.of(ref) == domain)
        self.construction: Construction | None = None
        """The topics of this term. None while another OFGate leads."""
        self.leading = False
        """Whether the trees of the controller are taken over, so that this OFGate answers."""
        self._port = port
        self._registry = registry
        self._controller = controller
        self._modes = modes
        self._keys = tell, draw
        self._lease = lease
        self._on_status = on_status
        self._on_lead = on_lead
        self._audit: Audit | None = None

    @property
    def begun(self) -> bool:
        return self.construction is not None

    @property
    def answering(self) -> Construction | None:
        """The topics of this term, if this OFGate leads."""
        return self.construction if self.leading else None

    def begin(self) -> None:
        """Gather what is known, and take back what the former leader has said."""
        self.end()
        self.roster.clear()
        port, modes, roster = self._port, self._modes, self.roster
        construction = Construction(
            port, self._controller, modes, roster, self.call_broker, self._on_status, *self._keys
        )
        self.construction = construction
        self._gather(construction, port.now + self._lease)

    def end(self) -> None:
        """Answer no broker, and begin nothing more."""
        self.leading = False
        if self._audit is not None:
            self._audit.close()
            self._audit = None
        if self.construction is not None:
            self.construction.close()
            self.construction = None

    def _gather(self, term: Construction, give_up: float) -> None:
        """Have all brokers report and drop their leases. At `give_up` the leases of unreachable brokers have expired
        too."""

        def reported(answers: Answers) -> None:
            if term is self.construction:
                self.roster.take(answers)
                if answers.complete or self._port.now >= give_up:
                    self._recover(term)
                else:
                    self._gather(term, give_up)

        self._registry.discovery_call(OFM, "report", (True,), reported)

    def _recover(self, term: Construction) -> None:
        """Take over the trees that the controller has. From then on this OFGate leads."""
        if term is not self.construction or self.leading:
            return

        def listed(states: list[OfmState] | None) -> None:
            if term is self.construction and not self.leading and states is not None:
                self.leading = True
                for state in states:
                    term.adopt(state)
                for topic in [topic.name for topic in term.topics.values() if topic.mode is Mode.BOTH]:
                    gather(self._registry, topic, partial(self._found, term, topic))
                self._dissolve(term)
                term.planes.advance()
                self._audit = Audit(self._port, self._controller, term)
                self._on_lead()

        self._controller.list(listed)
        self._port.after(TIMEOUT, lambda: self._recover(term))

    def _found(self, term: Construction, topic: str, members: list[Any], senders: list[Any]) -> None:
        """BOTH: add the broker list of a topic whose tree existed before. The controller may have been told of fewer
        brokers."""
        if term is self.construction and term.topic(topic).wanted:
            self.construct(term, topic, members, senders)

    def _dissolve(self, term: Construction) -> None:
        """BOTH: make brokers leave the trees that the controller no longer has."""
        for topic in self.roster.joined_topics:
            if topic not in term.topics:
                for member in self.roster.joined(topic).values():
                    self.call_broker(member, "revoke", (topic, self.roster.epoch_of(topic)), lambda answers: None)

    def sweep(self) -> None:
        """Compare the records with the brokers' reports and the controller's states."""
        term = self.construction
        if term is not None and self._audit is not None:
            self._registry.discovery_call(OFM, "report", (False,), lambda answers: self._swept(term, answers))
            self._audit.look()

    def _swept(self, term: Construction, answers: Answers) -> None:
        """Forget brokers that did not report: they have died. Forget publishers without a lease: they no longer
        publish. Forget the topics that nobody wants or asks about."""
        if term is not self.construction or not answers.complete:
            return
        reporting = self.roster.take(answers)
        self.roster.forget_all_but(reporting)
        for topic in term.topics.values():
            self.roster.refresh(topic.name, topic.members)
            term.bury(topic, reporting)
            for name in list(topic.senders):
                lease = topic.leases.get(name)
                idle = topic.mode is Mode.EITHER and (lease is None or lease.until < self._port.now)
                if idle or name not in reporting:
                    del topic.senders[name]
        term.planes.advance()
        term.forget_idle()
        for topic in list(term.topics.values()):
            term.advance(topic)
            if topic.mode is Mode.BOTH and topic.wanted and topic.name in self.roster.outgrown:
                gather(self._registry, topic.name, partial(self._found, term, topic.name))

    def construct(self, term: Construction, topic: str, members: list[Any], senders: list[Any]) -> TopicStatus:
        """Build a tree for a topic, or add these brokers to its tree."""
        record = term.topic(topic)
        record.wanted, record.reason = True, None
        for plains, into in ((senders, record.senders), (members, record.members)):
            for member in map(self.roster.know, filter(self.roster.mine, plains)):
                into[member.ref.name] = member
        term.advance(record)
        if not record.busy:
            term.tell_constructed(record)
        return TopicStatus(record.status, record.reason)

    def call_broker(self, member: Member, method: str, args: tuple[Any, ...], done: Callable[[Answers], None]) -> None:
        """Call a method of a broker's OFM agent. `done` gets the answers."""
        self._registry.call(f"{member.ref.name}!{OFM}", method, args, done)
