"""Datagrams: what is sent is read back, and no bytes whatever make the reader raise."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from saps.messages import Properties
from saps.ofm.datagram import Datagram, high_water, parse, publication
from saps.overlay.frames import Data
from saps.overlay.keys import BrokerRef
from saps.overlay.trees import Tree

TREE = Tree("239.77.0.1:5000", 7)
ORIGIN = BrokerRef("b1", 1_700_000_000_000, "10.0.0.1:7300", "tokyo/ward1")
TOPICS = st.text(st.characters(exclude_characters="+#\0", codec="utf-8"), min_size=1)
TEXTS = st.text(st.characters(exclude_characters="\0", codec="utf-8"))
PROPERTIES = st.none() | st.builds(
    Properties, content_type=st.none() | TEXTS, user=st.lists(st.tuples(TEXTS, TEXTS)).map(tuple)
)
PUBLICATIONS = st.integers(0, 2**60).flatmap(
    lambda prev: st.builds(
        Data,
        origin=st.just(0),
        seq=st.integers(prev + 1, 2**61),
        prev=st.just(prev),
        slice=st.just(0),
        token=st.just(0),
        topic=TOPICS,
        payload=st.binary(),
        qos=st.integers(0, 2),
        retain=st.booleans(),
        properties=PROPERTIES,
    )
)


@given(data=PUBLICATIONS, serial=st.integers(1, 2**60))
def test_a_publication_reads_back(data: Data, serial: int) -> None:
    datagram = parse(publication(TREE, ORIGIN, serial, data))
    assert datagram is not None
    assert (datagram.tree, datagram.origin, datagram.serial, datagram.is_high_water) == (TREE, ORIGIN, serial, False)
    assert datagram.data() == data


@given(topic=TOPICS, seq=st.integers(1, 2**60))
def test_a_high_water_mark_reads_back(topic: str, seq: int) -> None:
    datagram = parse(high_water(TREE, ORIGIN, 3, topic, seq))
    assert datagram is not None
    assert (datagram.is_high_water, datagram.topic, datagram.seq) == (True, topic, seq)


@given(raw=st.binary())
def test_any_bytes_are_a_datagram_or_none(raw: bytes) -> None:
    assert parse(raw) is None or isinstance(parse(raw), Datagram)


@given(data=PUBLICATIONS, at=st.integers(0), byte=st.integers(0, 255), cut=st.integers(0))
def test_a_damaged_datagram_is_a_sound_one_or_none(data: Data, at: int, byte: int, cut: int) -> None:
    raw = bytearray(publication(TREE, ORIGIN, 1, data))
    raw[at % len(raw)] = byte
    datagram = parse(bytes(raw[: cut % (len(raw) + 1)])) or parse(bytes(raw))
    if datagram is not None:
        assert 0 <= datagram.prev < datagram.seq
        assert datagram.data().qos in (0, 1, 2)
        assert "\0" not in datagram.topic


def test_what_no_broker_would_send_is_refused() -> None:
    good = ["239.77.0.1:5000", 7, ["b1", 1, "h:1", "c"], 3, 9, 8, 1, "a/b", b"x", None, None]

    def read(**changes: object) -> Datagram | None:
        fields = dict(zip(Datagram.__struct_fields__, [1, *good], strict=True)) | changes
        return parse(msgspec.msgpack.encode([*fields.values()]))

    assert read() is not None
    for changes in (
        {"version": 2}, {"flags": 3}, {"flags": 16}, {"flags": -1}, {"seq": 8}, {"prev": -1}, {"serial": 0},
        {"topic": "a/#"}, {"topic": ""}, {"topic": "a\0"}, {"payload": "text"}, {"origin": None},
    ):  # fmt: skip
        assert read(**changes) is None, changes
