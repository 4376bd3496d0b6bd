"""EITHER: OFGate knows all members of a tree, and publishers ask OFGate for its status (SAPS 2016, 3.2.1).

The paper asks before each publication. Here the publisher keeps the answer under a lease, which OFGate revokes *before*
it changes the tree: while this broker has a lease, the tree is as it was told. Members outside the tree get the message
by ALM, so neither a publication nor a SUBACK waits for OFGate. One question asks about many topics.
"""

from __future__ import annotations

from collections.abc import Callable

from saps.agents.api import AgentRegistry, Answers, Value
from saps.agents.switchover import OFGATE, Grant, Member
from saps.ofm.northbound.schema import Status
from saps.overlay.delivery.ofm_members import Served, Tree
from saps.overlay.port import Port

ASK_AGAIN = 0.1
"""Delay in seconds between a revocation and the next question to OFGate."""
UNANSWERED = 1.0
"""Delay in seconds until a question is repeated that no leading OFGate has answered."""
RENEW = 0.5
"""Fraction of a lease after which the lease is renewed."""
TOGETHER = 0.05
"""Grid of the renewals, as a fraction of a lease: renewals within one interval are due at the same moment. A larger
value joins more of them, and renews some sooner."""
AT_ONCE = 64
"""Most topics in one question."""

Use = Callable[[str, Served | None], None]
SealWith = Callable[[str, bytes], None]
"""Makes the data path seal the datagrams of a topic with the key of a label from now on."""


class _Question:
    """The state of this broker's question about one topic."""

    __slots__ = ("generation", "until")

    def __init__(self) -> None:
        self.generation = 0
        """Number of the latest question: answers to earlier ones do not count."""
        self.until = 0.0
        """End of the lease, on the port's clock in seconds."""


