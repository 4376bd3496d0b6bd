"""EITHER: OFGate knows all members of a tree, publishers ask it for the status (SAPS 2016, 3.2.1).

The paper asks before each publication. Here the answer is kept under a lease, which OFGate revokes *before* it changes
the tree: while this broker has a lease, the tree is as it was told. Whom the tree does not serve gets the message by
ALM, so nobody has to wait for OFGate, neither a publication nor a SUBACK. Of many topics it is asked at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saps.agents.api import AgentRegistry, Answers
from saps.agents.switchover import OFGATE, Member
from saps.ofm.northbound.schema import Status
from saps.overlay.delivery.ofm_members import Served, Tree
from saps.overlay.port import Port

ASK_AGAIN = 0.1
"""Seconds after a revocation until OFGate is asked again."""
UNANSWERED = 1.0
"""Seconds after which OFGate is asked again if none answered."""
RENEW = 0.5
"""At this fraction of a lease it is renewed."""
TOGETHER = 0.05
"""Renewals within this fraction of a lease are due at one moment. More joins more of them, and renews some sooner."""
AT_ONCE = 64
"""Topics in one question at most."""

Use = Callable[[str, Served | None], None]
SealWith = Callable[[str, bytes], None]
"""Has datagrams of a topic sealed with the key of a label from now on."""


class _Question:
    """What this broker knows about a topic's status."""

    __slots__ = ("generation", "until")

    def __init__(self) -> None:
        self.generation = 0
        """An answer to an earlier question than this counts for nothing."""
        self.until = 0.0
        """End of the lease."""


class Either:
    """A `saps.agents.switchover.Delivery`. `use` tells the data path which tree serves whom."""

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
        """`tells` False: no topic uses EITHER, so OFGate need not know of subscriptions until it asks. `gate`: the
        attribute of its OFGates."""
        self._port = port
        self._registry = registry
        self._me = me
        self._use = use
        self._seal_with = seal_with
        self._gate = gate
        self._tells = tells
        self._questions: dict[str, _Question] = {}
        """By topic, for all topics that this broker publishes to."""
        self._due: dict[str, _Question] = {}
        """Those to be asked in this turn."""
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
        # If it gets lost: whoever is not known to have joined is served by ALM, and OFGate's sweep finds out.
        args = (topic_filter, self._me.plain(), self._versions)
        self._registry.discovery_call(self._gate, method, args, lambda answers: None)

    @property
    def filters(self) -> dict[str, int]:
        """What OFGate must know of this broker's subscriptions: filter -> version."""
        return dict(self._filters)

    # --- publishers ---------------------------------------------------------------------------------------------

    def stream_opened(self, topic: str) -> None:
        self._questions[topic] = _Question()
        self._ask(topic, self._questions[topic])

    def stream_closed(self, topic: str) -> None:
        self._questions.pop(topic, None)
        self._use(topic, None)

    def _ask(self, topic: str, question: _Question) -> None:
        """Ask OFGate. Until it has answered the present lease holds; a publication does not wait."""
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
            said = leader_of(answers) or [None] * len(due)
            for (topic, question), generation, each in zip(due, generations, said, strict=False):
                if self._questions.get(topic) is question and question.generation == generation:
                    self._answer(topic, question, asked, each)

        self._registry.discovery_call(self._gate, "status", ([topic for topic, _ in due], self._me.plain()), answered)

    def _answer(self, topic: str, question: _Question, asked: float, said: Any) -> None:
        """`said`: of this topic; None if no OFGate that leads has answered."""
        if said is None:
            self._later(topic, question, UNANSWERED)
            return
        status, address, epoch, brokers, lease, *label = said
        # The lease is counted from the question: so it ends here before it ends at OFGate.
        question.until = asked + lease
        if question.until <= self._port.now:
            self._later(topic, question, UNANSWERED)
            return
        served = None
        if status == Status.CONSTRUCTED and label:
            self._seal_with(topic, *label)
            served = Served(Tree(address, epoch), frozenset((name, incarnation) for name, incarnation in brokers))
        self._use(topic, served)
        until = question.until
        self._port.after(until - self._port.now, lambda: self._expire(topic, question, until))
        due = asked + RENEW * lease
        self._later(topic, question, max(0.0, due - due % (TOGETHER * lease) - self._port.now))

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
        """The data path tries the tree again by itself; if OFGate changes it, the lease goes."""

    def constructed(self, topic: str, tree: Tree) -> None:
        """A lease that says otherwise is out of date."""
        question = self._questions.get(topic)
        if question is not None:
            self._later(topic, question, 0.0)

    def admitted(self, topic: str, tree: Tree) -> None:
        pass


def leader_of(answers: Answers) -> Any:
    """What the OFGate that leads has answered; None if none does. If two think that they lead, the lower name does."""
    answered = [answer for answer in answers if answer.error is None and answer.value is not None]
    return min(answered, key=lambda answer: answer.agent).value if answered else None
