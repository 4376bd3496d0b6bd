"""The connection machine: versions, handshake, echo, attribution of errors, multipart replies, time."""

from __future__ import annotations

import struct

import pytest

from saps.ofm.flows.tables import DropGroup, Flow, Match, PutFlow
from saps.ofm.openflow import requests as r
from saps.ofm.openflow.connection import Connection, State
from saps.ofm.openflow.events import Complaint, Done, Fault, Limits, Lost, Overdue, Ready, Refusal
from saps.ofm.openflow.values import Features, PacketIn, PortChange, PortStatus, Role, SwitchError
from tests.ofm.openflow import messages as m

MODS = [PutFlow(Flow(priority, Match(), ())) for priority in range(3)]


def test_a_handshake_tells_who_the_switch_is() -> None:
    connection, events = m.handshake()
    [ready] = events
    assert isinstance(ready, Ready)
    assert ready.features == Features(1, 254, 0)
    assert ready.maker == ("maker", "a model")
    assert [(port.number, port.name, port.up) for port in ready.ports] == [(1, "one", True), (2, "two", False)]
    assert connection.state is State.READY


@pytest.mark.parametrize(
    ("hello", "agreed"),
    [
        pytest.param(m.hello(4), True, id="1.3"),
        pytest.param(m.hello(1, 4, 5, highest=5), True, id="1.0, 1.3, 1.4"),
        pytest.param(m.hello(highest=4), True, id="1.3 without bitmap"),
        pytest.param(m.hello(highest=6), True, id="1.5 without bitmap: the lower of both"),
        pytest.param(m.hello(1, 5, highest=5), False, id="1.0, 1.4"),
        pytest.param(m.hello(highest=1), False, id="1.0 without bitmap"),
        pytest.param(m.message(m.HELLO, bytes.fromhex("00070006ffff0000 0001000800000010")), True, id="other element"),
    ],
)
def test_versions_are_negotiated(hello: bytes, agreed: bool) -> None:
    connection = Connection(Limits())
    connection.take()
    events = connection.receive(hello)
    if agreed:
        assert events == []
        assert connection.state is State.HANDSHAKE
        return
    [lost] = events
    assert isinstance(lost, Lost)
    assert lost.fault is Fault.NO_COMMON_VERSION
    [(kind, _, told)] = m.sent(connection)
    assert kind == m.ERROR
    assert told[8:12] == bytes(4), "hello failed, incompatible"


def test_our_hello_offers_version_1_3_only() -> None:
    [(kind, _, hello)] = m.sent(Connection(Limits()))
    assert kind == m.HELLO
    assert hello[0] == 4
    assert hello[8:] == struct.pack("!HHI", 1, 8, 1 << 4)


@pytest.mark.parametrize(
    ("first", "fault"),
    [
        (m.message(m.ECHO_REQUEST), Fault.NO_HELLO),
        (m.error(0, 0, 0, b"no"), Fault.NO_COMMON_VERSION),
        (b"GET / HTTP/1.1\r\n\r\n", Fault.BAD_LENGTH),
        (b"\x04\x00\x00\x07\x00\x00\x00\x00", Fault.BAD_LENGTH),
        (b"\x04\x00\xff\xff\x00\x00\x00\x00", Fault.BAD_LENGTH),
        (m.message(m.HELLO, b"\0\1\0\0"), Fault.MALFORMED),
    ],
)
def test_what_is_no_hello_ends_the_connection(first: bytes, fault: Fault) -> None:
    [lost] = Connection(Limits()).receive(first)
    assert isinstance(lost, Lost)
    assert lost.fault is fault


@pytest.mark.parametrize(
    ("later", "fault"),
    [
        pytest.param(m.message(m.ECHO_REQUEST, version=5), Fault.WRONG_VERSION, id="version"),
        pytest.param(b"\x04\x02\x00\x05\0\0\0\0", Fault.BAD_LENGTH, id="length"),
        pytest.param(m.message(m.PACKET_IN, b"\0"), Fault.MALFORMED, id="packet-in cut short"),
        pytest.param(m.message(m.PORT_STATUS), Fault.MALFORMED, id="empty port status"),
        pytest.param(m.message(m.MULTIPART_REPLY), Fault.MALFORMED, id="empty multipart reply"),
    ],
)
def test_bad_input_ends_the_connection(later: bytes, fault: Fault) -> None:
    connection, _ = m.handshake()
    [lost] = connection.receive(later)
    assert isinstance(lost, Lost)
    assert lost.fault is fault
    assert connection.receive(m.message(m.ECHO_REQUEST)) == []


