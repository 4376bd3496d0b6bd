"""Designs the overlay for all brokers: surveys their interests, grows trees, and publishes the changes.

The designer is the broker with the first broker key: no election, and when it goes the next one finds itself first.
Every `interval` it asks all brokers for their filters and the topics they publish to, by one range call over the
brokers' own keys: a message a broker, where one over all topics would take a message a key. What is new it mends into
the trees (`LiveOverlay`: a few links each), and it grows all trees anew when the interests have drifted or the design
is worn (`growth.WORN`). Then it publishes the trees that differ, in bounded parts; brokers that have missed something
get the whole.

Wildcard filters are resolved against the topics known: those that some broker publishes to or has an exact filter for.
A topic nobody has named yet is in no design, and goes as without one. So do topics with one member. A broker that
publishes to a topic without a subscriber of its own is not in its tree: it would be a relay.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import NamedTuple

from saps.overlay.design.growth import fresh, growth, overlay_of, trees_of
from saps.overlay.design.live import LiveOverlay
from saps.overlay.frames.calls import DesignPart, Survey, Surveyed
from saps.overlay.frames.ring import Found
from saps.overlay.port import Port
from saps.overlay.rendezvous.designed import AHEAD, Designs, Position, Shape, parts
from saps.overlay.rendezvous.range_calls import Outcome, RangeCalls
from saps.overlay.ring.keys import ALL_BROKERS, Range, broker_key, one_broker
from saps.overlay.ring.skip_graph import SkipGraph
from saps.topics import ancestors, is_wildcard, literal_prefix, matches

ATTEMPTS = 4
"""Attempts of a range call; a broker gets what it has missed after the next survey."""
APART = 8
"""Most brokers that get the whole design individually after they have missed a part; if more have, all brokers get
it."""
STEPS = 4
"""Trees grown in one step; between two steps the broker handles other events."""
BREATH = 0.005
"""Seconds between two steps."""

Overlay = LiveOverlay[str, str]
Interests = dict[str, list[str]]
"""By topic: the sorted names of the brokers that want it."""


class DesignSettings(NamedTuple):
    """The settings of a designed overlay."""

    levels: int = 1
    """Levels of a tree below its root. 1: at most 2 hops. 2: at most 4 hops, and fewer links for the busiest broker."""
    interval: float = 30.0
    """Seconds between two surveys."""
    drift: float = 0.2
    """Share of changed subscriptions at which all trees are grown anew."""


class Designer:
    """The designer of one broker. Every broker has one; only that of the first broker works."""

    def __init__(
        self, port: Port, graph: SkipGraph, calls: RangeCalls, designs: Designs, settings: DesignSettings
    ) -> None:
        self._port = port
        self._graph = graph
        self._calls = calls
        self._designs = designs
        self.settings = settings
        self._busy = False
        self._overlay: Overlay | None = None
        """The design while this broker is the designer, else None."""
        self._position = Position(0, "", 0)
        """Epoch and designer of this broker's designs."""
        self._changes = 0
        """Subscriptions that have changed since all trees were grown."""
        self._fresh = fresh(LiveOverlay[str, str]())
        """The measures of the design at that time."""
        self.grown = 0
        """How often all trees were grown anew."""

    def tick(self) -> None:
        """If this broker is the first, survey the mesh and update the design. Called once in an `interval`."""
        if self._busy:
            return
        if not self._may_be_first():
            self._overlay = None
            return

        def found(answer: Found) -> None:
            first = answer.right is not None and answer.right.broker == self._port.me
            if not first:
                self._overlay = None
            elif not self._busy:
                self._busy = True
                self._calls.call(ALL_BROKERS, Survey(), self._surveyed, ATTEMPTS)

        self._graph.find(ALL_BROKERS.low, found)

    def _may_be_first(self) -> bool:
        """Return whether the left neighbour of this broker's key is no broker key, or lies at the other end of the
        ring: then this broker may be the first one."""
        key = broker_key(self._port.me.name)
        node = self._graph.nodes.get(key)
        left = None if node is None else node.left[0]
        return node is not None and (left is None or not ALL_BROKERS.low <= left.key < key)

    # --- the design -----------------------------------------------------------------------------------------

    def _surveyed(self, outcome: Outcome) -> None:
        answers = {result.broker.name: result for result in outcome.results if isinstance(result, Surveyed)}
        if not outcome.complete or self._port.me.name not in answers:
            self._busy = False
            return
        latest = self._designs.position.epoch + AHEAD
        positions = [
            Position(answer.epoch, answer.designer, 0) for answer in answers.values() if answer.epoch <= latest
        ]
        leading = max(positions)
        overlay = self._overlay
        if overlay is None or leading[:2] > self._position[:2]:
            overlay = self._take_up(leading.epoch + 1)
        interests = resolve(answers.values())
        drifted = not overlay.trees
        if not drifted:
            self._changes += mend(overlay, interests)
            drifted = self._changes > self.settings.drift * max(1, sum(map(len, interests.values())))
        if drifted or self._fresh.worn(overlay):
            self._grow(growth(interests, self.settings.levels), answers)
        else:
            self._publish(overlay, answers)

    def _take_up(self, epoch: int) -> Overlay:
        """Become the designer, and continue from the trees that this broker knows."""
        self._position = Position(epoch, self._port.me.name, 0)
        try:
            overlay = overlay_of(self._designs.trees, self.settings.levels)
        except ValueError:  # made for other settings
            overlay = LiveOverlay(self.settings.levels)
        self._overlay = overlay
        self._changes, self._fresh = 0, fresh(overlay)
        return overlay

    def _grow(self, growing: Generator[None, None, Overlay], answers: Mapping[str, Surveyed]) -> None:
        """Grow all trees anew in steps, then publish them."""
        try:
            for _ in range(STEPS):
                next(growing)
        except StopIteration as end:
            self._overlay = end.value
            self._changes, self._fresh = 0, fresh(end.value)
            self.grown += 1
            self._publish(end.value, answers)
        else:
            self._port.after(BREATH, lambda: self._grow(growing, answers))

    # --- to the others ----------------------------------------------------------------------------------------

    def _publish(self, overlay: Overlay, answers: Mapping[str, Surveyed]) -> None:
        """Send the changes to all brokers, and the whole design to those that have missed a part."""
        wanted = {topic: Shape(*tree) for topic, tree in trees_of(overlay).items() if tree[1]}
        known, mine = self._designs.trees, self._designs.position
        behind = [name for name, answer in answers.items() if (answer.epoch, answer.designer, answer.serial) != mine]
        if mine[:2] != self._position[:2] or len(behind) > APART:
            serial = mine.serial + 1 if mine[:2] == self._position[:2] else 1
            self._send([(ALL_BROKERS, part) for part in parts(self._position, 0, serial, wanted)])
            return
        changed: dict[str, Shape | None] = {topic: tree for topic, tree in wanted.items() if known.get(topic) != tree}
        changed.update((topic, None) for topic in known if topic not in wanted)
        letters = [(ALL_BROKERS, part) for part in parts(mine, mine.serial, 0, changed)] if changed else []
        last = letters[-1][1].serial if letters else mine.serial
        letters += [(one_broker(name), part) for name in behind for part in parts(mine, 0, last, wanted)]
        self._send(letters)

    def _send(self, letters: list[tuple[Range, DesignPart]]) -> None:
        """Send parts one after the other: a part is useful only to a broker that has the one before it."""
        if not letters:
            self._busy = False
            return
        (to, part), *rest = letters
        self._calls.call(to, part, lambda outcome: self._send(rest), ATTEMPTS)


