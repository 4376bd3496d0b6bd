"""The OFM data path of one broker: sends its publications, packed, along a topic's tree, and receives those of others.

UDP loses datagrams, so each loss must be found:

1. The *sender* sees whether its datagram came back (the loopback packet, SAPS 2016, 3.1.2). A datagram that did not
   goes once more along the tree, for all members. If nothing comes back any more, the tree has failed: ALM carries
   what was outstanding, and the tree is tried again after a while.
2. *Members* see gaps in the order (`saps.overlay.delivery.order`) and ask for what is missing. High-water marks show
   them a lost end.
3. With QoS 1 and 2 members acknowledge cumulatively. A member that does not acknowledge gets the message by ALM.

This module is the sender's half; `saps.ofm.datapath.receiver` is the members' half.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence

from saps.ofm.datapath.datagram import HIGH_WATER, PROBE
from saps.ofm.datapath.flights import LONGEST, Flight
from saps.ofm.datapath.loads import Load, Unacknowledged, joined, split, weights
from saps.ofm.datapath.packing import Packing
from saps.ofm.datapath.path import Path
from saps.ofm.datapath.receiver import Receiver
from saps.ofm.datapath.repeats import Repeats
from saps.ofm.datapath.settings import DatapathSettings
from saps.ofm.keys.epochs import Keyring
from saps.ofm.keys.sealing import mark_of
from saps.ofm.stateless.directory import Directory
from saps.ofm.stateless.failover import Failover
from saps.overlay.delivery.multicast import Multicast
from saps.overlay.delivery.ofm_members import Served, Tree
from saps.overlay.delivery.order import Inbox
from saps.overlay.delivery.pending import Pending
from saps.overlay.delivery.publications import to_topic
from saps.overlay.frames.delivery import OfmAck, Publish
from saps.overlay.port import Port
from saps.overlay.rendezvous.publisher_registry import PublisherRegistry
from saps.overlay.rendezvous.streams import Stream
from saps.overlay.ring.keys import BrokerRef

ASKED_FOR = 1.0
"""Time in seconds after the last high-water mark for which members may still ask for a publication."""


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
        """`wants` returns whether this broker has a subscriber for a topic. `keys` seal and open all datagrams."""
        self._port = port
        self._publishers = publishers
        self._transmit = transmit
        self.mark: Callable[[str], int] | None = None
        """Returns the DSCP of a topic's datagrams, the third argument of `transmit`. With None there is no such
        argument."""
        self.settings = settings or DatapathSettings()
        self._paths: dict[str, Path] = {}
        self._former: dict[str, Path] = {}
        """Paths given up lately: a member that misses one of their publications may not have noticed yet."""
        self._serial = 0
        self.on_failed: Callable[[str, Tree], None] | None = None
        """Called with topic and tree when this broker has given up a tree for now."""
        self.counts = {
            "carried": 0, "relayed": 0, "sent": 0, "returned": 0, "lost": 0, "failed": 0, "too_large": 0,
            "overflowed": 0, "repeated": 0, "planes_changed": 0,
            "received": 0, "duplicates": 0, "unwanted": 0, "malformed": 0, "acks": 0,
            "unknown_key": 0, "replayed": 0, "forged": 0,
        }  # fmt: skip
        """Counts of datagrams and trees since the start. `carried` counts own publications that left along a tree, and
        `relayed` those of origins in other domains. `overflowed` counts how often a tree was left because more came in
        than it carried."""
        self._mine: dict[bytes, tuple[Path, int]] = {}
        """Mark of an expected loopback packet -> its path and serial."""
        self._packing = Packing(port, keys, self.settings.largest)
        self._repeats = Repeats(multicast, self.counts, self._mine)
        self._failover = Failover(
            port, self._packing, self._repeats, self.counts, lambda: self._serial, self._fly, self._ask
        )
        self.receiver = Receiver(port, inbox, wants, keys, self.settings, self.counts)

    # --- which tree to use ------------------------------------------------------------------------------------

    def use(self, topic: str, served: Served | None, directory: Directory | None = None) -> None:
        """Send publications to a topic along this tree from now on, or by ALM if `served` is None. With a `directory`
        the tree stands for stateless delivery. A topic that this broker does not publish stays on ALM. A tree that was
        left is used only after it has been found to work again."""
        path = self._paths.get(topic)
        if path is not None and (served is None or served.tree != path.served.tree):
            self._drop(path)
            path = None
        if served is None or not self._publishers.publishes(topic):
            self._publishers.use_tree(topic, None)
            return
        if path is None:
            stream = self._publishers.stream(topic)
            path = self._paths[topic] = Path(self._port, stream, served, self.settings, self._use, directory)
            if (former := self._former.get(topic)) is not None:
                path.history.follow(former.history)
        elif path.sending is not None and directory is not None:
            path.sending.follow(directory, self._port.now)
        if not path.served.brokers <= served.brokers:
            self._repeats.what_waits(path)
        path.served = served
        if path.in_use:
            self._use(path)
        else:
            self._probe(path)  # a tree that has changed may work now

    def _use(self, path: Path) -> None:
        if self._paths.get(path.stream.topic) is path and path.in_use:
            self._publishers.use_tree(path.stream.topic, path.usable)

    def _drop(self, path: Path) -> None:
        """Stop using a path. ALM repeats everything that the tree may not deliver."""
        topic = path.stream.topic
        self._paths.pop(topic, None)
        self._former[topic] = path
        self._port.after(self.settings.mark + ASKED_FOR, lambda: self._forget_path(topic, path))
        self._publishers.use_tree(topic, None)
        self._repeats.everything(path)

    def _forget_path(self, topic: str, path: Path) -> None:
        if self._former.get(topic) is path:
            del self._former[topic]
        self._repeats.expect_no_more(path.flights.give_up()[1])

    def ceilings(self) -> dict[str, int]:
        """Return topic -> publications a second that its tree can carry, for the trees that were left because more came
        in."""
        rates = {topic: path.trial.ceiling.rate for topic, path in self._paths.items()}
        return {topic: round(rate) for topic, rate in rates.items() if math.isfinite(rate)}

    # --- sending ----------------------------------------------------------------------------------------------

    def send(self, stream: Stream, body: Publish, members: tuple[BrokerRef, ...], pending: Pending | None) -> bool:
        """Send publications along the topic's tree (`TreePath.send`). Returns False if ALM must take these and all that
        follow."""
        path = self._paths.get(stream.topic)
        if path is None or not path.in_use:
            return False
        if not members and not path.served.always:
            return True
        return self._accept(path, body, members, pending, None)

    def represent(
        self, origin: BrokerRef, body: Publish, members: Sequence[BrokerRef], pending: Pending | None
    ) -> Collection[BrokerRef]:
        """Send publications of another domain along the topic's tree (`TreePath.represent`). To have the tree, this
        broker takes part as a publisher for as long as such publications come."""
        topic = body.parts[0].topic
        stream = self._publishers.stream(topic)
        stream.used = True
        if not self._publishers.publishes(topic):
            self._publishers.open(stream)
        path = self._paths.get(topic)
        if path is None or not path.in_use:
            return ()
        self._publishers.route(stream)
        there = set(stream.served)
        served = tuple(member for member in members if member in there)
        return frozenset(served) if served and self._accept(path, body, served, pending, origin) else ()

    def _accept(
        self,
        path: Path,
        body: Publish,
        members: tuple[BrokerRef, ...],
        pending: Pending | None,
        origin: BrokerRef | None,
    ) -> bool:
        """Queue publications for the tree. Returns False if ALM must take them: one is too large, or the tree carries
        less than comes in. In the second case all that waits goes by ALM too, because what comes later must not
        overtake it."""
        found = weights(body)
        load = Load(body, found, sum(found), members, origin)
        if max(found) > self._packing.room(path, origin):
            self.counts["too_large"] += len(body.which)
            return False
        if path.waiting and not path.waiting.has_room(load):
            self._leave_full(path)
            return False
        if pending is not None and members:
            pending.waiting += 1
            load.unacknowledged = Unacknowledged(pending, members, math.inf)
            path.unanswered.add(load.unacknowledged, origin)
        path.waiting.add(load)
        self._pump(path)
        return True

    def _pump(self, path: Path) -> None:
        """Send what waits, as far as the window permits."""
        waiting, flights = path.waiting, path.flights
        while waiting and path.in_use:
            room = self._packing.room(path, waiting.first.origin)
            if not flights.window.admits(len(flights), full=waiting.size >= room):
                return
            if (held := path.reach.held()) is not None:
                self._wake_by(path, held + path.unanswered.time.timeout)
                return
            loads = waiting.take(room)
            if not self._depart(path, loads, room):
                waiting.put_back(loads)
                self._port.after(0.0, lambda: self._without_key(path))
                return

    def _depart(self, path: Path, loads: list[Load], room: int) -> bool:
        """Send loads that go together, in as many datagrams as needed. Returns False if there is no key for the first
        datagram."""
        first, now = loads[0], self._port.now
        origin, members = first.origin, first.members
        body = joined([load.body for load in loads])
        parts = [body]
        if sum([load.size for load in loads]) > room:
            parts = [*split(body, [weight for load in loads for weight in load.weights], room)]
        for part in parts:
            raw = self._packing.publications(path, self._serial + 1, part, origin)
            if raw is None and part.seqs[0] == body.seqs[0]:
                return False
            if origin is None:
                path.history.add(now, part, members)
                path.reach.progress.sent(members, part.seqs[-1])
            if raw is not None:
                self._fly(path, raw, Flight(now, mark_of(raw), part, members, origin))
        for load in loads:
            if load.unacknowledged is not None:
                load.unacknowledged.sent = now
        if origin is None:
            self.counts["carried"] += len(body.which)
            path.marks.sent(body, members, len(parts))
        else:
            self.counts["relayed"] += len(body.which)
            path.marks.relayed(origin, body.seqs[-1], members)
        return True

    def remembered(self, member: BrokerRef, topic: str, after: int, upto: int) -> list[Publish]:
        path = self._paths.get(topic)
        known = self._former.get(topic) if path is None else path
        if known is None:
            return []
        found = known.history.lacking(member, after, upto)
        if found and path is not None:
            path.flights.window.lost(path.flights.latest, self._serial)
        bodies = [*found, *known.waiting.bodies(member)]  # what waits is not lost
        return [body for each in bodies if (body := to_topic(each, topic, after, upto)) is not None]

    def _fly(self, path: Path, raw: bytes, flight: Flight) -> None:
        self._serial += 1
        path.flights.depart(self._serial, flight)
        self._mine[flight.mark] = path, self._serial
        self.counts["sent"] += 1
        marks = () if self.mark is None else (self.mark(path.stream.topic),)
        for address in path.addresses(flight.members or path.members):
            self._transmit(address, raw, *marks)
        if path.sending is not None and flight.body is not None:
            path.sending.sent(flight.body.qos)
        self._wake_by(path, flight.sent + min(path.flights.round_trip.timeout, self.settings.quiet))

    # --- what came of it ----------------------------------------------------------------------------------------

    def receive(self, raws: Iterable[bytes]) -> None:
        """Handle received datagrams: loopback packets here, those of other brokers in `saps.ofm.datapath.receiver`."""
        if not self._mine:
            self.receiver.receive(raws)
            return
        others: list[bytes] = []
        back: dict[Path, list[int]] = {}
        for raw in raws:
            mine = self._mine.pop(mark_of(raw), None)
            if mine is None:
                others.append(raw)
            else:
                back.setdefault(mine[0], []).append(mine[1])
        for path, serials in back.items():
            self._returned(path, serials)
        if others:
            self.receiver.receive(others)

    def _returned(self, path: Path, serials: list[int]) -> None:
        """Handle loopback packets: the tree works."""
        now = self._port.now
        found = path.flights.back(serials, now)
        if not found or self._paths.get(path.stream.topic) is not path:
            return
        self.counts["returned"] += len(found)
        if path.sending is not None:
            path.sending.works()
        if (last := found[-1]).body is not None:
            path.trial.carried(last.sent)
        for lost in path.flights.overtaken(now, self._serial):
            self._lose(path, lost)
        if path.in_use:
            self._pump(path)
            return
        for serial in serials:
            path.trial.returned(serial)
        if any(flight.late for flight in found):  # the timeout was too short
            self._probe(path)
        self._judge(path)

    def _lose(self, path: Path, flight: Flight) -> None:
        """Repeat a lost datagram of a working tree once for all members, because most losses are near the sender.
        Members ask for what is lost again."""
        self._mine.pop(flight.mark, None)
        self.counts["lost"] += 1
        if flight.body is None:
            return
        if path.in_use and not flight.again:
            self._failover.again(path, flight.body, flight.members, flight.origin)
        elif not path.in_use and not flight.body.qos:
            self._repeats.publications(flight.body, flight.members, flight.origin)

    def acknowledged(self, sender: BrokerRef, ack: OfmAck) -> None:
        """Handle a member's acknowledgement of everything up to a number."""
        path = self._paths.get(ack.topic)
        if path is None:
            return
        if path.sending is not None:
            path.sending.heard(sender)
        if ack.origin is None:
            path.reach.acknowledged(sender, ack.seq)
            path.trial.acknowledged(sender, ack.seq)
        self._repeats.answer(path.unanswered.acknowledged(sender, ack, self._port.now))
        self._pump(path)
        self._judge(path)

    def forget(self, broker: BrokerRef) -> None:
        """Forget a broker that has died."""
        for path in self._paths.values():
            path.reach.progress.forget(broker)
            path.overheads.pop(broker, None)
            if path.sending is not None:
                path.sending.heard(broker)
            path.trial.forget(broker)
            self._repeats.answer(path.unanswered.forget(broker))
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
        self._wake_by(path, self._failover.look(path))
        for overdue in path.unanswered.overdue(self._port.now):
            self._repeats.hand_over(overdue)
        if path.in_use:
            if deaf := path.unanswered.deaf():
                path.reach.do_without(deaf)
            path.reach.check(path.unanswered.time.timeout)
            self._pump(path)
            if not path.waiting:
                self._wake_by(path, path.marks.in_pause(lambda: self._ask(path, HIGH_WATER)))
        self._wake_by(path, min(path.flights.due, path.unanswered.due))

    def _check_loopback(self, path: Path) -> None:
        for lost in path.flights.overdue(self._port.now, self._serial):
            self._lose(path, lost)
        if not path.flights.is_silent(self._port.now):
            self._pump(path)
        elif path.in_use:
            if not self._failover.silent(path):
                self._fail(path)
        else:
            self._repeats.everything(path)
            if path.trial.serial:
                self._try_later(path)

    # --- leaving a tree, and coming back to it ------------------------------------------------------------------

    def _without_key(self, path: Path) -> None:
        if self._paths.get(path.stream.topic) is path and path.in_use:
            self._fail(path)

    def _fail(self, path: Path) -> None:
        """Leave a tree that returns nothing or has no key. ALM goes on with all that may not have arrived, and the tree
        is tried again later."""
        self.counts["failed"] += 1
        self._leave(path)
        self._repeats.everything(path)
        if self.on_failed is not None:
            self.on_failed(path.stream.topic, path.served.tree)

    def _leave_full(self, path: Path) -> None:
        """Leave a tree that gets more than it carries. ALM goes on. Datagrams under way still arrive, so they are not
        repeated."""
        self.counts["overflowed"] += 1
        path.trial.ceiling.exceeded(path.flights.meter.rate(self._port.now))
        self._leave(path)
        self._repeats.what_waits(path)

    def _leave(self, path: Path) -> None:
        path.trial.leave(self._port.now, path.stream.published)
        self._publishers.use_tree(path.stream.topic, None)
        self._try_later(path)

    def _try_later(self, path: Path) -> None:
        delay, attempt = path.trial.postpone(), path.trial.attempt
        self._port.after(delay, lambda: self._probe(path) if path.trial.attempt == attempt else None)

    def _probe(self, path: Path) -> None:
        """Probe the tree: whether it works again, and whether all members have what went by ALM."""
        stream, trial = path.stream, path.trial
        if self._paths.get(stream.topic) is not path or path.in_use or trial.serial:
            return
        if path.flights or not trial.may_try(self._port.now, stream.published) or not self._ask(path, PROBE):
            self._try_later(path)
            return
        trial.probe(self._serial, stream.last_seq, stream.published, path.members)
        serial = self._serial
        self._port.after(LONGEST / 2, lambda: self._end(path, serial))

    def _ask(self, path: Path, flag: int) -> bool:
        """Send a datagram without publications. Returns False if there is no key."""
        raw = self._packing.empty(path, self._serial + 1, flag)
        if raw is not None:
            self._fly(path, raw, Flight(self._port.now, mark_of(raw)))
        return raw is not None

    def _judge(self, path: Path) -> None:
        if not path.in_use and path.trial.passed(path.stream.published):
            path.trial.use(self._port.now)
            self._use(path)

    def _end(self, path: Path, serial: int) -> None:
        """End the probe's time. ALM serves the members that have not answered by now."""
        if self._paths.get(path.stream.topic) is not path or path.in_use or path.trial.serial != serial:
            return
        silent = path.trial.end(path.stream.published)
        if silent is None:
            self._try_later(path)
            return
        path.trial.use(self._port.now)
        path.reach.do_without(silent)
