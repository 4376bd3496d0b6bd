"""The trees of OFGate's topics: from the wish to the controller, one change at a time (SAPS 2016, 3.2.1).

Status machine of a topic: none -> constructing -> constructed <-> updating, constructed -> deleting -> none. Members
may be added to a tree at any time: it costs those in it nothing. Before anybody is taken out, or the tree goes,
everything that has been told about it is taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saps.agents.api import Answers
from saps.agents.roster import Roster
from saps.agents.switchover import Controller, Member, Mode, Modes
from saps.ofm.northbound.schema import OfmRequest, OfmState, Status
from saps.ofm.topology import BrokerAddress
from saps.overlay.keys import BrokerRef
from saps.overlay.port import Port
from saps.overlay.trees import Tree

DRAIN = 0.2
"""Seconds that a datagram may be under way: so long a tree stays as it is after nobody uses it any more."""
REVOKE_AGAIN = 0.05
"""Seconds until a broker is asked again that could not let go of a tree at once."""
REVOKE_AT_MOST = 5.0
"""Seconds after which a broker of BOTH that has not let go is taken for dead."""
POLL = 0.1
"""Seconds between two questions to a controller that is at work."""
CONTROLLER_PATIENCE = 3.0
"""Seconds after which a call to the controller is taken for lost, and between two attempts to reach it."""

Done = Callable[[], None]
Answered = Callable[[OfmState | None], None]
Wish = tuple[frozenset[BrokerAddress], frozenset[BrokerAddress]]
"""Broker list, and those of the others that only send."""
Call = Callable[[Member, str, tuple[Any, ...], Callable[[Answers], None]], None]
"""Calls a method of a broker's OFM agent."""


class Lease:
    """What a publisher has been told (EITHER)."""

    __slots__ = ("member", "until", "uses_tree")

    def __init__(self, member: Member, until: float, uses_tree: bool) -> None:
        self.member = member
        self.until = until
        self.uses_tree = uses_tree


class Topic:
    """A topic that somebody has asked for, or asked about."""

    def __init__(self, name: str, mode: Mode) -> None:
        self.name = name
        self.mode = mode
        self.wanted = False
        self.status = Status.NONE
        self.reason: str | None = None
        """Why it was refused last, or what the controller waits for."""
        self.tree: Tree | None = None
        self.built: Wish | None = None
        """What the tree has been built for; None: not known, to be asked for again."""
        self.busy = False
        """A change is under way; what is wished meanwhile comes after it."""
        self.attempt = 0
        """Names the present call to the controller: answers to earlier ones count for nothing."""
        self.leases: dict[str, Lease] = {}
        self.members: dict[str, Member] = {}
        """BOTH: the wished members, by name."""
        self.senders: dict[str, Member] = {}
        """Publishers that want to use the tree, by name."""
        self.gone: set[str] = set()
        """BOTH: members that have left this tree, and do not come back by themselves."""