class Either:
    """The `saps.agents.switchover.Delivery` of EITHER. `use` tells the data path which tree serves which brokers."""

    def __init__(
        self,
        port: Port,
        registry: AgentRegistry,
        me: Member,
        use: Use,
        seal_with: SealWith,
        *,
        tells: bool = True,
        gate: str = OFGATE,
    ) -> None:
        """With `tells` False no topic uses EITHER, so OFGate need not know of subscriptions until it asks for a report.
        `gate` is the attribute of this broker's OFGates."""
        self._port = port
        self._registry = registry
        self._me = me
        self._use = use
        self._seal_with = seal_with
        self._gate = gate
        self._tells = tells
        self._questions: dict[str, _Question] = {}
        """Topic -> question, for all topics that this broker publishes to."""
        self._due: dict[str, _Question] = {}
        """Topic -> question, for the topics to be asked about in this turn."""
        self._filters: dict[str, int] = {}
        """Filter -> version of its registration at OFGate."""
        self._versions = 0

    # --- subscribers --------------------------------------------------------------------------------------------

    def filter_ready(self, topic_filter: str) -> None:
        if topic_filter not in self._filters:
            self._versions += 1
            self._filters[topic_filter] = self._versions
            self._tell("joined", topic_filter)

    def filter_gone(self, topic_filter: str) -> None:
        if self._filters.pop(topic_filter, None) is not None:
            self._versions += 1
            self._tell("left", topic_filter)

    def _tell(self, method: str, topic_filter: str) -> None:
        if not self._tells:
            return
        # A lost call does no harm: ALM serves a broker that OFGate does not know, and OFGate's sweep finds it.
        args = (topic_filter, self._me.plain(), self._versions)
        self._registry.discovery_call(self._gate, method, args, lambda answers: None)

    @property
    def filters(self) -> dict[str, int]:
        """The subscriptions that OFGate must know of: filter -> version."""
        return dict(self._filters)

    # --- publishers ---------------------------------------------------------------------------------------------

    def stream_opened(self, topic: str) -> None:
        self._questions[topic] = _Question()
        self._ask(topic, self._questions[topic])

    def stream_closed(self, topic: str) -> None:
        self._questions.pop(topic, None)
        self._use(topic, None)

    def _ask(self, topic: str, question: _Question) -> None:
        """Ask OFGate about a topic. The present lease holds until the answer comes, so no publication waits."""
        if self._questions.get(topic) is not question:
            return
        question.generation += 1
        if not self._due:
            self._port.after(0.0, self._ask_together)
        self._due[topic] = question

    def _ask_together(self) -> None:
        due = [each for each in self._due.items() if self._questions.get(each[0]) is each[1]]
        self._due = {}
        for begin in range(0, len(due), AT_ONCE):
            self._ask_some(due[begin : begin + AT_ONCE])

    def _ask_some(self, due: list[tuple[str, _Question]]) -> None:
        asked, generations = self._port.now, [question.generation for _, question in due]

        def answered(answers: Answers) -> None:
            said = leader_of(answers, list[Grant])
            grants = [None] * len(due) if said is None else said
            for (topic, question), generation, each in zip(due, generations, grants, strict=False):
                if self._questions.get(topic) is question and question.generation == generation:
                    self._answer(topic, question, asked, each)

        self._registry.discovery_call(self._gate, "status", ([topic for topic, _ in due], self._me.plain()), answered)

    def _answer(self, topic: str, question: _Question, asked: float, said: Grant | None) -> None:
        """Handle the answer about one topic. `said` is None if no leading OFGate has answered."""
        if said is None:
            self._later(topic, question, UNANSWERED)
            return
        # The lease runs from the question, so it ends here before it ends at OFGate.
        question.until = asked + said.lease
        if question.until <= self._port.now:
            self._later(topic, question, UNANSWERED)
            return
        served = None
        if said.status is Status.CONSTRUCTED and said.label is not None:
            self._seal_with(topic, said.label)
            served = Served(Tree(said.address, said.epoch), frozenset(said.brokers))
        self._use(topic, served)
        until = question.until
        self._port.after(until - self._port.now, lambda: self._expire(topic, question, until))
        due = asked + RENEW * said.lease
        self._later(topic, question, max(0.0, due - due % (TOGETHER * said.lease) - self._port.now))

    def _expire(self, topic: str, question: _Question, until: float) -> None:
        if self._questions.get(topic) is question and question.until == until:
            self._use(topic, None)

    def _later(self, topic: str, question: _Question, delay: float) -> None:
        generation = question.generation

        def again() -> None:
            if question.generation == generation:
                self._ask(topic, question)

        self._port.after(delay, again)

    def revoke(self, topic: str, epoch: int) -> bool:
        question = self._questions.get(topic)
        if question is not None:
            self._drop(topic, question)
        return True

    def drop_leases(self) -> None:
        """Drop all that the former OFGate has said: another OFGate leads."""
        for topic, question in self._questions.items():
            self._drop(topic, question)

    def _drop(self, topic: str, question: _Question) -> None:
        question.generation += 1
        question.until = 0.0
        self._use(topic, None)
        self._later(topic, question, ASK_AGAIN)

    # --- what EITHER does not care about ----------------------------------------------------------------------------

    def heard(self, topic: str, tree: Tree) -> None:
        pass

    def group_changed(self, topic: str) -> None:
        pass

    def failed(self, topic: str, tree: Tree) -> None:
        """Ignore the failure: the data path tries the tree again by itself. If OFGate changes the tree, it revokes the
        lease."""

    def constructed(self, topic: str, tree: Tree) -> None:
        """Ask again at once: a lease that denies this tree is out of date."""
        question = self._questions.get(topic)
        if question is not None:
            self._later(topic, question, 0.0)

    def admitted(self, topic: str, tree: Tree) -> None:
        pass


def leader_of(answers: Answers, kind: type[Value]) -> Value | None:
    """Return the answer of the leading OFGate, or None if none leads or its answer has another type than `kind`. If two
    believe that they lead, the lower name counts."""
    answered = answers.of(kind)
    return min(answered, key=lambda each: each[0])[1] if answered else None