def test_the_end_within_a_message_is_told_from_the_end_between_two() -> None:
    for data, fault in [(m.message(m.ECHO_REQUEST)[:7], Fault.TRUNCATED), (b"", Fault.ENDED)]:
        connection, _ = m.handshake()
        connection.receive(data)
        [lost] = connection.ended()
        assert isinstance(lost, Lost)
        assert lost.fault is fault


def test_auxiliary_connections_are_refused() -> None:
    connection = Connection(Limits())
    connection.receive(m.hello(4))
    [lost] = connection.receive(m.answers(connection, auxiliary=1))
    assert isinstance(lost, Lost)
    assert lost.fault is Fault.AUXILIARY


@pytest.mark.parametrize("entry", [0, 1, 55, 0xFFFF])
@pytest.mark.parametrize("kind", [m.FLOW, m.GROUP_DESC])
def test_a_list_entry_of_impossible_length_ends_the_connection(kind: int, entry: int) -> None:
    """The codec's own loops would never end on an entry of length zero."""
    connection, _ = m.handshake()
    ticket = connection.ask(r.AskFlows() if kind == m.FLOW else r.AskGroups())
    events = connection.receive(m.part(kind, struct.pack("!H", entry) + bytes(62), ticket))
    assert [type(event) for event in events] == [Lost]


# ---- echo and time


def test_an_echo_request_is_answered_with_its_data() -> None:
    connection, _ = m.handshake()
    assert connection.receive(m.message(m.ECHO_REQUEST, b"are you there", xid=9)) == []
    assert m.sent(connection) == [(m.ECHO_REPLY, 9, m.message(m.ECHO_REPLY, b"are you there", xid=9))]


def test_a_silent_switch_is_asked_and_then_given_up() -> None:
    connection, _ = m.handshake(Limits(idle=5, timeout=5))
    assert connection.tick(4.9) == []
    assert m.sent(connection) == []
    assert connection.tick(0.2) == []
    assert [kind for kind, _, _ in m.sent(connection)] == [m.ECHO_REQUEST]
    assert connection.tick(4.0) == []
    assert m.sent(connection) == [], "asked once"
    [lost] = connection.tick(1.0)
    assert isinstance(lost, Lost)
    assert lost.fault is Fault.SILENT


def test_any_message_is_a_sign_of_life_but_a_part_of_one_is_not() -> None:
    connection, _ = m.handshake(Limits(idle=5, timeout=5))
    connection.tick(9.0)
    connection.receive(m.message(m.ECHO_REPLY))
    assert connection.tick(9.0) == []
    connection.receive(m.message(m.ECHO_REPLY)[:6])
    [lost] = connection.tick(9.0)
    assert isinstance(lost, Lost)


@pytest.mark.parametrize("state", [State.HELLO, State.HANDSHAKE])
def test_a_handshake_must_end_in_time(state: State) -> None:
    connection = Connection(Limits(handshake=10))
    if state is State.HANDSHAKE:
        connection.receive(m.hello(4))
    assert connection.tick(9.9) == []
    [lost] = connection.tick(0.2)
    assert isinstance(lost, Lost)
    assert lost.fault is Fault.HANDSHAKE_TIMEOUT


def test_an_answer_that_comes_too_late_is_ignored() -> None:
    connection, _ = m.handshake(Limits(idle=1000, answer=30))
    ticket = connection.ask(r.AskBarrier())
    assert connection.tick(30.0) == [Overdue(ticket)]
    assert connection.receive(m.message(m.BARRIER_REPLY, xid=ticket)) == []


# ---- transactions and questions


def test_a_transaction_is_modifications_and_a_barrier() -> None:
    connection, _ = m.handshake()
    m.sent(connection)
    ticket = connection.transact(MODS)
    told = m.sent(connection)
    assert [kind for kind, _, _ in told] == [m.FLOW_MOD] * 3 + [m.BARRIER_REQUEST]
    assert told[-1][1] == ticket
    assert connection.receive(m.message(m.BARRIER_REPLY, xid=ticket)) == [Done(ticket, None, ())]


def test_errors_are_told_with_the_request_that_caused_them() -> None:
    connection, _ = m.handshake()
    m.sent(connection)
    first = connection.transact(MODS)
    second = connection.transact([DropGroup(1), *MODS])
    xids = [xid for _, xid, _ in m.sent(connection)]
    bad_group = SwitchError(2, 9, "OFPBAC_BAD_OUT_GROUP", b"data")
    full = SwitchError(5, 1, "OFPFMFC_TABLE_FULL", b"")
    events = connection.receive(
        m.error(xids[7], 5, 1) + m.error(xids[1], 2, 9, b"data") + m.error(xids[1], 5, 1)
        + m.message(m.BARRIER_REPLY, xid=first) + m.message(m.BARRIER_REPLY, xid=second)
    )  # fmt: skip
    assert events == [
        Done(first, None, (Refusal(MODS[1], bad_group),)),
        Done(second, None, (Refusal(MODS[2], full),)),
    ]