class Construction:
    """All topics of a leading OFGate. `close` it when it does not lead any more."""

    def __init__(
        self,
        port: Port,
        controller: Controller,
        modes: Modes,
        roster: Roster,
        call: Call,
        changed: Callable[[Topic], None],
    ) -> None:
        """`changed` runs with each topic whose status has changed."""
        self._port = port
        self._controller = controller
        self._modes = modes
        self._roster = roster
        self._call = call
        self._changed = changed
        self._epoch = port.me.incarnation << 12
        self._closed = False
        self.topics: dict[str, Topic] = {}

    def close(self) -> None:
        """Begin nothing more, and take no answer into account."""
        self._closed = True

    def topic(self, name: str) -> Topic:
        """The topic's record."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = Topic(name, self._modes.of(name))
        return topic

    def interested(self, topic: Topic) -> dict[str, Member]:
        """The wished members of a tree, by name."""
        return topic.members if topic.mode is Mode.BOTH else self._roster.interested(topic.name)

    def adopt(self, state: OfmState) -> None:
        """The controller has this OFM already: go on with it."""
        if state.status in (Status.NONE, Status.DELETING, Status.REFUSED):
            return
        topic = self.topic(state.topic)
        topic.wanted = True
        for member in self._roster.at(state.brokers):
            into = topic.members if self._roster.wants(member, state.topic) else topic.senders
            into[member.ref.name] = member
        if state.address is not None:
            epoch = self._roster.epoch_of(topic.name, state.address)
            topic.tree = Tree(state.address, epoch or self._next_epoch())
            self._now(topic, Status.CONSTRUCTED)
        self.advance(topic)

    def advance(self, topic: Topic) -> None:
        """Take the next step towards what is wished, unless one is under way."""
        if topic.busy or self._closed:
            return
        wish = self._wish(topic)
        if topic.tree is None:
            if wish is None:
                topic.wanted = False
                self._now(topic, Status.NONE)
            else:
                topic.busy = True
                self._now(topic, Status.CONSTRUCTING)
                self._put(topic)
        elif wish is None:
            topic.busy, topic.wanted = True, False
            self._now(topic, Status.DELETING)
            self._take_back(topic, lambda: self._delete(topic))
        elif topic.built is None or not wish[0] >= topic.built[0]:
            topic.busy = True
            self._now(topic, Status.UPDATING)
            # Who leaves S(t$OFM) has told all publishers before it tells OFGate (BOTH).
            certain = topic.mode is Mode.BOTH and topic.built is not None
            (self._put if certain else lambda topic: self._take_back(topic, lambda: self._put(topic)))(topic)
        elif not wish[0] | wish[1] <= topic.built[0] | topic.built[1] or wish[0] != topic.built[0]:
            topic.busy = True
            self._now(topic, Status.UPDATING)
            self._put(topic)

    def tell_constructed(self, topic: Topic) -> None:
        """Publishers may use the tree now, or for more members; with BOTH, members may join S(t$OFM)."""
        if topic.tree is None:
            return
        for name, lease in list(topic.leases.items()):
            if lease.until <= self._port.now:
                del topic.leases[name]
        if topic.mode is Mode.BOTH:
            told = list((topic.senders | topic.members).values())
        else:
            told = [lease.member for lease in topic.leases.values()]
        for member in told:
            self._call(member, "constructed", (topic.name, *topic.tree), lambda answers: None)

    def _now(self, topic: Topic, status: Status) -> None:
        if topic.status is not status:
            topic.status = status
            self._changed(topic)

    def _wish(self, topic: Topic) -> Wish | None:
        """What the tree should be; None: it should not be."""
        members = self.interested(topic)
        if not topic.wanted or not members:
            return None
        brokers = frozenset(member.element for member in members.values())
        return brokers, frozenset(member.element for member in topic.senders.values()) - brokers

    def _next_epoch(self) -> int:
        self._epoch = max(self._epoch, self._roster.highest_epoch) + 1
        return self._epoch

    # --- the controller -----------------------------------------------------------------------------------------

    def _put(self, topic: Topic) -> None:
        """Have the controller build what is wished now."""
        wish = self._wish(topic)
        if wish is None:
            self._unwanted(topic)
            return
        request = OfmRequest(topic.name, sorted(wish[0]), senders=sorted(wish[1]))

        def answered(state: OfmState) -> None:
            if state.status is Status.REFUSED:
                topic.wanted, topic.reason = False, state.reason
                self._unwanted(topic)
            elif state.status is Status.CONSTRUCTED and state.address is not None:
                self._built(topic, wish, state.address)
            else:
                topic.reason = state.reason
                self._again(topic, POLL, self._put)

        self._attempt(topic, lambda done: self._controller.put(request, done), answered, self._put)

    def _unwanted(self, topic: Topic) -> None:
        """What was to be built is not wished any more, or cannot be had."""
        if topic.tree is None:
            self._delete(topic)
        else:
            topic.busy = False
            self._now(topic, Status.CONSTRUCTED)
            self.advance(topic)

    def _delete(self, topic: Topic) -> None:
        def answered(state: OfmState) -> None:
            if state.status is Status.NONE:
                self._deleted(topic)
            else:
                self._again(topic, POLL, self._delete)

        self._attempt(topic, lambda done: self._controller.delete(topic.name, done), answered, self._delete)

    def _attempt(
        self,
        topic: Topic,
        call: Callable[[Answered], None],
        answered: Callable[[OfmState], None],
        again: Callable[[Topic], None],
    ) -> None:
        """Make a call to the controller; if it cannot be reached or the answer gets lost, `again`."""
        topic.attempt += 1
        attempt = topic.attempt

        def done(state: OfmState | None) -> None:
            if topic.attempt == attempt and not self._closed and state is not None:
                topic.attempt += 1
                answered(state)

        def lost() -> None:
            if topic.attempt == attempt and not self._closed:
                again(topic)

        self._port.after(CONTROLLER_PATIENCE, lost)
        call(done)

    def _again(self, topic: Topic, delay: float, step: Callable[[Topic], None]) -> None:
        attempt = topic.attempt

        def due() -> None:
            if topic.attempt == attempt and not self._closed:
                step(topic)

        self._port.after(delay, due)

    def _built(self, topic: Topic, wish: Wish, address: str) -> None:
        if topic.tree is None or topic.tree.address != address:
            topic.tree = Tree(address, self._next_epoch())
            topic.gone.clear()
        topic.built, topic.busy, topic.reason = wish, False, None
        self._now(topic, Status.CONSTRUCTED)
        for name in topic.gone & topic.members.keys():
            if topic.members[name].element in wish[0]:
                topic.gone.discard(name)
                self._call(topic.members[name], "admitted", (topic.name, *topic.tree), lambda answers: None)
        self.tell_constructed(topic)
        self.advance(topic)

    def _deleted(self, topic: Topic) -> None:
        topic.tree = topic.built = None
        topic.gone.clear()
        if not topic.wanted:
            topic.members.clear()
        topic.busy = False
        self._now(topic, Status.NONE)
        self.advance(topic)

    # --- taking back what has been told ---------------------------------------------------------------------------

    def _take_back(self, topic: Topic, then: Done) -> None:
        """Run `then` when nobody uses the tree as it is any more, and what is under way has arrived."""
        if topic.mode is Mode.EITHER:
            leases = [lease for lease in topic.leases.values() if lease.uses_tree]
            holders = {lease.member: lease.until for lease in leases}
        else:
            users = (topic.members | topic.senders).values()
            holders = dict.fromkeys(users, self._port.now + REVOKE_AT_MOST)
        waiting = {member.ref for member in holders}

        def drained() -> None:
            if not self._closed:
                then()

        def let_go(ref: BrokerRef) -> None:
            waiting.discard(ref)
            if not waiting:
                self._port.after(DRAIN, drained)

        for member, until in holders.items():
            self._revoke(topic, member, until, let_go)
        if not holders:
            self._port.after(DRAIN, drained)

    def _revoke(self, topic: Topic, member: Member, until: float, let_go: Callable[[BrokerRef], None]) -> None:
        """Ask until the broker has let go, or its time is over."""
        epoch = topic.tree.epoch if topic.tree is not None else 0
        over = False

        def done() -> None:
            nonlocal over
            if not over and not self._closed:
                over = True
                lease = topic.leases.get(member.ref.name)
                if lease is not None:
                    lease.uses_tree = False
                let_go(member.ref)

        def answered(answers: Answers) -> None:
            if any(answer.value is True for answer in answers):
                done()
            else:
                self._port.after(REVOKE_AGAIN, ask)

        def ask() -> None:
            if not over and not self._closed:
                self._call(member, "revoke", (topic.name, epoch), answered)

        self._port.after(max(0.0, until - self._port.now), done)
        ask()
