"""The OFM data path of one broker: publications leave as one datagram along a topic's tree, and come in from others'.

UDP loses, so each loss is found by somebody. The *sender* sees whether its datagram came back (the loopback packet,
SAPS 2016, 3.1.2): if nothing comes back any more the tree is gone, what was outstanding goes again by ALM, and the
tree is tried again after a while. *Members* see gaps in the order (`saps.overlay.delivery.order`) and ask for what is
missing; high-water marks show them a lost end. With QoS 1 and 2 they acknowledge, cumulatively, and who does not is
sent the message by ALM. Here is the sender's half; `saps.ofm.datapath.receiver` is the members'.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

from saps.ofm.datapath.datagram import high_water, publications
from saps.ofm.datapath.loads import Load, Unacknowledged, joined, split, weights
from saps.ofm.datapath.path import Flight, Path
from saps.ofm.datapath.receiver import Receiver
from saps.ofm.datapath.settings import DatapathSettings
from saps.ofm.keys.epochs import Keyring
from saps.ofm.keys.sealing import OVERHEAD, mark_of
from saps.overlay.delivery.multicast import Multicast
from saps.overlay.delivery.ofm_members import Served, Tree
from saps.overlay.delivery.order import Inbox
from saps.overlay.delivery.pending import Pending
from saps.overlay.delivery.publications import to_topic
from saps.overlay.frames.delivery import Ack, HighWater, OfmAck, Part, Publish
from saps.overlay.port import Port
from saps.overlay.rendezvous.publisher_registry import PublisherRegistry
from saps.overlay.rendezvous.streams import Stream
from saps.overlay.ring.keys import BrokerRef

NUMBER = (1 << 62) - 1
"""No number in a datagram takes more bytes than this one."""
PROVEN = 5.0
"""Seconds after which a tree that had failed is good again: if it fails then, it is tried again soon."""
REORDERED = 3
"""A datagram is lost if one that was sent so many later is back (RFC 5681, section 3.2)."""
DEAF = 8
"""Publications with QoS 1 or 2 in a row that a member has not acknowledged, after which ALM serves it."""
ASKED_FOR = 1.0
"""Seconds after the last high-water mark for which a publication may still be asked for."""


class Datapath:
    """A `saps.overlay.delivery.multicast.TreePath`, and the receiver of datagrams. `transmit` sends bytes to an OFM
    address."""

    def __init__(
        self,
        port: Port,
        publishers: PublisherRegistry,
        multicast: Multicast,
        inbox: Inbox,
        wants: Callable[[str], bool],
        transmit: Callable[..., None],
        keys: Keyring,
        settings: DatapathSettings | None = None,
    ) -> None:
        """`wants`: does this broker have a subscriber for a topic? `keys` seal and open all datagrams."""
        self._port = port
        self._publishers = publishers
        self._multicast = multicast
        self._keys = keys
        self._transmit = transmit
        self.mark: Callable[[str], int] | None = None
        """DSCP of a topic's datagrams, a third argument of `transmit`; None: no such argument."""
        self.settings = settings or DatapathSettings()
        self._paths: dict[str, Path] = {}
        self._former: dict[str, Path] = {}
        """Paths given up lately: who misses one of their publications may not have noticed yet."""
        self._serial = 0
        self.on_failed: Callable[[str, Tree], None] | None = None
        """Called when a tree this broker used has been given up, for now."""
        self.counts = {
            "carried": 0, "relayed": 0, "sent": 0, "returned": 0, "lost": 0, "failed": 0, "too_large": 0,
            "overflowed": 0, "repeated": 0,
            "received": 0, "duplicates": 0, "unwanted": 0, "malformed": 0, "acks": 0,
            "unknown_key": 0, "replayed": 0, "forged": 0,
        }  # fmt: skip
        """What happened to datagrams and trees, since the start; `carried` are own publications that left along a tree,
        `relayed` those of origins in other domains; `overflowed` is how often one failed because more came in than it
        carried."""
        self._mine: dict[bytes, tuple[Path, int]] = {}
        """What may come back, by its mark: the path, and the serial."""
        self.receiver = Receiver(port, inbox, wants, keys, self.settings, self.counts)

    # --- which tree to use ------------------------------------------------------------------------------------

    def use(self, topic: str, served: Served | None) -> None:
        """Publications to a topic leave along this tree from now on; None: by ALM. Only while this broker publishes
        there. A tree that has failed is not used before it has been found to work again."""
        path = self._paths.get(topic)
        if path is not None and (served is None or served.tree != path.served.tree):
            self._drop(path)
            path = None
        if served is None or not self._publishers.publishes(topic):
            self._publishers.use_tree(topic, None)
            return
        if path is None:
            path = self._paths[topic] = Path(self._publishers.stream(topic), served, self.settings)
        if not path.served.brokers <= served.brokers:
            self._unload(path)
        path.served = served
        if path.failed_at is None:
            self._publishers.use_tree(topic, path.usable)
        else:
            self._probe(path)  # something about the tree has changed: perhaps it works now

    def _drop(self, path: Path) -> None:
        """Use a path no more: nobody is left to the tree alone."""
        topic = path.stream.topic
        self._paths.pop(topic, None)
        self._former[topic] = path
        self._port.after(self.settings.mark + ASKED_FOR, lambda: self._forget_path(topic, path))
        self._publishers.use_tree(path.stream.topic, None)
        self._resend(path)

    def _forget_path(self, topic: str, path: Path) -> None:
        if self._former.get(topic) is path:
            del self._former[topic]
        self._expect_no_more(path.late.values())

    # --- sending ----------------------------------------------------------------------------------------------

    def send(self, stream: Stream, body: Publish, members: tuple[BrokerRef, ...], pending: Pending | None) -> bool:
        """See `TreePath`, as for all that follow."""
        path = self._paths.get(stream.topic)
        if path is None or path.failed_at is not None:
            return False
        if not members and not path.served.always:
            return True
        return self._accept(path, body, members, pending, self._port.me)

    def represent(
        self, origin: BrokerRef, body: Publish, members: Sequence[BrokerRef], pending: Pending | None
    ) -> Collection[BrokerRef]:
        """See `TreePath`. To have the tree, this broker takes part as a publisher, for as long as something comes."""
        topic = body.parts[0].topic
        stream = self._publishers.stream(topic)
        stream.used = True
        if not self._publishers.publishes(topic):
            self._publishers.open(stream)
        path = self._paths.get(topic)
        if path is None or path.failed_at is not None:
            return ()
        self._publishers.route(stream)
        there = set(stream.served)
        served = tuple(member for member in members if member in there)
        return frozenset(served) if served and self._accept(path, body, served, pending, origin) else ()

    def _accept(
        self, path: Path, body: Publish, members: tuple[BrokerRef, ...], pending: Pending | None, origin: BrokerRef
    ) -> bool:
        """Take publications over, to leave when it is their turn. False if ALM is to: one of them is too large, or the
        tree carries less than comes in. Then all that waits goes by ALM too: what is behind it must not overtake it."""
        found = weights(body)
        load = Load(body, found, sum(found), members, origin)
        if max(load.weights) > self._room(path, origin):
            self.counts["too_large"] += len(body.which)
            return False
        if path.waiting and not path.waiting.has_room(load):
            self.counts["overflowed"] += 1
            self._fail(path)
            return False
        if pending is not None and members:
            pending.waiting += 1
            load.unacknowledged = Unacknowledged(pending, members, math.inf)
            self._queue(path, origin).append(load.unacknowledged)
        path.waiting.add(load)
        self._pump(path)
        return True

    def _queue(self, path: Path, origin: BrokerRef) -> deque[Unacknowledged]:
        """What members must still acknowledge of an origin's publications."""
        return path.pending if origin == self._port.me else path.relayed.setdefault(origin, deque())

    def _room(self, path: Path, origin: BrokerRef) -> int:
        """Bytes for publications in a datagram."""
        overhead = path.overheads.get(origin)
        if overhead is None:
            largest = Publish(0, 0, 0, 2, True, [Part(path.stream.topic, NUMBER)], [], [NUMBER], [b""], [], [])
            representative = None if origin == self._port.me else self._port.me
            empty = publications(path.served.tree, origin, NUMBER, largest, representative)
            overhead = path.overheads[origin] = len(empty) + OVERHEAD
        return self.settings.largest - overhead

    def _pump(self, path: Path) -> None:
        """Send what waits, as far as the window goes."""
        waiting, window = path.waiting, path.window
        while waiting and path.failed_at is None:
            room = self._room(path, waiting.first.origin)
            if not window.admits(len(path.flying), full=waiting.size >= room) or self._is_held(path):
                return
            loads = waiting.take(room)
            if not self._depart(path, loads, room):
                waiting.put_back(loads)
                self._port.after(0.0, lambda: self._without_key(path))
                return

    def _is_held(self, path: Path) -> bool:
        """Is a member so far behind that nothing more may leave? One that does not get on gets ALM."""
        if not path.progress.left_behind():
            path.held_since = None
            return False
        if path.held_since is None:
            path.held_since = self._port.now
        self._wake_by(path, path.held_since + path.answer_time.timeout)
        return True

    def _depart(self, path: Path, loads: list[Load], room: int) -> bool:
        """Send loads that go together, in as many datagrams as it takes. False if there is no key for the first."""
        first, now = loads[0], self._port.now
        me, tree, topic = self._port.me, path.served.tree, path.stream.topic
        body = joined([load.body for load in loads])
        representative = None if first.origin == me else me
        own = representative is None
        sealed: list[tuple[Publish, bytes]] = []
        for part in split(body, [weight for load in loads for weight in load.weights], room):
            plain = publications(tree, first.origin, self._serial + len(sealed) + 1, part, representative)
            raw = self._keys.seal(topic, plain, now)
            if raw is None:
                return False
            sealed.append((part, raw))
        self.counts["carried" if own else "relayed"] += len(body.which)
        if own:
            path.last, path.last_at, path.told, path.members = body, now, False, first.members
        for part, raw in sealed:
            if own:
                path.history.append(part)
                path.progress.sent(first.members, part.seqs[-1])
            self._fly(path, raw, Flight(now, mark_of(raw), part, first.members, None if own else first.origin))
        for load in loads:
            if load.unacknowledged is not None:
                load.unacknowledged.sent = now
        if own:
            self._mark_later(path)
        else:
            self._mark_later_for(path, first.origin, first.members, body.seqs[-1])
        return True

    def _mark_later(self, path: Path) -> None:
        if path.members and not path.marking:
            path.marking = True
            self._port.after(self.settings.mark, lambda: self._mark(path))

    def _mark_later_for(self, path: Path, origin: BrokerRef, members: tuple[BrokerRef, ...], seq: int) -> None:
        """The same for an origin in another domain."""
        if path.told_for.setdefault(origin, 0) == 0:
            self._port.after(self.settings.mark, lambda: self._mark_for(path, origin, members))
        path.told_for[origin] = max(path.told_for[origin], seq)

    def _mark_for(self, path: Path, origin: BrokerRef, members: tuple[BrokerRef, ...]) -> None:
        """As `_mark`, for an origin in another domain."""
        seq = path.told_for.pop(origin, 0)
        for member in members:
            if seq and self._port.reachable(member):
                self._port.send(member, HighWater(path.stream.topic, seq, origin))

    def remembered(self, topic: str, after: int, upto: int) -> list[Publish]:
        paths = [path for path in (self._former.get(topic), self._paths.get(topic)) if path is not None]
        found = [to_topic(body, topic, after, upto) for path in paths for body in path.history]
        if any(found) and (path := self._paths.get(topic)) is not None:
            path.window.lost(path.returned, self._serial)
        return [body for body in found if body is not None]

    def _fly(self, path: Path, raw: bytes, flight: Flight) -> None:
        self._serial += 1
        path.flying[self._serial] = flight
        self._mine[flight.mark] = path, self._serial
        self.counts["sent"] += 1
        if self.mark is None:
            self._transmit(path.served.tree.address, raw)
        else:
            self._transmit(path.served.tree.address, raw, self.mark(path.stream.topic))
        self._wake_by(path, flight.sent + min(path.round_trip.timeout, self.settings.quiet))

    # --- what came of it ----------------------------------------------------------------------------------------

    def receive(self, raw: bytes | memoryview) -> None:
        """A datagram has come in: one of its own, or another's (`saps.ofm.datapath.receiver`)."""
        whole = bytes(raw)
        mine = self._mine.pop(mark_of(whole), None)
        if mine is None:
            self.receiver.receive(whole)
        else:
            self._returned(*mine)

    def _returned(self, path: Path, serial: int) -> None:
        """A loopback packet: the tree is there."""
        under_way = len(path.flying)
        flight = path.flying.pop(serial, None) or path.late.pop(serial, None)
        if flight is None or self._paths.get(path.stream.topic) is not path:
            return
        self.counts["returned"] += 1
        path.round_trip.measured(self._port.now - flight.sent)
        path.returned = max(path.returned, serial)
        if path.failed_at is not None:
            path.failed_at, path.used_since = None, self._port.now
            self._publishers.use_tree(path.stream.topic, path.usable)
            return
        if flight.body is not None and flight.sent - path.used_since > PROVEN:
            path.retry = self.settings.retry
        path.window.returned(under_way)
        for overtaken in [other for other in path.flying if other <= serial - REORDERED]:
            self._lose(path, overtaken)
        self._pump(path)

    def _lose(self, path: Path, serial: int) -> None:
        """A datagram of a tree that is there is lost."""
        self._mine.pop(path.flying.pop(serial).mark, None)
        self.counts["lost"] += 1
        path.window.lost(serial, self._serial)

    def acknowledged(self, sender: BrokerRef, ack: OfmAck) -> None:
        """A member has everything up to a number."""
        path = self._paths.get(ack.topic)
        if path is None:
            return
        path.silent.pop(sender, None)
        if ack.origin is None:
            path.progress.acknowledged(sender, ack.seq)
            path.held_since = None
        queue = path.pending if ack.origin is None else path.relayed.get(ack.origin, deque())
        for each in queue:
            if each.last > ack.seq:
                break
            if sender in each.waiting:
                del each.waiting[sender]
                path.answer_time.measured(self._port.now - each.sent)
                each.pending.add(Ack(0, [(1, ack.subscribers)], []))
        self._clear(queue)
        self._pump(path)

    def _clear(self, queue: deque[Unacknowledged]) -> None:
        """Answers for what has been acknowledged by all."""
        while queue and not queue[0].waiting:
            self._multicast.acknowledgements.answered(queue.popleft().pending, ())

    def forget(self, broker: BrokerRef) -> None:
        """A broker died: nothing is expected of it any more."""
        for path in self._paths.values():
            path.progress.forget(broker)
            for queue in path.queues:
                for each in queue:
                    each.waiting.pop(broker, None)
                self._clear(queue)
            if not path.relayed.get(broker, True):
                del path.relayed[broker]
        self.receiver.forget(broker)

    # --- time -------------------------------------------------------------------------------------------------

    def _wake_by(self, path: Path, when: float) -> None:
        if when < path.wake_at:
            path.wake_at = when
            self._port.after(when - self._port.now, lambda: self._wake(path, when))

    def _wake(self, path: Path, when: float) -> None:
        if path.wake_at != when or self._paths.get(path.stream.topic) is not path:
            return
        path.wake_at = float("inf")
        self._check_loopback(path)
        if path.failed_at is None:
            self._check_members(path)
            self._check_progress(path)
            self._check_pause(path)
        if path.flying:
            self._wake_by(path, next(iter(path.flying.values())).sent + path.round_trip.timeout)
        for queue in path.queues:
            if queue:
                self._wake_by(path, queue[0].sent + path.answer_time.timeout)

    def _check_loopback(self, path: Path) -> None:
        too_old = self._port.now - path.round_trip.timeout + 1e-9
        while path.flying:
            serial, flight = next(iter(path.flying.items()))
            if flight.sent > too_old:
                return
            if serial < path.returned:  # a later one is back: the tree is there, only this copy was lost
                self._lose(path, serial)
                self._pump(path)
            elif path.failed_at is None:
                self._fail(path)
            else:
                self._give_up(path)
                self._try_later(path)

    def _without_key(self, path: Path) -> None:
        if self._paths.get(path.stream.topic) is path and path.failed_at is None:
            self._fail(path)

    def _fail(self, path: Path) -> None:
        """Nothing comes back, or there is no key: go on by ALM, with all that may not have arrived, and try the tree
        again later."""
        self.counts["failed"] += 1
        path.failed_at = self._port.now
        self._publishers.use_tree(path.stream.topic, None)
        self._resend(path)
        self._try_later(path)
        if self.on_failed is not None:
            self.on_failed(path.stream.topic, path.served.tree)

    def _resend(self, path: Path) -> None:
        """What the tree may not have delivered goes again, by ALM."""
        flights = self._give_up(path)
        for flight in flights:
            if flight.body is not None and not flight.body.qos:
                self._repeat(flight.body, flight.members, flight.origin)
        self._unload(path)
        queues, path.pending, path.relayed = path.queues, deque(), {}
        for queue in queues:
            for each in queue:
                self._hand_over(each)

    def _unload(self, path: Path) -> None:
        """What waits goes by ALM: some that it is for are not in the tree any more."""
        for load in path.waiting.clear():
            if load.unacknowledged is not None:
                self._queue(path, load.origin).remove(load.unacknowledged)
                self._hand_over(load.unacknowledged)
            elif not load.body.qos:
                self._repeat(load.body, load.members, None if load.origin == self._port.me else load.origin)

    def _give_up(self, path: Path) -> list[Flight]:
        """Do not wait for what is under way any more. Gives it."""
        self._expect_no_more(path.late.values())
        path.late, path.flying = path.flying, {}
        return list(path.late.values())

    def _expect_no_more(self, flights: Iterable[Flight]) -> None:
        for flight in flights:
            self._mine.pop(flight.mark, None)

    def _repeat(self, body: Publish, members: tuple[BrokerRef, ...], origin: BrokerRef | None) -> None:
        self.counts["repeated"] += len(members) * len(body.which)
        self._multicast.repeat(body, members, origin)

    def _try_later(self, path: Path) -> None:
        delay, path.retry = path.retry, min(2 * path.retry, self.settings.retry_at_most)
        self._port.after(delay, lambda: self._probe(path))

    def _probe(self, path: Path) -> None:
        """Does the tree work again? A high-water mark tells."""
        if self._paths.get(path.stream.topic) is path and path.failed_at is not None and not path.flying:
            self._fly_mark(path)

    def _check_members(self, path: Path) -> None:
        """Who has not acknowledged in time gets the message by ALM."""
        before = self._port.now - path.answer_time.timeout + 1e-9
        overdue = [queue for queue in path.queues if queue and queue[0].sent <= before]
        if overdue:
            path.answer_time.late()
        for queue in overdue:
            while queue and queue[0].sent <= before:
                overdue_one = queue.popleft()
                for member in overdue_one.waiting:
                    path.silent[member] = path.silent.get(member, 0) + 1
                self._hand_over(overdue_one)
        if deaf := [member for member, missed in path.silent.items() if missed >= DEAF]:
            self._do_without(path, deaf)

    def _check_progress(self, path: Path) -> None:
        """Members that are behind, and of which nothing has been heard for long, do not hold up the others."""
        since = path.held_since
        if since is not None and self._port.now - since >= path.answer_time.timeout - 1e-9:
            path.held_since = None
            behind = path.progress.left_behind()
            for member in behind:
                path.progress.forget(member)
            self._do_without(path, behind)
        self._pump(path)

    def _do_without(self, path: Path, members: list[BrokerRef]) -> None:
        """These get nothing by the tree, although the sender's copies come back: ALM for them, for a while."""
        names = frozenset((member.name, member.incarnation) for member in members)
        delay, path.rejoin = path.rejoin, min(2 * path.rejoin, self.settings.retry_at_most)

        def again() -> None:
            path.without -= names
            self._use_again(path)

        for member in members:
            path.silent.pop(member, None)
        path.without |= names
        self._use_again(path)
        self._port.after(delay, again)

    def _use_again(self, path: Path) -> None:
        if self._paths.get(path.stream.topic) is path and path.failed_at is None:
            self._publishers.use_tree(path.stream.topic, path.usable)

    def _hand_over(self, each: Unacknowledged) -> None:
        self.counts["repeated"] += len(each.waiting) * len(each.pending.body.which)
        self._multicast.acknowledgements.answered(each.pending, tuple(each.waiting))

    def _check_pause(self, path: Path) -> None:
        """After a pause tell the members the last number, in case its datagram was lost."""
        if path.told or path.last is None or path.last.qos or not path.members or path.waiting:
            return
        if self._port.now - path.last_at >= self.settings.quiet - 1e-9:
            path.told = True
            self._fly_mark(path)
        else:
            self._wake_by(path, path.last_at + self.settings.quiet)

    def _fly_mark(self, path: Path) -> None:
        seq = max(path.stream.last_seq, 1)
        plain = high_water(path.served.tree, self._port.me, self._serial + 1, path.stream.topic, seq)
        raw = self._keys.seal(path.stream.topic, plain, self._port.now)
        if raw is not None:
            self._fly(path, raw, Flight(self._port.now, mark_of(raw)))
        elif path.failed_at is not None:
            self._try_later(path)

    def _mark(self, path: Path) -> None:
        """Tell each member the last number, by a way that does not lose it."""
        path.marking = False
        if path.last is not None:
            for member in path.members:
                if self._port.reachable(member):
                    self._port.send(member, HighWater(path.stream.topic, path.last.seqs[-1]))