def test_an_error_that_answers_nothing_is_a_complaint() -> None:
    connection, _ = m.handshake()
    connection.tell(r.SendPacket(1, bytes(60)))
    [(_, xid, _)] = m.sent(connection)[-1:]
    [complaint] = connection.receive(m.error(xid, 2, 4, b"x"))
    assert complaint == Complaint(SwitchError(2, 4, "OFPBAC_BAD_OUT_PORT", b"x"))


def test_a_refused_question_ends_with_its_error() -> None:
    connection, _ = m.handshake()
    question = r.AskRole(Role.MASTER, 1)
    ticket = connection.ask(question)
    [done] = connection.receive(m.error(ticket, 11, 0))
    assert done == Done(ticket, None, (Refusal(question, SwitchError(11, 0, "OFPRRFC_STALE", b"")),))


def test_a_description_in_two_parts_ends_the_connection() -> None:
    connection = Connection(Limits())
    connection.receive(m.hello(4))
    replies = m.answers(connection)
    [at] = [part for part in m.split(replies) if part[8:10] == b"\0\0" and part[1] == m.MULTIPART_REPLY]
    twice = m.part(m.DESC, m.maker("a model"), int.from_bytes(at[4:8], "big"), more=True)
    [lost] = connection.receive(replies.replace(at, twice + at))
    assert isinstance(lost, Lost)
    assert lost.fault is Fault.WRONG_ANSWER


def test_an_answer_to_another_question_ends_the_connection() -> None:
    connection, _ = m.handshake()
    ticket = connection.ask(r.AskFlows())
    [lost] = connection.receive(m.message(m.BARRIER_REPLY, xid=ticket))
    assert isinstance(lost, Lost)
    assert lost.fault is Fault.WRONG_ANSWER


def test_the_parts_of_a_reply_are_joined_whatever_comes_between() -> None:
    connection, _ = m.handshake()
    one, other = connection.ask(r.AskPorts()), connection.ask(r.AskPorts())
    events = connection.receive(
        m.part(m.PORT_DESC, m.port(1, "a"), one, more=True)
        + m.part(m.PORT_DESC, m.port(2, "b"), other)
        + m.message(m.ECHO_REQUEST)
        + m.part(m.PORT_DESC, m.port(3, "c") + m.port(4, "d"), one)
    )
    joined = {event.ticket: [port.number for port in event.answer] for event in events}  # type: ignore[union-attr]
    assert joined == {other: [2], one: [1, 3, 4]}


def test_an_endless_reply_ends_the_connection() -> None:
    connection, _ = m.handshake(Limits(reply=10_000))
    ticket = connection.ask(r.AskPorts())
    more = m.part(m.PORT_DESC, m.port(1, "a") * 10, ticket, more=True)
    events = [event for _ in range(20) for event in connection.receive(more)]
    [lost] = events
    assert isinstance(lost, Lost)
    assert lost.fault is Fault.REPLY_TOO_LONG


def test_a_transaction_that_cannot_be_written_sends_nothing() -> None:
    connection, _ = m.handshake()
    m.sent(connection)
    with pytest.raises(ValueError, match="no message can carry"):
        connection.transact([*MODS, DropGroup(1 << 32)])
    assert m.sent(connection) == []


def test_transaction_ids_are_never_zero_when_they_start_anew() -> None:
    connection, _ = m.handshake()
    connection._xid = 0xFFFFFFFE
    tickets = [connection.transact(MODS), connection.ask(r.AskBarrier())]
    assert tickets == [4, 5]
    m.sent(connection)
    assert connection.receive(m.message(m.BARRIER_REPLY, xid=4)) == [Done(4, None, ())]


# ---- what a switch tells unasked


def test_packets_and_ports_are_told() -> None:
    connection, _ = m.handshake()
    frame = bytes(range(64))
    status = m.message(m.PORT_STATUS, struct.pack("!B7x", 1) + m.port(2, "two"))
    packet, change = connection.receive(m.packet_in(7, frame) + status)
    assert packet == PacketIn(7, 77, frame)
    assert isinstance(change, PortStatus)
    assert (change.change, change.port.number) == (PortChange.REMOVED, 2)
