"""The measuring ends of a connection, over real socket pairs."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks import packets
from benchmarks.packets import Layout, Ring
from benchmarks.streams import LatencySubscriber, Publisher, StreamError, Subscriber, subscriber

Pair = tuple[socket.socket, socket.socket]

RINGS = {
    "plain": Ring("bench/topic", 200, 0, 256),
    "mixed": Ring("bench/topic", 200, 0, 256, vary=50),
    "acked": Ring("bench/topic", 200, 1, 256),
    "mixed-acked": Ring("bench/topic", 200, 1, 256, vary=50),
}
COUNTING = ["acked", "mixed", "plain"]
BUFFER_BYTES = 1 << 16


@pytest.fixture
def pair() -> Iterator[Pair]:
    """The broker's end and the generator's end."""
    broker, own = socket.socketpair()
    own.setblocking(False)
    with broker, own:
        yield broker, own


def packet(ring: Ring, number: int) -> bytes:
    number %= ring.length
    return bytes(ring.bytes[ring.span(0, number) : ring.ends[number]])


@given(cuts=st.lists(st.integers(1, 700), min_size=1, max_size=60), kind=st.sampled_from(sorted(RINGS)))
def test_counts_whatever_the_chunks(cuts: list[int], kind: str) -> None:
    ring = RINGS[kind]
    stream = b"".join(packet(ring, number) for number in range(400))
    broker, own = socket.socketpair()
    own.setblocking(False)
    with broker, own:
        receiver = subscriber(own, ring, bytearray(BUFFER_BYTES))
        at = 0
        for cut in cuts:
            broker.sendall(stream[at : at + cut])
            at = min(len(stream), at + cut)
            receiver.on_readable()
        whole = sum(at >= ring.span(0, number) for number in range(1, 401))
        assert (receiver.received, receiver.position) == (whole, whole)
        assert (receiver.lost, receiver.repeated) == (0, 0)
        if kind.endswith("acked") and whole:
            acks = broker.recv(1 << 16)
            ids = (1 + number % ring.length for number in range(whole))
            assert acks == b"".join(b"\x40\x02" + i.to_bytes(2, "big") for i in ids)


def feed(pair: Pair, numbers: list[int], kind: str) -> Subscriber:
    broker, own = pair
    ring = RINGS[kind]
    receiver = subscriber(own, ring, bytearray(BUFFER_BYTES))
    for start in range(0, len(numbers), 50):
        broker.sendall(b"".join(packet(ring, number) for number in numbers[start : start + 50]))
        receiver.on_readable()
    return receiver


@given(gone=st.sets(st.integers(0, 599)), kind=st.sampled_from(COUNTING))
def test_every_loss_is_counted(gone: set[int], kind: str) -> None:
    if any(not set(range(start, start + 100)) - gone for start in range(500)):
        assume(False)  # a gap of half a ring looks like a repetition; the window is a quarter of it
    own_pair = socket.socketpair()
    own_pair[1].setblocking(False)
    with own_pair[0], own_pair[1]:
        receiver = feed(own_pair, [number for number in range(601) if number not in gone], kind)
    assert receiver.lost == len(gone)
    assert receiver.received == 601 - len(gone)
    assert receiver.position == 601


@pytest.mark.parametrize("kind", COUNTING)
def test_a_repetition_is_no_progress(pair: Pair, kind: str) -> None:
    receiver = feed(pair, [0, 1, 2, 1, 2, 3], kind)
    assert (receiver.received, receiver.repeated, receiver.lost, receiver.position) == (4, 2, 0, 4)


@pytest.mark.parametrize("kind", COUNTING)
def test_a_late_message_is_a_loss_and_a_repetition(pair: Pair, kind: str) -> None:
    receiver = feed(pair, [0, 2, 1, 3], kind)
    assert (receiver.received, receiver.repeated, receiver.lost) == (3, 1, 1)


def test_a_foreign_packet_is_refused(pair: Pair) -> None:
    broker, own = pair
    receiver = subscriber(own, RINGS["plain"], bytearray(BUFFER_BYTES))
    broker.sendall(packet(RINGS["acked"], 0))
    with pytest.raises(StreamError, match="something else"):
        receiver.on_readable()


@pytest.mark.parametrize(
    ("numbers", "fault"),
    [
        ([0, 2], "message 1 was expected, and the one \\+1 from it arrived"),
        ([0, 1, 1], "message 2 was expected, and the one -1 from it arrived"),
        ([3], "message 0 was expected, and the one \\+3 from it arrived"),
    ],
)
def test_mixed_packets_of_qos_1_must_be_complete_and_in_order(pair: Pair, numbers: list[int], fault: str) -> None:
    with pytest.raises(StreamError, match=fault):
        feed(pair, [*numbers, 4, 5], "mixed-acked")


def test_a_mixed_packet_of_qos_1_that_was_never_published_is_told(pair: Pair) -> None:
    broker, own = pair
    ring = RINGS["mixed-acked"]
    receiver = subscriber(own, ring, bytearray(BUFFER_BYTES))
    broker.sendall(packet(ring, 0)[:-1] + b"?" + packet(ring, 1))
    with pytest.raises(StreamError, match="instead of message 0 something arrived that was never published"):
        receiver.on_readable()


def test_an_altered_payload_is_not_taken_for_the_message(pair: Pair) -> None:
    broker, own = pair
    ring = RINGS["mixed"]
    receiver = subscriber(own, ring, bytearray(BUFFER_BYTES))
    altered = bytearray(packet(ring, 1))
    altered[-1] ^= 1
    broker.sendall(packet(ring, 0) + altered + packet(ring, 2))
    with pytest.raises(StreamError, match="altered"):
        receiver.on_readable()


def test_a_closed_connection_is_told(pair: Pair) -> None:
    broker, own = pair
    receiver = subscriber(own, RINGS["plain"], bytearray(BUFFER_BYTES))
    broker.close()
    with pytest.raises(StreamError, match="closed"):
        receiver.on_readable()


def test_a_publisher_keeps_to_its_window(pair: Pair) -> None:
    broker, own = pair
    ring = RINGS["acked"]
    near, far = socket.socketpair()
    far.setblocking(False)
    with near, far:
        receiver = subscriber(far, ring, bytearray(BUFFER_BYTES))
        publisher = Publisher(own, ring, [receiver], window=40)
        seen = 0
        for _ in range(20):
            publisher.refill()
            data = broker.recv(1 << 16)
            seen += len(data) // ring.layout.size
            assert publisher.released == seen
            assert publisher.released - publisher.settled() == 40
            near.sendall(data)
            receiver.on_readable()
            assert publisher.released - publisher.settled() == 40, "not yet acknowledged"
            broker.sendall(near.recv(1 << 16))
            publisher.on_readable()
            assert publisher.settled() == publisher.released
    assert (receiver.received, receiver.lost, receiver.repeated) == (800, 0, 0)


def test_latency_is_from_the_stamp_to_now(pair: Pair) -> None:
    broker, own = pair
    layout = Layout.of("bench/topic", 200, 1)
    receiver = LatencySubscriber(own, layout)
    first, second = (
        packets.publish("bench/topic", stamp.to_bytes(8, "big") + bytes(192), 1, 300 + stamp) for stamp in (10, 20)
    )
    broker.sendall(first + second[:100])
    receiver.on_readable(110)
    broker.sendall(second[100:])
    receiver.on_readable(150)
    receiver.acknowledge()
    assert list(receiver.latencies) == [100, 130]
    assert broker.recv(100) == b"\x40\x02" + (310).to_bytes(2, "big") + b"\x40\x02" + (320).to_bytes(2, "big")
