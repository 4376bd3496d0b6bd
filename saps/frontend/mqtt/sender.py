"""The outgoing half of a connection: what to write, how much may wait, and who is held back meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from saps.frontend.mqtt.budget import ENTRY_COST
from saps.frontend.mqtt.encode import encode
from saps.frontend.mqtt.outgoing import Copy, Form, aliased, copy, numbered_burst, plain, plain_burst
from saps.frontend.mqtt.packets import V311, Packet
from saps.frontend.mqtt.reasons import Reason
from saps.frontend.mqtt.wire import fixed_header

if TYPE_CHECKING:
    from saps.frontend.mqtt.frontend import Frontend
    from saps.frontend.mqtt.session import Session
    from saps.hub import Burst, Publication


_NOTHING: deque[tuple[bytes, int]] = deque()

TURN = 0.001
"""Seconds: when two such timers have run, one after the other, all that had arrived from a client has been read."""


class Port(Protocol):
    """What a connection asks of its transport."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def flush(self) -> None:
        """Write the connection's `out`; close if it is `closing`."""

    @property
    def write(self) -> Callable[[bytes], object]:
        """Writes at once. Only while the connection has a session, and with nothing in its `out`."""


class Sender:
    """Collects encoded packets in `out`; the driver writes them all at once when the current input is handled.

    While the transport is over its high-water mark (`writable` is False) QoS 0 packets wait here, QoS 1 and 2
    messages in the session, both bounded (`Limits.maximum_queued`).
    """

    __slots__ = (
        "_aliases",
        "_held",
        "_held_bytes",
        "_held_count",
        "_spent",
        "_spent_since",
        "_too_slow",
        "_waited_since",
        "_waiters",
        "alias_limit",
        "closing",
        "frontend",
        "maximum_packet_size",
        "out",
        "port",
        "send_maximum",
        "session",
        "version",
        "wire",
        "writable",
    )

    def __init__(self, frontend: Frontend, port: Port) -> None:
        self.frontend = frontend
        self.port = port
        self.out: list[bytes] = []
        """Packets to be written."""
        self.closing = False
        """Nothing more is read from the client; close the transport when `out` is written."""
        self.writable = True
        self.session: Session | None = None
        self.version = V311
        self.wire = V311
        """The wire format the client takes verbatim, 0 if its packets must be made for it."""
        self.maximum_packet_size = 0
        """The largest packet the client takes; 0: any."""
        self.send_maximum = frontend.limits.send_maximum
        """QoS 1 and 2 messages that may be in flight to the client."""
        self.alias_limit = 0
        """Topic aliases the client allows."""
        self._aliases: dict[str, int] | None = None
        self._held: deque[tuple[bytes, int]] | None = None
        self._held_count = 0
        self._held_bytes = 0
        self._too_slow = False
        self._spent = 0.0
        """Seconds of patience that are used up, since `_spent_since`."""
        self._spent_since = 0.0
        self._waited_since: float | None = None
        """Since when it costs patience that publishers wait."""
        self._waiters: list[Sender] | None = None

    def write(self, packet: bytes) -> None:
        """Have the packet written with the next flush."""
        out = self.out
        if not out:
            self.frontend.wake(self)  # type: ignore[arg-type]
        out.append(packet)

    def answer(self, packet: Packet) -> bool:
        """Have the packet, any but PUBLISH, written. False if it is larger than the client takes (3.1.2.11.4)."""
        encoded = encode(packet, self.version)
        if self.maximum_packet_size and len(encoded) > self.maximum_packet_size:
            return False
        self.frontend.counts.answered += 1
        self.write(encoded)
        return True

    # ---- messages

    def send(self, publication: Publication, form: Form) -> None:
        """Send a message with QoS 0, or hold it, or drop it."""
        session = self.session
        assert session is not None
        if self.alias_limit and self.writable:
            packet = self._aliased(publication, form)
            assert isinstance(packet, bytes)
        else:
            packet = plain(publication, form, self.version, self.frontend.clock())
        if self.maximum_packet_size and len(packet) > self.maximum_packet_size:
            session.dropped += 1
        elif self.writable:
            session.delivered += 1
            self.write(packet)
        else:
            self.hold(packet, 1)

    def send_with_id(
        self, publication: Publication, form: Form, packet_id: int, duplicate: bool = False
    ) -> Copy | None:
        """Send a message with QoS 1 or 2. None if it is too large for the client: it counts as sent (3.1.2.11.4)."""
        if self.alias_limit:
            packet = self._aliased(publication, form)
            assert isinstance(packet, Copy)
        else:
            packet = copy(publication, form, self.version, self.frontend.clock())
        if self.maximum_packet_size and packet.size > self.maximum_packet_size:
            return None
        self.write(packet.duplicate(packet_id) if duplicate else packet.with_id(packet_id))
        return packet

    def send_burst(self, burst: Burst, form: Form) -> None:
        """Send a burst with QoS 0. Only while `wire` is set and the transport `writable`."""
        self.write(plain_burst(burst, form, self.version))

    def send_numbered_burst(self, burst: Burst, form: Form, packet_id: int) -> list[Copy]:
        """Send a burst with QoS 1 or 2, numbered from `packet_id` on. Only while `wire` is set."""
        packets, copies = numbered_burst(burst, form, self.version, packet_id)
        self.write(packets)
        return copies

    def send_release(self, packet_id: int) -> None:
        """PUBREL."""
        self.frontend.counts.answered += 1
        self.write(b"\x62\x02" + packet_id.to_bytes(2))

    def _aliased(self, publication: Publication, form: Form) -> Copy | bytes:
        """The packet with a topic alias, as long as the client has aliases left: first come, first served."""
        aliases = self._aliases
        if aliases is None:
            aliases = self._aliases = {}
        topic, now = publication.message.topic, self.frontend.clock()
        alias = aliases.get(topic)
        if alias is not None:
            return aliased(publication, form, now, alias, known=True)
        encode = copy if form.qos else plain
        if len(aliases) >= self.alias_limit:
            return encode(publication, form, self.version, now)
        alias = len(aliases) + 1
        packet = aliased(publication, form, now, alias, known=False)
        size = packet.size if isinstance(packet, Copy) else len(packet)
        if not self.maximum_packet_size or size <= self.maximum_packet_size:  # it will be sent
            aliases[topic] = alias
        return packet

    # ---- back-pressure

    def hold(self, packets: bytes, count: int) -> None:
        """Keep QoS 0 packets until the transport drains; drop those beyond the limits."""
        session = self.session
        assert session is not None
        self.frontend.blocked.append(self)  # type: ignore[arg-type]
        limits = self.frontend.limits
        room = limits.maximum_queued - self._held_count
        if count > room:
            session.dropped += count - room
            packets, count = _first_packets(packets, room), room
        budget, cost = self.frontend.budget, len(packets) + ENTRY_COST
        if self._held_bytes + len(packets) > limits.maximum_queued_bytes or budget.used + cost > budget.limit:
            session.dropped += count
            return
        if not count:
            return
        budget.used += cost
        if self._held is None:
            self._held = deque()
        self._held.append((packets, count))
        self._held_count += count
        self._held_bytes += len(packets)

    def release_held(self) -> deque[tuple[bytes, int]]:
        """What is held; from now on nothing is."""
        held = self._held
        if held is None:
            return _NOTHING
        self.frontend.budget.used -= self._held_bytes + ENTRY_COST * len(held)
        self._held, self._held_count, self._held_bytes = None, 0, 0
        return held

    def too_slow(self) -> None:
        """Its queue of messages with QoS 1 and 2 is full: disconnect it, as soon as the present input is handled."""
        if not self._too_slow:
            self._too_slow = True
            self.frontend.counts.too_slow += 1
            self.frontend.timers.at(self.frontend.clock(), self._give_up)

    def _give_up(self, now: float) -> None:
        self.close(Reason.QUOTA_EXCEEDED, "too slow: its queue is full")

    def close(self, reason: Reason, text: str = "") -> None:
        """Close the connection."""
        raise NotImplementedError

    def pause_writing(self) -> None:
        """The transport is over its high-water mark."""
        self.writable = False

    def resume_writing(self) -> None:
        """The transport has drained: send what waits, let the publishers continue."""
        self.writable = True
        session = self.session
        if session is not None:
            for packets, count in self.release_held():
                session.delivered += count
                self.write(packets)
            session.pump()
        self.caught_up()

    @property
    def behind(self) -> bool:
        """Messages wait because of this client: its transport is full, or it has not acknowledged enough."""
        return not self.writable or (self.session is not None and bool(self.session.queue))

    def caught_up(self) -> None:
        """To be called when a reason to be `behind` has gone."""
        if self._waiters is not None and not self.behind:
            self.release_waiters()

    def wait_for(self, blocked: Sender) -> bool:
        """Stop reading this client until `blocked` can take messages again, within the limits of patience.

        False if there is nothing to wait for.
        """
        if blocked is self or not blocked.behind or not (blocked._waiters is not None or blocked._let_wait()):
            return False
        assert blocked._waiters is not None
        if self in blocked._waiters:
            return False
        blocked._waiters.append(self)
        return True

    def _let_wait(self) -> bool:
        """From now on publishers wait for this client. False if there is no patience left for it.

        Where only its acknowledgements are missing it has its turn first, which costs no patience: they may have
        arrived, and not been read as its publishers were served before it.
        """
        now = self.frontend.clock()
        if self.writable:
            self._waiters = []
            self.frontend.timers.at(now + TURN, partial(self._in_turn, self._waiters))
            return True
        if self._patience(now) < TURN:
            return False
        self._waiters = []
        self._count_wait(self._waiters, now)
        return True

    def _in_turn(self, waiters: list[Sender], now: float) -> None:
        self.frontend.timers.at(now + TURN, partial(self._count_wait, waiters))

    def _count_wait(self, waiters: list[Sender], now: float) -> None:
        """It costs patience from now on, unless it has caught up."""
        if waiters is self._waiters:
            self._waited_since = now
            self.frontend.timers.at(now + self._patience(now), partial(self._lose_patience, waiters))

    def _patience(self, now: float) -> float:
        """Seconds that publishers may wait for this client now."""
        limits = self.frontend.limits
        if now >= self._spent_since + limits.patience_again:
            self._spent, self._spent_since = 0.0, now
        return max(0.0, limits.patience - self._spent)

    def _lose_patience(self, waiters: list[Sender], now: float) -> None:
        if waiters is self._waiters:
            self.release_waiters()

    def release_waiters(self) -> None:
        """Let the publishers that wait for this client continue."""
        waiters, self._waiters = self._waiters, None
        if self._waited_since is not None:
            self._spent += self.frontend.clock() - self._waited_since
            self._waited_since = None
        for waiter in waiters or ():
            waiter.released()

    def released(self) -> None:
        """A subscriber this publisher waited for needs no waiting any more."""
        raise NotImplementedError

    def update_reading(self) -> None:
        """Read from the client, or stop for a while, as the state of the things it depends on asks for."""
        raise NotImplementedError


def _first_packets(packets: bytes, count: int) -> bytes:
    """The first `count` of several packets."""
    pos = 0
    for _ in range(count):
        bounds = fixed_header(packets, pos)
        assert bounds is not None
        pos = bounds[1]
    return packets[:pos]