def resolve(answers: Iterable[Surveyed]) -> Interests:
    """Return for each known topic the brokers that want it."""
    answers = sorted(answers, key=lambda answer: answer.broker.name)
    wanting: dict[str, dict[str, None]] = {}
    wild: dict[str | None, dict[str, list[str]]] = {}
    for answer in answers:
        for topic in answer.topics:
            wanting.setdefault(topic, {})
        for topic_filter in answer.filters:
            if is_wildcard(topic_filter):
                wild.setdefault(literal_prefix(topic_filter), {}).setdefault(topic_filter, []).append(
                    answer.broker.name
                )
            else:
                wanting.setdefault(topic_filter, {})[answer.broker.name] = None
    for topic, names in wanting.items():
        for prefix in (*ancestors(topic), None):
            for topic_filter, more in wild.get(prefix, {}).items():
                if matches(topic_filter, topic):
                    names.update(dict.fromkeys(more))
    return {topic: sorted(names) for topic, names in sorted(wanting.items()) if names}


def mend(overlay: Overlay, interests: Interests) -> int:
    """Adapt the trees to the interests, by a few links each. Returns the number of changed subscriptions."""
    topics_of: dict[str, dict[str, None]] = {}
    for topic, names in interests.items():
        for name in names:
            topics_of.setdefault(name, {})[topic] = None
    changes = 0
    for name in [name for name in overlay.topics if name not in topics_of]:
        changes += len(overlay.topics[name])
        overlay.leave(name)
    for name, topics in topics_of.items():
        if name not in overlay.topics:
            overlay.join(name, ())
        changes += _each(overlay.unsubscribe, name, [topic for topic in overlay.topics[name] if topic not in topics])
    for name, topics in topics_of.items():
        changes += _each(overlay.subscribe, name, [topic for topic in topics if topic not in overlay.topics[name]])
    return changes


def _each(change: Callable[[str, str], object], name: str, topics: list[str]) -> int:
    for topic in topics:
        change(name, topic)
    return len(topics)
