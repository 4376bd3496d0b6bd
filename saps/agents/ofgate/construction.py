"""The trees of OFGate's topics: carries each topic from the intent to the controller, one change at a time (SAPS 2016,
3.2.1).

Status machine of a topic: none -> constructing -> constructed <-> updating, constructed -> deleting -> none; and
constructing -> refused -> constructing, when the controller has room or the intent changes. A tree can take in members
at any time, at no cost to those in it. Before a member is taken out or the tree is deleted, OFGate takes back
everything that it has told about the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from functools import partial

from saps.agents.ofgate.calls import Calls
from saps.agents.ofgate.planes import Planes
from saps.agents.ofgate.record import Intent, Topic
from saps.agents.ofgate.revocation import Call, Revocation
from saps.agents.ofgate.roster import Roster
from saps.agents.switchover import Controller, Member, Mode, Modes
from saps.ofm.keys.server import KeyServer, Tell
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.schema import OfmRequest, OfmState, Status
from saps.ofm.stateless.address import EVERY_TOPIC
from saps.overlay.delivery.ofm_members import Tree
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef

DOUBT, DOUBT_AT_MOST = 0.5, 30.0
"""Delays in seconds, at first and at most, for which a topic stays on ALM when its tree again differs from what was
built; the delay doubles each time. Without it, two OFGates that reach the same controller but not each other would
rebuild each other's trees for ever."""
CALM = 10.0
"""Time in seconds after which a rebuilt tree is trusted again."""
POLL = 0.1
"""Interval in seconds between two questions to a controller that is still at work."""


