from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, Connect, Packet, Pingreq, Pingresp
from saps.frontend.mqtt.limits import Limits
from tests.frontend.mqtt.bench import Bench, Client
from tests.frontend.mqtt.strategies import chunked, cut_lists, packets, versions


@given(st.binary(max_size=200), cut_lists)
def test_any_bytes_instead_of_connect(data: bytes, cuts: list[int]) -> None:
    bench = Bench(Limits(maximum_packet_size=150))
    client = Client(bench)
    for chunk in chunked(data, cuts):
        client.connection.receive(chunk)
    assert client.connection.closing or client.connection.session is None


@given(
    versions.flatmap(lambda v: st.tuples(st.just(v), st.lists(packets(v) | st.binary(max_size=20), max_size=8))),
    cut_lists,
    st.integers(0, 1 << 16),
    st.integers(0, 255),
)
def test_any_packets_and_bytes_after_connect_harm_only_their_own_connection(
    case: tuple[int, list[Packet | bytes]], cuts: list[int], place: int, value: int
) -> None:
    version, items = case
    bench = Bench(Limits(maximum_packet_size=500))
    other = bench.client("other")
    client = bench.client("c", version=version)
    data = bytearray(b"".join(item if isinstance(item, bytes) else encode(item, version) for item in items))
    if data:
        data[place % len(data)] = value
    for chunk in chunked(bytes(data), cuts):
        client.send_bytes(chunk)
    client.lose()
    other.send(Pingreq())
    assert any(isinstance(packet, Pingresp) for packet in other.take())


@given(st.lists(packets(V5), min_size=1, max_size=6), cut_lists)
def test_chunking_does_not_change_the_outcome(items: list[Packet], cuts: list[int]) -> None:
    stream = b"".join(encode(item, V5) for item in items)

    def outcome(chunks: list[bytes]) -> tuple[bytes, bool]:
        bench = Bench()
        client = Client(bench)
        client.send(Connect("c"))
        for chunk in chunks:
            client.send_bytes(chunk)
        return client.raw, client.closed

    assert outcome([stream]) == outcome(chunked(stream, cuts))
