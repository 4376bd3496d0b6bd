"""Random histories of subscribers that come and go, against what each quality of service promises."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from saps.frontend.mqtt.codec.packets import V5, V311, Ack, PacketType, Publish
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.limits import Limits
from tests.frontend.mqtt.bench import Bench, Client, puback, pubcomp, pubrec, pubrel

EXPIRY = {Property.SESSION_EXPIRY: 3600}


class QualityOfService(RuleBasedStateMachine):
    """A publisher and a subscriber whose connections break at any time, and answer in their own time.

    Both keep the client side of the protocol: the publisher repeats what was not acknowledged, the subscriber
    delivers QoS 2 once per packet identifier between PUBLISH and PUBREL.
    """

    @initialize(
        window=st.integers(1, 4),
        queued=st.sampled_from([10_000]),
        version=st.sampled_from([V311, V5]),
        publisher_version=st.sampled_from([V311, V5]),
    )
    def setup(self, window: int, queued: int, version: int, publisher_version: int) -> None:
        self.bench = Bench(Limits(send_maximum=window, maximum_queued=queued))
        self.version = version
        self.publisher_version = publisher_version
        self.subscriber = self.connect("s", version)
        self.publisher = self.connect("p", publisher_version)
        self.subscriber.subscribe("q/1", qos=1)
        self.subscriber.subscribe("q/2", qos=2)
        self.sent: dict[int, list[bytes]] = {1: [], 2: []}
        self.got: dict[int, list[bytes]] = {1: [], 2: []}
        self.unanswered: list[Ack | Publish] = []
        self.half: set[int] = set()
        self.open: dict[int, Publish | None] = {}
        self.next_id = 1

    def connect(self, name: str, version: int) -> Client:
        properties = EXPIRY if version == V5 else {}
        return self.bench.client(name, version=version, clean_start=False, properties=properties)

    # ---- the publisher

    @rule(qos=st.integers(1, 2))
    def publish(self, qos: int) -> None:
        payload = b"%d" % (len(self.sent[1]) + len(self.sent[2]))
        self.sent[qos].append(payload)
        message = Publish(f"q/{qos}", payload, qos, packet_id=self.next_id)
        self.open[self.next_id] = message
        self.next_id += 1
        self.publisher.send(message)

    @rule()
    def publisher_hears(self) -> None:
        for packet in self.publisher.take():
            assert isinstance(packet, Ack)
            if packet.type == PacketType.PUBREC:
                self.open[packet.packet_id] = None
                self.publisher.send(pubrel(packet.packet_id))
            else:
                self.open.pop(packet.packet_id, None)

    @rule()
    def publisher_returns(self) -> None:
        self.publisher.lose()
        self.publisher = self.connect("p", self.publisher_version)
        assert self.publisher.connack.session_present
        for packet_id, message in self.open.items():
            if message is None:
                self.publisher.send(pubrel(packet_id))
            else:
                message.dup = True
                self.publisher.send(message)

    # ---- the subscriber

    @rule()
    def subscriber_reads(self) -> None:
        for packet in self.subscriber.take():
            if isinstance(packet, Publish) and packet.qos == 2:
                assert packet.packet_id is not None
                if packet.packet_id not in self.half:
                    self.half.add(packet.packet_id)
                    self.got[2].append(packet.payload)
            elif isinstance(packet, Publish):
                self.got[1].append(packet.payload)
            else:
                assert isinstance(packet, Ack)
                assert packet.type == PacketType.PUBREL
                self.half.discard(packet.packet_id)
            self.unanswered.append(packet)

    @rule(count=st.integers(1, 5))
    def subscriber_answers(self, count: int) -> None:
        for packet in self.unanswered[:count]:
            assert packet.packet_id is not None
            if isinstance(packet, Ack):
                self.subscriber.send(pubcomp(packet.packet_id))
            else:
                self.subscriber.send((puback if packet.qos == 1 else pubrec)(packet.packet_id))
        del self.unanswered[:count]

    @rule(pause=st.booleans())
    def subscriber_transport(self, pause: bool) -> None:
        if pause:
            self.subscriber.connection.pause_writing()
        else:
            self.subscriber.connection.resume_writing()
            self.bench.flush()

    @rule()
    def subscriber_returns(self) -> None:
        self.unanswered.clear()
        self.subscriber.lose()
        self.subscriber = self.connect("s", self.version)
        assert self.subscriber.connack.session_present

    @rule(seconds=st.floats(0.01, 100))
    def time_passes(self, seconds: float) -> None:
        self.bench.advance(seconds)

    # ---- the promises

    @invariant()
    def windows_are_kept(self) -> None:
        session = self.bench.sessions["s"]
        assert len(session.window.inflight) <= self.bench.frontend.limits.send_maximum
        assert not self.subscriber.closed
        assert not self.publisher.closed

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.subscriber_transport(pause=False)
        for _ in range(1000):
            self.bench.advance(0.1)
            self.publisher_hears()
            self.subscriber_reads()
            if not self.unanswered and not self.publisher.packets and not self.subscriber.packets:
                break
            self.subscriber_answers(1000)
        assert self.open == {}
        session = self.bench.sessions["s"]
        assert session.window.inflight == {}
        assert not session.queue.copies
        assert session.dropped == 0
        # QoS 2: each once, in order; QoS 1: each at least once, first arrivals in order (4.3.2, 4.3.3, 4.6)
        assert self.got[2] == self.sent[2]
        assert list(dict.fromkeys(self.got[1])) == self.sent[1]


TestQualityOfService = QualityOfService.TestCase
