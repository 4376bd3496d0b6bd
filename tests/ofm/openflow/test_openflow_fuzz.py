"""Whatever bytes a switch sends: the connection machine never raises, never hangs, keeps little, and ends once."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from saps.ofm.flows.tables import Flow, Match, Output, PutFlow, SetField
from saps.ofm.openflow import requests as r
from saps.ofm.openflow.connection import Connection, State
from saps.ofm.openflow.encode import encode
from saps.ofm.openflow.events import Event, Limits, Lost
from saps.ofm.openflow.framing import Framer
from saps.ofm.openflow.values import Role
from tests.ofm.openflow import messages as m

QUESTIONS: list[r.Question] = [
    r.AskFlows(), r.AskGroups(), r.AskGroupCounts(), r.AskPortCounts(), r.AskMeters(), r.AskPorts(), r.AskMaker(),
    r.AskRole(Role.EQUAL, 0), r.AskBarrier(), r.AskMeterCounts(),
]  # fmt: skip
FIRST = 6
"""Transaction id of the first of the questions asked by `asked`; those of the handshake come before."""

words = st.sampled_from([0, 1, 4, 7, 8, 16, 56, 64, 0xFFFF]) | st.integers(0, 0xFFFF)
bodies = st.lists(words.map(lambda word: struct.pack("!H", word)) | st.binary(max_size=40), max_size=20).map(b"".join)
xids = st.integers(0, FIRST + 2 * len(QUESTIONS))


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A message with a sound header and any body; multipart replies answer what may have been asked."""
    kind = draw(st.sampled_from([m.MULTIPART_REPLY, m.PACKET_IN, m.PORT_STATUS, m.ERROR]) | st.integers(0, 40))
    body = draw(bodies)
    if kind == m.MULTIPART_REPLY:
        body = struct.pack("!HHxxxx", draw(st.integers(0, 14)), draw(st.booleans())) + body
    return m.message(kind, body, draw(xids))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A sound message with some bytes changed."""
    data = bytearray(draw(st.sampled_from(SOUND)))
    for place in draw(st.lists(st.integers(0, len(data) - 1), max_size=3)):
        data[place] = draw(st.integers(0, 255))
    return bytes(data)


def _flow_stats() -> bytes:
    tail = encode(PutFlow(Flow(5, Match.of(eth_type=0x0800, ipv4_dst=5), (SetField("eth_dst", 6), Output(2)))), 1)[48:]
    return struct.pack("!HBxIIHHHHxxxxQQQ", 48 + len(tail), 0, 1, 2, 5, 0, 0, 0, 9, 10, 11) + tail


SOUND = [
    m.part(m.FLOW, _flow_stats() * 3, FIRST),
    m.part(m.GROUP_DESC, struct.pack("!HBxI HHII4x HHIHHI", 40, 0, 7, 32, 0, 1, 2, 0, 16, 3, 0, 0, 0), FIRST + 1),
    m.part(m.PORT_DESC, m.port(1, "one") + m.port(2, "two"), FIRST + 5),
    m.part(m.DESC, m.maker("x"), FIRST + 6),
    m.packet_in(3, bytes(60)),
    m.message(m.PORT_STATUS, bytes(8) + m.port(1, "one")),
    m.error(FIRST, 1, 2, bytes(64)),
]

streams = st.lists(messages() | damaged() | st.binary(max_size=30), max_size=12).map(b"".join)


def asked() -> Connection:
    """A ready connection with every question open."""
    connection, _ = m.handshake(Limits(reply=20_000))
    tickets = [connection.ask(question) for question in QUESTIONS]
    assert tickets[0] == FIRST
    connection.transact([PutFlow(Flow(1, Match(), ()))] * 3)
    connection.take()
    return connection


def ends_at_most_once(events: list[Event]) -> bool:
    ends = [isinstance(event, Lost) for event in events]
    return not any(ends[:-1])


@given(streams)
def test_a_ready_connection_survives_any_bytes(data: bytes) -> None:
    connection = asked()
    events = connection.receive(data)
    assert ends_at_most_once(events)
    assert (connection.state is State.LOST) == (bool(events) and isinstance(events[-1], Lost))
    assert connection._framer.pending < 1 << 16
    assert len(connection.take()) <= len(data) + 128, "nothing is amplified"


@given(st.binary(max_size=3000) | streams)
def test_a_new_connection_survives_any_bytes(data: bytes) -> None:
    connection = Connection(Limits())
    connection.take()
    events = connection.receive(data)
    assert ends_at_most_once(events)
    assert connection._framer.pending < 1 << 16


@given(streams, st.lists(st.integers(1, 50)))
def test_events_do_not_depend_on_how_the_stream_is_cut(data: bytes, cuts: list[int]) -> None:
    whole, pieces = asked(), asked()
    events: list[Event] = []
    rest = data
    for size in cuts:
        events += pieces.receive(rest[:size])
        rest = rest[size:]
    events += pieces.receive(rest)
    assert events == whole.receive(data)
    assert pieces.take() == whole.take()


@given(st.lists(st.binary(max_size=300), max_size=10), st.lists(st.integers(1, 400)))
def test_the_framer_gives_every_message_once(payloads: list[bytes], cuts: list[int]) -> None:
    sent = [m.message(99, body, xid) for xid, body in enumerate(payloads)]
    rest = b"".join(sent)
    framer = Framer(0xFFFF)
    got: list[bytes] = []
    for size in cuts:
        got += framer.feed(rest[:size])
        rest = rest[size:]
    got += framer.feed(rest)
    assert got == sent
    assert framer.pending == 0
