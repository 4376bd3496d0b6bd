"""What is against the standard ends the connection, with the right answer where there is one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from saps.frontend.mqtt.codec.packets import V5, V311
from tests.frontend.mqtt.conformance.conforms import mqtt5, mqtt311
from tests.frontend.mqtt.conformance.raw import (
    connect,
    connected,
    field,
    fresh,
    packet,
    publish,
    subscribe,
    unsubscribe,
)

WILL = 0x06
SURROGATE, NULL, ILL = b"\xed\xa0\x80", b"a\0b", b"\xff\xfe"


def wrong_connects() -> list[object]:
    """CONNECT packets that are refused, and what MQTT 5 and 3.1.1 clients are told; None: nothing."""
    malformed, rows = b"\x20\3\0\x81\0", []
    reject = b"\x20\2\0\1"
    for name, version, data, answer, *marks in (
        ("name", V5, connect(name=b"MQTQ"), None, mqtt5("3.1.2-1")),
        ("name-311", V311, connect(V311, name=b"MQTQ"), None, mqtt311("3.1.2-1")),
        ("level", V5, connect(level=6), b"\x20\3\0\x84\0", mqtt5("3.1.2-2", "3.2.2-6", "3.2.2-7", "3.2.2-8")),
        ("level-311", V311, connect(V311, level=3), reject, mqtt311("3.1.2-2", "3.2.2-4", "3.2.2-5")),
        ("reserved", V5, connect(flags=3), malformed, mqtt5("3.1.2-3", "3.1.4-1", "4.13.2-1")),
        ("reserved-311", V311, connect(V311, flags=3), None, mqtt311("3.1.2-3", "3.1.4-1", "3.2.2-6")),
        ("will-missing", V5, connect(flags=WILL), malformed, mqtt5("3.1.2-9")),
        ("will-missing-311", V311, connect(V311, flags=WILL), None, mqtt311("3.1.2-9")),
        ("will-qos-alone", V5, connect(flags=0x0A), malformed, mqtt5("3.1.2-11")),
        ("will-qos-alone-311", V311, connect(V311, flags=0x0A), None, mqtt311("3.1.2-11", "3.1.2-13")),
        (
            "will-3",
            V5,
            connect(V5, field(b"c"), b"\0", field(b"t"), field(b""), flags=0x1E),
            malformed,
            mqtt5("3.1.2-12"),
        ),
        (
            "will-3-311",
            V311,
            connect(V311, field(b"c"), field(b"t"), field(b""), flags=0x1E),
            None,
            mqtt311("3.1.2-14"),
        ),
        ("retain-alone", V5, connect(flags=0x22), malformed, mqtt5("3.1.2-13")),
        ("retain-alone-311", V311, connect(V311, flags=0x22), None, mqtt311("3.1.2-15")),
        ("user-unasked", V5, connect(V5, field(b"c"), field(b"u")), malformed, mqtt5("3.1.2-16", "3.1.2-18")),
        ("user-unasked-311", V311, connect(V311, field(b"c"), field(b"u")), None, mqtt311("3.1.2-18", "3.1.2-20")),
        ("user-missing", V5, connect(flags=0x82), malformed, mqtt5("3.1.2-17")),
        ("user-missing-311", V311, connect(V311, flags=0x82), None, mqtt311("3.1.2-19")),
        ("password-missing", V5, connect(flags=0x42), malformed, mqtt5("3.1.2-19")),
        ("password-missing-311", V311, connect(V311, field(b"c"), field(b"u"), flags=0xC2), None, mqtt311("3.1.2-21")),
        ("no-user-311", V311, connect(V311, field(b"c"), field(b"p"), flags=0x42), None, mqtt311("3.1.2-22")),
        ("no-identifier", V5, packet(0x10, field(b"MQTT"), b"\5\2\0\0\0"), malformed, mqtt5("3.1.3-3")),
        ("no-identifier-311", V311, packet(0x10, field(b"MQTT"), b"\4\2\0\0"), None, mqtt311("3.1.3-3")),
        ("identifier", V5, connect(V5, field(SURROGATE)), malformed, mqtt5("3.1.3-4", "1.5.4-1")),
        ("identifier-311", V311, connect(V311, field(SURROGATE)), None, mqtt311("3.1.3-4", "1.5.3-1")),
        ("identifier-null", V5, connect(V5, field(NULL)), malformed, mqtt5("1.5.4-2")),
        ("identifier-null-311", V311, connect(V311, field(NULL)), None, mqtt311("1.5.3-2")),
        (
            "will-topic",
            V5,
            connect(V5, field(b"c"), b"\0", field(ILL), field(b""), flags=WILL),
            malformed,
            mqtt5("3.1.3-11"),
        ),
        (
            "will-topic-311",
            V311,
            connect(V311, field(b"c"), field(ILL), field(b""), flags=WILL),
            None,
            mqtt311("3.1.3-10"),
        ),
        ("user", V5, connect(V5, field(b"c"), field(ILL), flags=0x82), malformed, mqtt5("3.1.3-12")),
        ("user-311", V311, connect(V311, field(b"c"), field(ILL), flags=0x82), None, mqtt311("3.1.3-11")),
        ("method", V5, connect(properties=b"\4\x15\0\1x"), b"\x20\3\0\x8c\0", mqtt5("4.12.0-1", "3.1.4-2")),
        (
            "identifier-empty-311",
            V311,
            connect(V311, field(b""), flags=0),
            b"\x20\2\0\2",
            mqtt311("3.1.3-8", "3.1.3-9"),
        ),
        ("packet-size", V5, connect(properties=b"\5\x27\0\0\0\1"), None, mqtt5("3.1.2-24")),
        ("flags", V5, b"\x11" + connect()[1:], None, mqtt5("2.1.3-1")),
        ("flags-311", V311, b"\x11" + connect(V311)[1:], None, mqtt311("2.2.2-1", "2.2.2-2")),
        ("pair", V5, connect(properties=b"\7\x26\0\1a\0\1\0"), malformed, mqtt5("1.5.7-1")),
        ("varint", V5, connect(properties=b"\x80\0"), malformed, mqtt5("1.5.5-1")),
    ):
        rows.append(pytest.param(version, data, answer, id=name, marks=marks))
    return list(rows)


@pytest.mark.parametrize(("version", "data", "answer"), wrong_connects())
@mqtt5("3.1.4-6", "3.14.0-1")
@mqtt311("3.1.4-5")
def test_a_wrong_connect_is_refused_and_nothing_after_it_is_processed(
    version: int, data: bytes, answer: bytes | None
) -> None:
    bench, client = fresh(version)
    client.send_bytes(data + publish(version, b"kept", b"x", 0x01))
    assert client.closed
    assert client.raw in ({answer} if answer is not None else {b"", b"\x20\3\0\x81\0"} if version == V5 else {b""})
    assert not bench.sessions
    other = bench.client("other")
    other.subscribe("kept")
    assert other.messages() == []


Row = tuple[str, Callable[[int], bytes], int | None, tuple[str, ...], tuple[str, ...]]
"""Name, packet by version, reason, and the statements of MQTT 5.0 and of 3.1.1."""


def always(data: bytes) -> Callable[[int], bytes]:
    """The same packet in both versions."""
    return lambda version: data


def wrong_packets() -> list[object]:
    """Packets that a connected client may not send, with the reason that an MQTT 5 client is told."""
    rows = []
    table: tuple[Row, ...] = (
        ("connect", connect, 0x82, ("3.1.0-2", "3.14.2-1"), ("3.1.0-2",)),
        ("connect-other-level", lambda v: connect(9), 0x82, ("3.1.0-2",), ("3.1.0-2",)),
        ("qos-3", lambda v: publish(v, b"a", flags=6), 0x81, ("3.3.1-4",), ("3.3.1-4",)),
        ("dup-qos-0", lambda v: publish(v, b"a", flags=8), 0x81, ("3.3.1-2",), ("3.3.1-2",)),
        ("identifier-0", lambda v: publish(v, b"a", flags=2, packet_id=0), 0x81, ("2.2.1-3",), ("2.3.1-1",)),
        ("topic-wildcard", lambda v: publish(v, b"a/+"), 0x90, ("3.3.2-2", "4.7.0-1"), ("3.3.2-2", "4.7.1-1")),
        ("topic-hash", lambda v: publish(v, b"#"), 0x90, ("3.3.2-2",), ("3.3.2-2",)),
        ("topic-empty", lambda v: publish(v, b""), None, ("4.7.3-1",), ("4.7.3-1",)),
        ("topic-null", lambda v: publish(v, NULL), 0x81, ("4.7.3-2",), ("4.7.3-2",)),
        ("topic-ill", lambda v: publish(v, ILL), 0x81, ("3.3.2-1", "4.7.3-3"), ("3.3.2-1", "4.7.3-3")),
        ("topic-missing", lambda v: packet(0x30, b"\0\5a"), 0x81, ("3.3.2-1",), ("3.3.2-1",)),
        ("pubrel-flags", lambda v: packet(0x60, b"\0\1"), 0x81, ("3.6.1-1", "4.13.1-1"), ("3.6.1-1", "4.8.0-1")),
        ("subscribe-flags", lambda v: subscribe(v, b"a", first=0x80), 0x81, ("3.8.1-1",), ("3.8.1-1",)),
        ("subscribe-ill", lambda v: subscribe(v, ILL), 0x81, ("3.8.3-1",), ("3.8.3-1",)),
        (
            "subscribe-empty",
            lambda v: packet(0x82, b"\0\1", b"\0" if v == V5 else b""),
            0x82,
            ("3.8.3-2",),
            ("3.8.3-3",),
        ),
        ("subscribe-reserved", lambda v: subscribe(v, b"a", 0xC0), 0x81, ("3.8.3-5",), ("3.8.3-4",)),
        ("subscribe-qos-3", lambda v: subscribe(v, b"a", 3), 0x81, ("3.8.3-5",), ("3.8.3-4",)),
        ("subscribe-0", lambda v: subscribe(v, b"a", packet_id=0), 0x81, ("2.2.1-3",), ("2.3.1-1",)),
        ("unsubscribe-flags", lambda v: unsubscribe(v, b"a", first=0xA0), 0x81, ("3.10.1-1",), ("3.10.1-1",)),
        ("unsubscribe-ill", lambda v: unsubscribe(v, ILL), 0x81, ("3.10.3-1",), ("3.10.3-1",)),
        (
            "unsubscribe-empty",
            lambda v: packet(0xA2, b"\0\1", b"\0" if v == V5 else b""),
            0x82,
            ("3.10.3-2",),
            ("3.10.3-2",),
        ),
        ("unsubscribe-0", lambda v: unsubscribe(v, b"a", packet_id=0), 0x81, ("2.2.1-3",), ("2.3.1-1",)),
        *(
            (f"{name}-0", always(packet(first, b"\0\0")), 0x81, ("2.2.1-5", "4.13.1-1"), ("4.8.0-1",))
            for name, first in (("puback", 0x40), ("pubrec", 0x50), ("pubrel", 0x62), ("pubcomp", 0x70))
        ),
        ("disconnect-flags", lambda v: b"\xe1\0", 0x81, ("3.14.1-1",), ("3.14.1-1", "2.2.2-2")),
        ("pingreq-flags", lambda v: b"\xc1\0", 0x81, ("2.1.3-1",), ("2.2.2-2",)),
        ("type-0", lambda v: b"\0\0", 0x81, ("2.1.3-1",), ("2.2.2-2",)),
        ("length", lambda v: b"\x30\x80\x80\x80\x80\1", 0x81, ("1.5.5-1",), ("4.8.0-1",)),
        ("connack", lambda v: b"\x20\3\0\0\0" if v == V5 else b"\x20\2\0\0", 0x82, ("4.13.1-1",), ("4.8.0-1",)),
    )
    for name, data, reason, five, three in table:
        for version, mark in ((V5, mqtt5(*five)), (V311, mqtt311(*three))):
            rows.append(pytest.param(version, data(version), reason, id=f"{name}-{version}", marks=mark))
    five_only = [
        ("alias-0", packet(0x30, field(b"a"), b"\3\x23\0\0"), 0x94, "3.3.2-8"),
        ("alias-65", packet(0x30, field(b"a"), b"\3\x23\0\x41"), 0x94, "3.2.2-17"),
        ("alias-unknown", packet(0x30, field(b""), b"\3\x23\0\1"), 0x82, "3.3.2-7"),
        ("identifier", packet(0x30, field(b"a"), b"\2\x0b\1"), 0x82, "3.3.4-6"),
        ("response-ill", packet(0x30, field(b"a"), b"\5\x08\0\2" + ILL), 0x81, "3.3.2-13"),
        ("response-wildcard", packet(0x30, field(b"a"), b"\4\x08\0\1#"), 0x82, "3.3.2-14"),
        ("content-ill", packet(0x30, field(b"a"), b"\5\x03\0\2" + ILL), 0x81, "3.3.2-19"),
        ("auth-flags", b"\xf1\0", 0x81, "3.15.1-1"),
        ("auth", b"\xf0\0", 0x82, "4.12.0-7"),
        *(
            (f"{name}-reason-{reason:02x}", packet(first, b"\0\1" + bytes((reason,))), 0x82, number)
            for name, first, number, reasons in (
                ("puback", 0x40, "3.4.2-1", (0x01, 0x18, 0x81, 0x92, 0xFF)),
                ("pubrec", 0x50, "3.5.2-1", (0x01, 0x18, 0x81, 0x92, 0xFF)),
                ("pubrel", 0x62, "3.6.2-1", (0x10, 0x80, 0x97, 0xFF)),
                ("pubcomp", 0x70, "3.7.2-1", (0x10, 0x80, 0x97, 0xFF)),
            )
            for reason in reasons
        ),
        ("disconnect-reason", packet(0xE0, b"\1"), 0x82, "3.14.2-1"),
        ("too-large", b"\x30\x80\x80\x80\1", 0x95, "3.2.2-15"),
    ]
    rows += [
        pytest.param(V5, wrong, told, id=f"{name}-5", marks=mqtt5(number)) for name, wrong, told, number in five_only
    ]
    return list(rows)


@pytest.mark.parametrize(("version", "data", "reason"), wrong_packets())
@mqtt5("4.13.1-1", "4.13.2-1", "3.14.4-1", "3.14.4-2", "3.14.2-2")
@mqtt311("4.8.0-1")
def test_a_wrong_packet_ends_the_connection_with_its_reason_and_nothing_follows(
    version: int, data: bytes, reason: int | None
) -> None:
    _, client = connected(version)
    client.send_bytes(data + b"\xc0\0")
    assert client.closed
    if version == V311:
        assert client.raw == b""
    else:
        assert client.raw[:2] == b"\xe0\1"
        assert reason is None or client.raw[2:] == bytes((reason,))


@pytest.mark.parametrize("first", [b"\xc0\0", publish(V5, b"a"), subscribe(V5, b"a"), b"\xe0\0"])
@mqtt5("3.1.0-1", "3.2.0-1")
@mqtt311("3.1.0-1", "3.2.0-1")
def test_nothing_but_connect_comes_first(first: bytes) -> None:
    bench, client = fresh()
    client.send_bytes(first + connect())
    assert client.closed
    assert client.raw == b""
    assert not bench.sessions
