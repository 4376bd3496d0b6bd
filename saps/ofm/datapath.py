"""The OFM data path of one broker: publications leave as one datagram along a topic's tree, and come in from others'.

UDP loses, so each loss is found by somebody. The *sender* sees whether its datagram came back (the loopback packet,
SAPS 2016, 3.1.2): if nothing comes back any more the tree is gone, what was outstanding goes again by ALM, and the
tree is tried again after a while. *Members* see gaps in the order (`saps.overlay.order`) and ask for what is missing;
high-water marks show them a lost end. With QoS 1 and 2 they acknowledge, cumulatively, and who does not is sent the
message by ALM. Here is the sender's half; `saps.ofm.arrivals` is the members'.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec

from saps.ofm.arrivals import Arrivals
from saps.ofm.datagram import Datagram, high_water, publications
from saps.ofm.datapath_settings import DatapathSettings
from saps.ofm.keys.epochs import Keyring
from saps.ofm.keys.sealing import OVERHEAD
from saps.ofm.path import Flight, Path, Unacknowledged
from saps.overlay.frames import HighWater, OfmAck, Publish
from saps.overlay.keys import BrokerRef
from saps.overlay.multicast import Multicast
from saps.overlay.order import Inbox
from saps.overlay.pending import Pending
from saps.overlay.port import Port
from saps.overlay.presence import Presence, Stream
from saps.overlay.publications import properties_of, select, to_topic
from saps.overlay.trees import Served, Tree

NUMBERED = 16
"""Bytes of a publication's number and of the length of its payload in a datagram, and its part in the lengths of the
lists that have these; at most."""
DEAF = 8
"""Publications with QoS 1 or 2 in a row that a member has not acknowledged, after which ALM serves it."""
ASKED_FOR = 1.0
"""Seconds after the last high-water mark for which a publication may still be asked for."""


_encode = msgspec.msgpack.Encoder().encode


class Datapath:
    """A `saps.overlay.multicast.TreePath`, and the receiver of datagrams. `transmit` sends bytes to an OFM address."""

    def __init__(
        self,
        port: Port,
        presence: Presence,
        multicast: Multicast,
        inbox: Inbox,
        wants: Callable[[str], bool],
        transmit: Callable[..., None],
        keys: Keyring,
        settings: DatapathSettings | None = None,
    ) -> None:
        """`wants`: does this broker have a subscriber for a topic? `keys` seal and open all datagrams."""
        self._port = port
        self._presence = presence
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
            "carried": 0, "relayed": 0, "sent": 0, "returned": 0, "lost": 0, "failed": 0, "too_large": 0, "repeated": 0,
            "received": 0, "duplicates": 0, "unwanted": 0, "malformed": 0, "acks": 0,
            "unknown_key": 0, "replayed": 0, "forged": 0,
        }  # fmt: skip
        """What happened to datagrams and trees, since the start; `carried` are own publications that left along a tree,
        `relayed` those of origins in other domains."""
        self.arrivals = Arrivals(port, inbox, wants, keys, self._returned, self.settings, self.counts)

    # --- which tree to use ------------------------------------------------------------------------------------

    def use(self, topic: str, served: Served | None) -> None:
        """Publications to a topic leave along this tree from now on; None: by ALM. Only while this broker publishes
        there. A tree that has failed is not used before it has been found to work again."""
        path = self._paths.get(topic)
        if path is not None and (served is None or served.tree != path.served.tree):
            self._drop(path)
            path = None
        if served is None or not self._presence.publishes(topic):
            self._presence.use_tree(topic, None)
            return
        if path is None:
            path = self._paths[topic] = Path(self._presence.stream(topic), served, self.settings)
        path.served = served
        if path.failed_at is None:
            self._presence.use_tree(topic, path.usable)
        else:
            self._probe(path)  # something about the tree has changed: perhaps it works now

    def _drop(self, path: Path) -> None:
        """Use a path no more: nobody is left to the tree alone."""
        topic = path.stream.topic
        self._paths.pop(topic, None)
        self._former[topic] = path
        self._port.after(self.settings.mark + ASKED_FOR, lambda: self._forget_path(topic, path))
        self._presence.use_tree(path.stream.topic, None)
        self._resend(path)

    def _forget_path(self, topic: str, path: Path) -> None:
        if self._former.get(topic) is path:
            del self._former[topic]

    # --- sending ----------------------------------------------------------------------------------------------

    def send(self, stream: Stream, body: Publish, members: tuple[BrokerRef, ...], pending: Pending | None) -> bool:
        """See `TreePath`, as for all that follow."""
        path = self._paths.get(stream.topic)
        if path is None or path.failed_at is not None:
            return False
        if not members and not path.served.always:
            return True
        sealed = self._seal(path, body, self._port.me, None)
        if sealed is None:
            return False
        now = self._port.now
        self.counts["carried"] += len(body.which)
        path.last, path.last_at, path.told, path.members = body, now, False, members
        for part, raw in sealed:
            path.history.append(part)
            self._fly(path, raw, Flight(now, part, members))
        if pending is not None and members:
            pending.waiting += 1
            path.pending.append(Unacknowledged(pending, members, now))
        if members and not path.marking:
            path.marking = True
            self._port.after(self.settings.mark, lambda: self._mark(path))
        return True

    def _seal(
        self, path: Path, body: Publish, origin: BrokerRef, representative: BrokerRef | None
    ) -> list[tuple[Publish, bytes]] | None:
        """The datagrams for publications to the path's topic, and what is in each; None if they cannot go there."""
        topic, largest = path.stream.topic, self.settings.largest - OVERHEAD
        tree, serial = path.served.tree, self._serial
        first = publications(tree, origin, serial + 1, select(body, (0,)), representative)
        plain: list[tuple[Publish, bytes]] = []
        for part in _split(body, largest - len(first)):
            serial += 1
            alone = serial == self._serial + 1 and len(part.which) == 1
            plain.append((part, first if alone else publications(tree, origin, serial, part, representative)))
        if any(len(raw) > largest for _, raw in plain):
            self.counts["too_large"] += len(body.which)
            return None
        sealed = []
        for part, each in plain:
            raw = self._keys.seal(topic, each, self._port.now)
            if raw is None:
                self._port.after(0.0, lambda: self._without_key(path))
                return None
            sealed.append((part, raw))
        return sealed

    def represent(
        self, origin: BrokerRef, body: Publish, members: Sequence[BrokerRef], pending: Pending | None
    ) -> Collection[BrokerRef]:
        """See `TreePath`. To have the tree, this broker takes part as a publisher, for as long as something comes."""
        topic = body.parts[0].topic
        stream = self._presence.stream(topic)
        stream.used = True
        if not self._presence.publishes(topic):
            self._presence.open(stream)
        path = self._paths.get(topic)
        if path is None or path.failed_at is not None:
            return ()
        self._presence.route(stream)
        there = set(stream.served)
        served = tuple(member for member in members if member in there)
        sealed = self._seal(path, body, origin, self._port.me) if served else None
        if sealed is None:
            return ()
        now = self._port.now
        self.counts["relayed"] += len(body.which)
        for part, raw in sealed:
            self._fly(path, raw, Flight(now, part, served, origin))
        if pending is not None:
            pending.waiting += 1
            path.relayed.setdefault(origin, deque()).append(Unacknowledged(pending, served, now))
        if path.told_for.setdefault(origin, 0) == 0:
            self._port.after(self.settings.mark, lambda: self._mark_for(path, origin, served))
        path.told_for[origin] = max(path.told_for[origin], body.seqs[-1])
        return frozenset(served)

    def _mark_for(self, path: Path, origin: BrokerRef, members: tuple[BrokerRef, ...]) -> None:
        """As `_mark`, for an origin in another domain."""
        seq = path.told_for.pop(origin, 0)
        for member in members:
            if seq and self._port.reachable(member):
                self._port.send(member, HighWater(path.stream.topic, seq, origin))

    def remembered(self, topic: str, after: int, upto: int) -> list[Publish]:
        paths = [path for path in (self._former.get(topic), self._paths.get(topic)) if path is not None]
        found = [to_topic(body, topic, after, upto) for path in paths for body in path.history]
        return [body for body in found if body is not None]

    def _fly(self, path: Path, raw: bytes, flight: Flight) -> None:
        self._serial += 1
        path.flying[self._serial] = flight
        self.counts["sent"] += 1
        if self.mark is None:
            self._transmit(path.served.tree.address, raw)
        else:
            self._transmit(path.served.tree.address, raw, self.mark(path.stream.topic))
        self._wake_by(path, flight.sent + min(path.round_trip.patience, self.settings.quiet))

    # --- what came of it ----------------------------------------------------------------------------------------

    def _returned(self, datagram: Datagram) -> None:
        """A loopback packet: the tree is there."""
        path = self._paths.get(datagram.topic)
        if path is None or path.served.tree != datagram.tree:
            return
        flight = path.flying.pop(datagram.serial, None) or path.late.pop(datagram.serial, None)
        if flight is None:
            return
        self.counts["returned"] += 1
        path.round_trip.measured(self._port.now - flight.sent)
        path.returned = max(path.returned, datagram.serial)
        if path.failed_at is not None:
            path.failed_at = None
            self._presence.use_tree(datagram.topic, path.usable)
        elif flight.body is not None:
            path.retry = self.settings.retry

    def acknowledged(self, sender: BrokerRef, ack: OfmAck) -> None:
        """A member has everything up to a number."""
        path = self._paths.get(ack.topic)
        if path is None:
            return
        path.silent.pop(sender, None)
        queue = path.pending if ack.origin is None else path.relayed.get(ack.origin, deque())
        for each in queue:
            if each.last > ack.seq:
                break
            if sender in each.waiting:
                del each.waiting[sender]
                path.answer_time.measured(self._port.now - each.sent)
                each.pending.reached([1], [ack.subscribers])
        self._clear(queue)

    def _clear(self, queue: deque[Unacknowledged]) -> None:
        """Answers for what has been acknowledged by all."""
        while queue and not queue[0].waiting:
            self._multicast.acknowledgements.answered(queue.popleft().pending, ())

    def forget(self, broker: BrokerRef) -> None:
        """A broker died: nothing is expected of it any more."""
        for path in self._paths.values():
            for queue in path.queues:
                for each in queue:
                    each.waiting.pop(broker, None)
                self._clear(queue)
            if not path.relayed.get(broker, True):
                del path.relayed[broker]
        self.arrivals.forget(broker)

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
            self._check_pause(path)
        if path.flying:
            self._wake_by(path, next(iter(path.flying.values())).sent + path.round_trip.patience)
        for queue in path.queues:
            if queue:
                self._wake_by(path, queue[0].sent + path.answer_time.patience)

    def _check_loopback(self, path: Path) -> None:
        too_old = self._port.now - path.round_trip.patience + 1e-9
        while path.flying:
            serial, flight = next(iter(path.flying.items()))
            if flight.sent > too_old:
                return
            if serial < path.returned:  # a later one is back: the tree is there, only this copy was lost
                del path.flying[serial]
                self.counts["lost"] += 1
            elif path.failed_at is None:
                self._fail(path)
            else:
                path.flying.clear()
                self._try_later(path)

    def _without_key(self, path: Path) -> None:
        if self._paths.get(path.stream.topic) is path and path.failed_at is None:
            self._fail(path)

    def _fail(self, path: Path) -> None:
        """Nothing comes back, or there is no key: go on by ALM, with all that may not have arrived, and try the tree
        again later."""
        self.counts["failed"] += 1
        path.failed_at = self._port.now
        self._presence.use_tree(path.stream.topic, None)
        self._resend(path)
        self._try_later(path)
        if self.on_failed is not None:
            self.on_failed(path.stream.topic, path.served.tree)

    def _resend(self, path: Path) -> None:
        """What the tree may not have delivered goes again, by ALM."""
        flights, path.flying = path.flying, {}
        path.late = flights
        for flight in flights.values():
            if flight.body is not None and not flight.body.qos:
                self.counts["repeated"] += len(flight.members) * len(flight.body.which)
                self._multicast.repeat(flight.body, flight.members, flight.origin)
        queues, path.pending, path.relayed = path.queues, deque(), {}
        for queue in queues:
            for each in queue:
                self._hand_over(each)

    def _try_later(self, path: Path) -> None:
        delay, path.retry = path.retry, min(2 * path.retry, self.settings.retry_at_most)
        self._port.after(delay, lambda: self._probe(path))

    def _probe(self, path: Path) -> None:
        """Does the tree work again? A high-water mark tells."""
        if self._paths.get(path.stream.topic) is path and path.failed_at is not None and not path.flying:
            self._fly_mark(path)

    def _check_members(self, path: Path) -> None:
        """Who has not acknowledged in time gets the message by ALM."""
        before = self._port.now - path.answer_time.patience + 1e-9
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

    def _do_without(self, path: Path, members: list[BrokerRef]) -> None:
        """These get nothing by the tree, although the sender's copies come back: ALM for them, for a while."""
        names = frozenset((member.name, member.incarnation) for member in members)
        delay, path.rejoin = path.rejoin, min(2 * path.rejoin, self.settings.retry_at_most)

        def again() -> None:
            path.without -= names
            self._use_again(path)

        for member in members:
            del path.silent[member]
        path.without |= names
        self._use_again(path)
        self._port.after(delay, again)

    def _use_again(self, path: Path) -> None:
        if self._paths.get(path.stream.topic) is path and path.failed_at is None:
            self._presence.use_tree(path.stream.topic, path.usable)

    def _hand_over(self, each: Unacknowledged) -> None:
        self.counts["repeated"] += len(each.waiting) * len(each.pending.body.which)
        self._multicast.acknowledgements.answered(each.pending, tuple(each.waiting))

    def _check_pause(self, path: Path) -> None:
        """After a pause tell the members the last number, in case its datagram was lost."""
        if path.told or path.last is None or path.last.qos or not path.members:
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
            self._fly(path, raw, Flight(self._port.now, None, ()))
        elif path.failed_at is not None:
            self._try_later(path)

    def _mark(self, path: Path) -> None:
        """Tell each member the last number, by a way that does not lose it."""
        path.marking = False
        if path.last is not None:
            for member in path.members:
                if self._port.reachable(member):
                    self._port.send(member, HighWater(path.stream.topic, path.last.seqs[-1]))

    # --- receiving ----------------------------------------------------------------------------------------------

    def receive(self, raw: bytes | memoryview) -> None:
        """A datagram has come in (`saps.ofm.arrivals`)."""
        self.arrivals.receive(bytes(raw))


def _split(body: Publish, room: int) -> Iterator[Publish]:
    """The publications of a body in as few parts as have room for so many bytes beyond their first publication, if that
    is not larger than the first of all."""
    weights = [len(payload) + NUMBERED for payload in body.payloads]
    for index, properties in enumerate(properties_of(body) or ()):
        weights[index] += 1 if properties is None else len(_encode(properties))
    begin, used = 0, 0
    for index in range(1, len(weights)):
        used += weights[index]
        if used > room:
            yield select(body, range(begin, index))
            begin, used = index, weights[index] - weights[0]
    yield select(body, range(begin, len(weights)))
