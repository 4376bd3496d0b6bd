"""Datagrams: what is sent is read back, and no bytes whatever make the reader raise."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from saps.messages import Properties
from saps.ofm.datapath.datagram import HIGH_WATER, PROBE, VERSION, Datagram, parse, publications, without_publications
from saps.overlay.delivery.ofm_members import Tree
from saps.overlay.delivery.publications import give
from saps.overlay.frames.delivery import Part, Publish
from saps.overlay.ring.keys import BrokerRef

TREE = Tree("239.77.0.1:5000", 7)
ORIGIN = BrokerRef("b1", 1_700_000_000_000, "10.0.0.1:7300", "tokyo/ward1")
TOPICS = st.text(st.characters(exclude_characters="+#\0", codec="utf-8"), min_size=1)
TEXTS = st.text(st.characters(exclude_characters="\0", codec="utf-8"))
PROPERTIES = st.none() | st.builds(
    Properties, content_type=st.none() | TEXTS, user=st.lists(st.tuples(TEXTS, TEXTS)).map(tuple)
)


@st.composite
def publications_drawn(draw: st.DrawFn) -> Publish:
    """Publications to one topic."""
    prev, count = draw(st.integers(0, 2**60)), draw(st.integers(1, 4))
    seqs = [prev := prev + draw(st.integers(1, 9)) for _ in range(count)]
    properties = [draw(PROPERTIES) for _ in seqs]
    frame = Publish(
        0,
        0,
        0,
        draw(st.integers(0, 2)),
        draw(st.booleans()),
        [Part(draw(TOPICS), seqs[0] - 1)],
        [0] * count,
        seqs,
        [draw(st.binary()) for _ in seqs],
        [],
        [],
    )
    if any(properties):
        give(frame, properties, {})
    return frame


PUBLICATIONS = publications_drawn()


@given(body=PUBLICATIONS, serial=st.integers(1, 2**60))
def test_publications_read_back(body: Publish, serial: int) -> None:
    datagram = parse(publications(TREE, ORIGIN, serial, body))
    assert datagram is not None
    assert (datagram.tree, datagram.origin, datagram.serial, datagram.is_empty) == (TREE, ORIGIN, serial, False)
    assert datagram.frame() == body


@given(topic=TOPICS, seq=st.integers(1, 2**60), flag=st.sampled_from([HIGH_WATER, PROBE]))
def test_a_high_water_mark_or_a_probe_reads_back(topic: str, seq: int, flag: int) -> None:
    datagram = parse(without_publications(TREE, ORIGIN, 3, topic, seq, flag))
    assert datagram is not None
    assert (datagram.is_empty, datagram.flags, datagram.topic, datagram.seqs) == (True, flag, topic, [seq])


@given(raw=st.binary())
def test_any_bytes_are_a_datagram_or_none(raw: bytes) -> None:
    assert parse(raw) is None or isinstance(parse(raw), Datagram)


@given(body=PUBLICATIONS, at=st.integers(0), byte=st.integers(0, 255), cut=st.integers(0))
def test_a_damaged_datagram_is_a_sound_one_or_none(body: Publish, at: int, byte: int, cut: int) -> None:
    raw = bytearray(publications(TREE, ORIGIN, 1, body))
    raw[at % len(raw)] = byte
    datagram = parse(bytes(raw[: cut % (len(raw) + 1)])) or parse(bytes(raw))
    if datagram is not None:
        assert 0 <= datagram.prev < datagram.seqs[0] or datagram.is_empty
        assert datagram.frame().qos in (0, 1, 2)
        assert "\0" not in datagram.topic


def test_what_no_broker_would_send_is_refused() -> None:
    good = ["239.77.0.1:5000", 7, ["b1", 1, "h:1", "c"], 3, 8, 1, "a/b", [9, 11], [b"x", b"y"], [], [], None]

    def read(**changes: object) -> Datagram | None:
        fields = dict(zip(Datagram.__struct_fields__, [VERSION, *good], strict=True)) | changes
        return parse(msgspec.msgpack.encode([*fields.values()]))

    assert read() is not None
    refused: tuple[dict[str, object], ...] = (
        {"version": 1}, {"flags": 3}, {"flags": 16}, {"flags": -1}, {"seqs": [8, 9]}, {"seqs": [9]}, {"seqs": [11, 9]},
        {"seqs": []}, {"prev": -1}, {"serial": 0}, {"topic": "a/#"}, {"topic": ""}, {"topic": "a\0"},
        {"payloads": [b"x"]}, {"payloads": "text"}, {"origin": None}, {"properties": [None]}, {"given": [0]},
        {"flags": 8},
    )  # fmt: skip
    for changes in refused:
        assert read(**changes) is None, changes