class Construction:
    """All topics of a leading OFGate. Call `close` when it stops leading."""

    def __init__(
        self,
        port: Port,
        controller: Controller,
        modes: Modes,
        roster: Roster,
        call: Call,
        changed: Callable[[Topic], None],
        tell: Tell,
        draw: Callable[[int], bytes],
    ) -> None:
        """`changed` runs with each topic whose status has changed. `tell`, `draw`: see `KeyServer`."""
        self._port = port
        self._controller = controller
        self._modes = modes
        self._roster = roster
        self._call = call
        self._calls = Calls(port)
        self._revocation = Revocation(port, call)
        self._changed = changed
        self._epoch = port.me.incarnation << 12
        self._closed = False
        self.topics: dict[str, Topic] = {}
        self.keys = KeyServer(port, tell, draw, self._held_late)
        """The keys of the trees. A tree is constructed when the switches have it and its brokers have its key."""
        self.planes = Planes(controller, roster, self.keys, self._calls, call, self._next_epoch)
        """The planes of stateless delivery."""

    def close(self) -> None:
        """Begin nothing more, and ignore all later answers."""
        self._closed = True
        self._calls.close()
        self._revocation.close()
        self.keys.close()

    def topic(self, name: str) -> Topic:
        """Return the topic's record, and create it if needed."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = Topic(name, self._modes.of(name))
        return topic

    def forget_idle(self) -> None:
        """Forget the topics that are not wanted, have no tree, and about which no publisher holds an answer."""
        for name, topic in list(self.topics.items()):
            told = any(lease.until > self._port.now for lease in topic.leases.values())
            if not (topic.wanted or topic.busy or topic.tree or topic.refused or told):
                del self.topics[name]

    def interested(self, topic: Topic) -> dict[str, Member]:
        """Return the wanted members of a tree, by name."""
        return topic.members if topic.mode is Mode.BOTH else self._roster.interested(topic.name)

    def adopt(self, state: OfmState) -> None:
        """Take over an OFM that the controller already has."""
        if state.topic == EVERY_TOPIC:
            self.planes.take(state)
            return
        if state.status in (Status.NONE, Status.DELETING):
            return
        topic = self.topic(state.topic)
        topic.wanted = True
        for member in self._roster.at(state.brokers):
            into = topic.members if self._roster.wants(member, state.topic) else topic.senders
            into[member.ref.name] = member
        if topic.mode is Mode.BOTH:
            topic.members |= self._roster.joined(topic.name)  # the former leader may have changed the tree under them
        if state.address is not None:
            epoch = self._roster.epoch_of(topic.name)
            topic.tree = Tree(state.address, epoch or self._next_epoch())
            self._now(topic, Status.CONSTRUCTED)
        self.advance(topic)

    def advance(self, topic: Topic) -> None:
        """Take the next step towards the intent, unless a step is under way."""
        if topic.busy or self._closed:
            return
        intent = self._intent(topic)
        if topic.tree is None:
            if intent is None:
                topic.wanted = False
                if topic.refused is not None:
                    topic.busy = True
                    self._delete(topic)
                else:
                    self._now(topic, Status.NONE)
            elif intent != topic.refused:
                topic.busy = True
                self._now(topic, Status.CONSTRUCTING)
                self._put(topic)
        elif intent is None:
            topic.busy, topic.wanted = True, False
            self._now(topic, Status.DELETING)
            self._revocation.take_back(topic, lambda: self._delete(topic))
        elif topic.built is None or not intent[0] >= topic.built[0]:
            topic.busy = True
            self._now(topic, Status.UPDATING)
            # A member that leaves S(t$OFM) tells all publishers before it tells OFGate (BOTH): nothing to take back.
            certain = topic.mode is Mode.BOTH and topic.built is not None
            (self._put if certain else lambda topic: self._revocation.take_back(topic, lambda: self._put(topic)))(topic)
        elif not intent[0] | intent[1] <= topic.built[0] | topic.built[1] or intent[0] != topic.built[0]:
            topic.busy = True
            self._now(topic, Status.UPDATING)
            self._put(topic)
        elif topic.renew or not self.keys.fits(topic.name, self._parties(topic, topic.built)):
            topic.busy = True
            self._now(topic, Status.UPDATING)
            self._share_key(topic, topic.built, topic.tree.address)

    def doubt(self, topic: Topic) -> None:
        """Rebuild a tree that is not what was built. Until then all users give it up."""
        topic.busy = True
        self._now(topic, Status.UPDATING)
        trust = topic.trust
        delay = min(DOUBT * 2 ** (trust.doubts - 1), DOUBT_AT_MOST) if trust.doubts else 0.0
        trust.doubts += 1

        def calm(doubts: int) -> None:
            if trust.doubts == doubts:
                trust.doubts = 0

        def again() -> None:
            self._port.after(delay, lambda: self._put_unless_closed(topic))
            self._port.after(delay + CALM, partial(calm, trust.doubts))

        self._revocation.take_back(topic, again)

    def bury(self, topic: Topic, living: Set[str]) -> None:
        """BOTH: take dead members out of a tree that is being rebuilt, and that all users have left: perhaps there is
        no path to them. Those in a tree that stands cost nothing, and may come back."""
        if topic.mode is Mode.BOTH and topic.busy and topic.departures.all:
            for name in topic.members.keys() - living:
                del topic.members[name]

    def again(self, topic: Topic) -> None:
        """Try again: the controller no longer refuses what it has refused."""
        topic.refused = None
        self.advance(topic)

    def follow(self, topic: Topic, state: OfmState) -> None:
        """Use the new address of a tree that the controller has moved to other links. The former address still works
        for its users, so nothing is taken back."""
        assert state.address is not None
        topic.tree = Tree(state.address, self._next_epoch())
        topic.departures.clear()
        self.tell_constructed(topic)

    def remeasure(self, topic: Topic) -> None:
        """Tell the controller that the expected demand of the topic has changed, if its tree stands as intended."""
        if not topic.busy and not self._closed and topic.tree is not None and self._intent(topic) == topic.built:
            topic.busy = True
            self._put(topic)

    def _put_unless_closed(self, topic: Topic) -> None:
        if not self._closed:
            self._put(topic)

    def tell_constructed(self, topic: Topic) -> None:
        """Tell the publishers that they may use the tree now, or use it for more members. With BOTH, members may now
        join S(t$OFM)."""
        if topic.tree is None:
            return
        for name, lease in list(topic.leases.items()):
            if lease.until <= self._port.now:
                del topic.leases[name]
        label, holders = self.keys.label(topic.name), self.keys.holders(topic.name)
        if topic.mode is Mode.BOTH:
            # A newcomer does not hold the key yet: it would join S(t$OFM) without being able to read.
            told = [member for member in (topic.senders | topic.members).values() if member.ref in holders]
        else:
            told = [lease.member for lease in topic.leases.values()]
        for member in told:
            self._call(member, "constructed", (topic.name, *topic.tree, label), lambda answers: None)

    def _now(self, topic: Topic, status: Status) -> None:
        if topic.status is not status:
            topic.status = status
            self._changed(topic)

    def _intent(self, topic: Topic) -> Intent | None:
        """Return the brokers that the tree should serve and those that only send, or None if there should be no
        tree."""
        brokers = self._elements(topic, self.interested(topic).values()) if topic.wanted else None
        if not brokers:
            return None
        return brokers, self._elements(topic, topic.senders.values()) - brokers

    def _elements(self, topic: Topic, members: Iterable[Member]) -> frozenset[BrokerAddress]:
        """Return the elements of those members that may be in the topic's tree."""
        return frozenset(member.element for member in members if self._roster.permitted(topic.name, member))

    def _next_epoch(self) -> int:
        self._epoch = max(self._epoch, self._roster.highest_epoch) + 1
        return self._epoch

    # --- the controller -----------------------------------------------------------------------------------------

    def _put(self, topic: Topic) -> None:
        """Have the controller build the present intent."""
        intent = self._intent(topic)
        if intent is None:
            self._unwanted(topic)
            return
        request = OfmRequest(topic.name, sorted(intent[0]), senders=sorted(intent[1]))

        def answered(state: OfmState) -> None:
            if state.status is Status.REFUSED:
                topic.reason = state.reason
                self._refused(topic, intent)
            elif state.status is Status.CONSTRUCTED and state.address is not None:
                self._share_key(topic, intent, state.address)
            else:
                topic.reason = state.reason
                self._calls.later(topic.name, POLL, lambda: self._put(topic))

        self._calls.make(
            topic.name, lambda done: self._controller.put(request, done), answered, lambda: self._put(topic)
        )

    def _unwanted(self, topic: Topic) -> None:
        """Handle an intent that was withdrawn before its tree was built."""
        if topic.tree is None:
            self._delete(topic)
        else:
            topic.busy = False
            self._now(topic, Status.CONSTRUCTED)
            self.advance(topic)

    def _refused(self, topic: Topic, intent: Intent) -> None:
        """Handle the controller's refusal of an intent. A tree that stands for fewer members is deleted."""
        if topic.tree is not None:
            self._now(topic, Status.DELETING)
            self._revocation.take_back(topic, lambda: self._delete(topic))
            return
        topic.refused, topic.busy = intent, False
        self._now(topic, Status.REFUSED)
        self.advance(topic)

    def _delete(self, topic: Topic) -> None:
        def answered(state: OfmState) -> None:
            if state.status is Status.NONE:
                self._deleted(topic)
            else:
                self._calls.later(topic.name, POLL, lambda: self._delete(topic))

        self._calls.make(
            topic.name, lambda done: self._controller.delete(topic.name, done), answered, lambda: self._delete(topic)
        )

    def _share_key(self, topic: Topic, intent: Intent, address: str) -> None:
        """Share the tree's key with the brokers in the tree, and with no others. The switches already have the tree."""

        def shared() -> None:
            if not self._closed:
                self._built(topic, intent, address)

        renew, topic.renew = topic.renew, False
        self.keys.change(topic.name, self._parties(topic, intent), shared, renew=renew)

    def _parties(self, topic: Topic, intent: Intent) -> set[BrokerRef]:
        """Return the brokers at these elements that want or send the topic, each in its present incarnation."""
        found: dict[str, BrokerRef] = {}
        for member in (*self.interested(topic).values(), *topic.senders.values()):
            known = found.get(member.ref.name)
            if member.element in intent[0] | intent[1] and (
                known is None or known.incarnation < member.ref.incarnation
            ):
                found[member.ref.name] = member.ref
        return set(found.values())

    def _held_late(self, name: str) -> None:
        """Tell the news that one more broker holds a topic's key."""
        if name == EVERY_TOPIC and not self._closed:
            self.planes.tell()
        topic = self.topics.get(name)
        if topic is not None and not topic.busy and not self._closed:
            self.tell_constructed(topic)

    def _built(self, topic: Topic, intent: Intent, address: str) -> None:
        if topic.tree is None or topic.tree.address != address or topic.departures.all:
            topic.tree = Tree(address, self._next_epoch())
            topic.departures.clear()
        topic.built, topic.busy, topic.reason, topic.refused = intent, False, None, None
        topic.trust.unsure = None
        self._now(topic, Status.CONSTRUCTED)
        for name in topic.departures.members & topic.members.keys():
            if topic.members[name].element in intent[0]:
                topic.departures.members.discard(name)
                self._call(topic.members[name], "admitted", (topic.name, *topic.tree), lambda answers: None)
        self.tell_constructed(topic)
        self.advance(topic)

    def _deleted(self, topic: Topic) -> None:
        topic.tree = topic.built = topic.refused = None
        self.keys.drop(topic.name)
        topic.departures.clear()
        if not topic.wanted:
            topic.members.clear()
        topic.busy = False
        self._now(topic, Status.NONE)
        self.advance(topic)
