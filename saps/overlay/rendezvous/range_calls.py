"""Range calls: run a body at every node of a range and gather the aggregated reply (SAPS 2016, section 3).

A call is routed to the predecessor of the range; from there each node keeps the part up to its first right neighbour
and hands the rest of its range to its right neighbours, farthest first, so that k nodes cost k messages at most and the
depth is O(log k). A reply travels back along the same tree. A call that could not reach some part says so and is
repeated by its caller until it is complete: what it runs must bear that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from saps.overlay.frames.base import ProtocolError
from saps.overlay.frames.calls import Announce, AnnounceTree, Body, Broadcast, Gathered, Gone, Locate, Result, Segment
from saps.overlay.port import Bodies, Handlers, Port
from saps.overlay.ring.keys import BrokerRef, Key, Range, Ref
from saps.overlay.ring.routing import Node, State
from saps.overlay.ring.skip_graph import SkipGraph
from saps.overlay.timeouts import SharedTimeout

ATTEMPT, LONGEST_ATTEMPT = 0.5, 4.0
"""First and longest time in seconds after which an unanswered call is repeated; it doubles each time."""
PAUSE = 0.1
"""Seconds before an incomplete call is repeated."""
LONGEST_PAUSE = 1.0
"""Limit of the pause in seconds, which doubles while a crash is being repaired and ends with the repair. Until then no
outcome counts, but each attempt may run the body at nodes that the earlier ones could not reach."""
AT_ONCE = 0.25
"""Seconds within which nodes known from an earlier call have to answer; then they are asked by a search."""
DEEPEST = 1024
"""Most times that a call may be forwarded: O(log k) for k nodes, more where upper levels are missing."""
NOWHERE = Range(Key(b""), Key(b""))
"""The range of a call to known nodes."""

CONCERN_THE_BROKER = (Announce, AnnounceTree)
"""Bodies that do the same at all keys of a broker: they run at one of its keys."""


class Outcome(NamedTuple):
    """The result of a range call."""

    results: list[Result]
    complete: bool
    depth: int
    """Hops of the longest branch."""
    outdated: bool = False
    """Whether part of the range is at brokers of an older version, which cannot answer."""


class Call:
    """A call made by this broker."""

    __slots__ = ("attempts", "body", "done", "gathering", "over", "part", "pause", "range", "timeout")

    def __init__(self, wanted: Range, body: Body, done: Callable[[Outcome], None], attempts: int) -> None:
        self.range = wanted
        self.body = body
        self.done = done
        self.attempts = attempts
        self.timeout = ATTEMPT
        self.pause = PAUSE
        self.part = 0
        """Number of the current attempt."""
        self.over = False
        self.gathering: _Gathering | None = None
        """For a call to known nodes: their answers so far."""


class _Gathering:
    """A part of a call that this broker has forwarded, until all replies are in."""

    __slots__ = ("complete", "depth", "outdated", "part", "results", "to", "waiting")

    def __init__(self, to: BrokerRef, part: int, depth: int) -> None:
        self.to = to
        self.part = part
        self.results: list[Result] = []
        self.complete = True
        self.outdated = False
        self.depth = depth
        self.waiting: dict[int, BrokerRef] = {}


class RangeCalls:
    """All range calls that pass through one broker."""

    def __init__(
        self, port: Port, graph: SkipGraph, calm: Callable[[], bool], met: Callable[[BrokerRef], None]
    ) -> None:
        """`calm` returns whether no crash is being repaired. `met` is called with each broker that has made a call."""
        self._port = port
        self._graph = graph
        self._calm = calm
        self._met = met
        self.bodies: Bodies = {}
        """The handler of each body, which runs at own keys."""
        self._serial = 0
        self._callers: dict[int, Call] = {}
        self._gatherings: dict[int, _Gathering] = {}
        """By the number of each awaited part."""
        self._near = SharedTimeout(port, AT_ONCE, self._late)

    def call(
        self,
        wanted: Range,
        body: Body,
        done: Callable[[Outcome], None],
        attempts: int | None = None,
        timeout: float = ATTEMPT,
    ) -> Call:
        """Run `body` at every node in `wanted`.

        `done` gets the first complete outcome, or the last incomplete one after so many `attempts` (None: no limit). An
        outcome counts as complete only while no crash is being repaired. `timeout`: seconds that the first attempt
        waits."""
        call = Call(wanted, body, done, -1 if attempts is None else attempts)
        call.timeout = timeout
        self._attempt(call)
        return call

    def call_at(self, nodes: Iterable[tuple[Key, BrokerRef]], body: Body, done: Callable[[Outcome], None]) -> None:
        """Run `body` at nodes known from an earlier call, without a search. The outcome is incomplete if one of them is
        missing or has not answered within `AT_ONCE` seconds."""
        self._serial += 1
        me, call = self._port.me, Call(NOWHERE, body, done, 0)
        call.part = self._serial
        self._callers[call.part] = call
        gathering = call.gathering = _Gathering(me, call.part, 0)
        for key, broker in nodes:
            self._serial += 1
            gathering.waiting[self._serial] = broker
            self._gatherings[self._serial] = gathering
            self._port.send(broker, Broadcast(me, self._serial, [(key, key)], body, 1))
        self._near.add(call)

    def cancel(self, call: Call) -> None:
        """Stop repeating a call: `done` gets an incomplete outcome now, unless it got one before."""
        self._callers.pop(call.part, None)
        self._finish(call, Outcome([], complete=False, depth=0))

    @property
    def handlers(self) -> Handlers:
        return {Broadcast: self._on_broadcast, Gathered: self._on_gathered, Locate: self._on_locate}

    def forget(self, broker: BrokerRef) -> None:
        """Complete the parts that wait for a dead broker, as incomplete."""
        for part, gathering in list(self._gatherings.items()):
            if gathering.waiting.get(part) == broker:
                self._on_gathered(broker, Gathered(part, [], complete=False, depth=0))

    # --- the caller ---------------------------------------------------------------------------------------

    def _finish(self, call: Call, outcome: Outcome) -> None:
        if not call.over:
            call.over = True
            call.done(outcome)

    def _attempt(self, caller: Call) -> None:
        if caller.over:
            return
        self._serial += 1
        part = caller.part = self._serial
        self._callers[part] = caller
        caller.attempts -= 1
        low, high = caller.range
        self._locate(Locate(0, None, self._port.me, part, low, high, caller.body))
        if part in self._callers:
            self._port.after(caller.timeout, lambda: self._answer(Gathered(part, [], complete=False, depth=0)))
            caller.timeout = min(2 * caller.timeout, LONGEST_ATTEMPT)

    def _late(self, call: Call) -> None:
        """End a call to known nodes that have not all answered in time."""
        if call.gathering is not None:
            self._give_up(call.gathering)
        self._answer(Gathered(call.part, [], complete=False, depth=0))

    def _answer(self, frame: Gathered) -> None:
        caller = self._callers.pop(frame.part, None)
        if caller is None:
            return
        complete = frame.complete and (caller.gathering is not None or self._calm())
        if complete or frame.outdated or caller.attempts == 0:
            self._finish(caller, Outcome(frame.results, complete, frame.depth, frame.outdated))
        else:
            when = self._port.now + caller.pause
            self._port.after(PAUSE, lambda: self._attempt_again(caller, when))

    def _attempt_again(self, caller: Call, when: float) -> None:
        if caller.attempts < 0 and self._port.now < when and not self._calm():
            self._port.after(PAUSE, lambda: self._attempt_again(caller, when))
        else:
            caller.pause = min(2 * caller.pause, LONGEST_PAUSE)
            self._attempt(caller)

    # --- on the way -----------------------------------------------------------------------------------------

    def _on_locate(self, sender: BrokerRef, frame: Locate) -> None:
        self._graph.check_via(sender, frame)
        self._met(frame.origin)
        self._locate(frame)

    def _locate(self, frame: Locate) -> None:
        node = self._graph.nearest(frame.low)
        if node is None or not self._graph.takes(node, frame.low):
            if not self._graph.forward(node, frame.low, frame):
                self._reply(frame.origin, Gathered(frame.part, [], complete=False, depth=frame.hops))
            return
        gathering = _Gathering(frame.origin, frame.part, frame.hops)
        self._spread(gathering, [(node, frame.low, frame.high)], [], frame.origin, frame.body)

    def _on_broadcast(self, sender: BrokerRef, frame: Broadcast) -> None:
        self._met(frame.origin)
        if frame.depth > DEEPEST:
            raise ProtocolError(f"a call that {sender.name} has handed on {frame.depth} times")
        gathering = _Gathering(sender, frame.part, frame.depth)
        starts: list[tuple[Node, Key, Key]] = []
        here: list[Key] = []
        for at, end in frame.segments:
            node = self._graph.nodes.get(at)
            if node is None:
                gathering.complete = False
                self._port.send(sender, Gone(at))
            elif node.state is State.JOINING:
                node.waiting.append((sender, frame))
                return
            else:
                here.append(at)
                if at < end:  # else it is for this node alone, whatever is beside it
                    starts.append((node, at, end))
        self._spread(gathering, starts, here, frame.origin, frame.body)

    def _spread(
        self,
        gathering: _Gathering,
        starts: list[tuple[Node, Key, Key]],
        here: list[Key],
        origin: BrokerRef,
        body: Body,
    ) -> None:
        """Divide each ``(node, low, end)`` at the right neighbours of the node, run the body at own nodes (`here` has
        those found so far), and forward the other parts."""
        onward: dict[BrokerRef, list[Segment]] = {}
        while starts:
            first, low, end = starts.pop()
            node = self._graph.last_in_row(first, end)
            if node is not first:
                doubted = self._graph.doubts.keys.at_or_after(first.key)
                gathering.complete &= doubted is None or doubted >= node.key
                here.extend(self._own_between(first.key, low, node.key, body))
                low = max(low, node.key)
            right = node.right[0]
            if right is None or not self._port.reachable(right.broker):
                gathering.complete = False
                continue
            if node.doubt_until > self._port.now:
                gathering.complete = False
            for ref, stop in cut(node, low, end, self._port):
                own = self._graph.nodes.get(ref.key) if ref.broker == self._port.me else None
                if own is not None and own.state is not State.JOINING:
                    here.append(own.key)
                    starts.append((own, own.key, stop))
                else:
                    onward.setdefault(ref.broker, []).append((ref.key, stop))
        if here:
            gathering.results.extend(self.bodies[type(body)](body, here))
        for broker, segments in onward.items():
            self._serial += 1
            gathering.waiting[self._serial] = broker
            self._gatherings[self._serial] = gathering
            self._port.send(broker, Broadcast(origin, self._serial, segments, body, gathering.depth + 1))
        if onward:
            self._port.after(LONGEST_ATTEMPT, lambda: self._give_up(gathering))
        self._reply_if_done(gathering)

    def _own_between(self, first: Key, low: Key, last: Key, body: Body) -> list[Key]:
        """Return the own keys of the range that a step from `first` to `last` passes."""
        if isinstance(body, CONCERN_THE_BROKER):
            return [last]
        return [*self._graph.order.between(max(low, first), last), last][first >= low :]

    def _on_gathered(self, sender: BrokerRef, frame: Gathered) -> None:
        """Handle the reply to a forwarded part; only the broker that was asked may give it."""
        gathering = self._gatherings.get(frame.part)
        if gathering is None:
            self._answer(frame)
            return
        if gathering.waiting[frame.part].name != sender.name:
            return
        del self._gatherings[frame.part]
        del gathering.waiting[frame.part]
        gathering.results.extend(frame.results)
        gathering.complete &= frame.complete
        gathering.outdated |= frame.outdated
        gathering.depth = max(gathering.depth, frame.depth)
        self._reply_if_done(gathering)

    def _reply_if_done(self, gathering: _Gathering) -> None:
        if gathering.waiting:
            return
        g = gathering
        self._reply(g.to, Gathered(g.part, g.results, g.complete, g.depth, g.outdated))

    def _reply(self, to: BrokerRef, reply: Gathered) -> None:
        if to == self._port.me and reply.part in self._callers:
            self._answer(reply)
        else:
            self._port.send(to, reply)

    def _give_up(self, gathering: _Gathering) -> None:
        for part in gathering.waiting:
            self._gatherings.pop(part, None)
        gathering.waiting.clear()


def cut(node: Node, low: Key, end: Key, port: Port) -> list[tuple[Ref, Key]]:
    """Divide the range ``(low, end)`` at a node: return each right neighbour in it with the key at which its part
    ends."""
    parts: list[tuple[Ref, Key]] = []
    for ref in reversed(node.right):
        if ref is not None and low < ref.key < end and (ref is node.right[0] or port.reachable(ref.broker)):
            parts.append((ref, end))
            end = ref.key
    return parts
