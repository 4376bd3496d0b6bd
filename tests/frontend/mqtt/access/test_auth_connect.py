"""Who is let in: every kind of client at the machine, with the reason codes of both protocol versions."""

from __future__ import annotations

import hashlib
import logging
import re
from typing import Any

import pytest

from saps.frontend.mqtt.access.acl_file import parse_acl
from saps.frontend.mqtt.access.guard import Access, Origin
from saps.frontend.mqtt.access.origin import Naming, is_loopback, origin_of, pattern_fault
from saps.frontend.mqtt.codec.packets import (
    V5,
    V311,
    Connack,
    Connect,
    Disconnect,
    Publish,
    Subscribe,
    SubscribeEntry,
    Will,
)
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.limits import Limits
from tests.frontend.mqtt.access.guarded import LOCAL, REMOTE, GuardedBench, GuardedClient, users

ANN: dict[str, Any] = {"username": "ann", "password": b"secret"}
CERTIFIED = REMOTE._replace(certificate_user="ann")
BAD, FORBIDDEN, BUSY = Reason.BAD_USER_NAME_OR_PASSWORD, Reason.NOT_AUTHORIZED, Reason.SERVER_BUSY
RETURN_CODES = {Reason.SUCCESS: 0, BAD: 4, FORBIDDEN: 5, BUSY: 3, Reason.CLIENT_IDENTIFIER_NOT_VALID: 2}


def answer(bench: GuardedBench, origin: Origin = LOCAL, version: int = V5, **fields: Any) -> Reason:
    """The reason in CONNACK, in MQTT 5's terms."""
    client = bench.arriving(version, origin)
    client.send(Connect(fields.pop("client_id", "c"), version=version, **fields))
    bench.check_passwords()
    reason = client.expect(Connack).reason
    found = Reason(reason) if version == V5 else {code: r for r, code in RETURN_CODES.items()}[reason]
    assert client.closed == (found is not Reason.SUCCESS)
    assert (client.connection.session is not None) == (found is Reason.SUCCESS)
    return found


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize(
    ("fields", "origin", "expected"),
    [
        (ANN, REMOTE, Reason.SUCCESS),
        (ANN | {"password": b"wrong"}, LOCAL, BAD),
        (ANN | {"password": b""}, LOCAL, BAD),
        (ANN | {"username": "eve"}, LOCAL, BAD),
        (ANN | {"username": ""}, LOCAL, BAD),
        ({"username": "ann"}, LOCAL, BAD),
        ({}, LOCAL, Reason.SUCCESS),
        ({}, REMOTE, FORBIDDEN),
        ({}, CERTIFIED, Reason.SUCCESS),
        ({"username": "ann"}, CERTIFIED, Reason.SUCCESS),
        (ANN | {"password": b"any"}, CERTIFIED, Reason.SUCCESS),
        ({"username": "bob", "password": b"bobs"}, CERTIFIED, BAD),
    ],
)
def test_who_is_let_in_with_a_password_file(
    version: int, fields: dict[str, Any], origin: Origin, expected: Reason
) -> None:
    bench = GuardedBench(users(ann=b"secret", bob=b"bobs"))
    assert answer(bench, origin, version, **fields) is expected
    assert bench.guard.counts.logins == (expected is not Reason.SUCCESS)


def test_a_password_without_a_user_is_refused() -> None:
    assert answer(GuardedBench(users(ann=b"secret")), password=b"secret") is BAD


@pytest.mark.parametrize(
    ("anonymous", "origin", "expected"),
    [
        ("loopback", LOCAL, Reason.SUCCESS),
        ("loopback", REMOTE, FORBIDDEN),
        ("always", REMOTE, Reason.SUCCESS),
        ("never", LOCAL, FORBIDDEN),
    ],
)
@pytest.mark.parametrize("fields", [{}, ANN])
def test_who_is_let_in_without_a_password_file(
    anonymous: Any, origin: Origin, expected: Reason, fields: dict[str, Any]
) -> None:
    assert answer(GuardedBench(anonymous=anonymous), origin, **fields) is expected


def test_an_unchecked_user_name_gives_no_rights() -> None:
    bench = GuardedBench(acl='[[rule]]\nallow = "both"\nusers = "ann"\ntopics = "#"')
    client = bench.arriving()
    client.connect(**ANN)
    assert client.subscribe("a") == [Reason.NOT_AUTHORIZED]


def test_a_password_known_to_be_right_is_not_checked_again_until_it_changes() -> None:
    bench = GuardedBench(users(ann=b"secret"))
    assert answer(bench, **ANN) is Reason.SUCCESS
    assert answer(bench, **ANN) is Reason.SUCCESS
    assert bench.checker.checked == 1
    assert answer(bench, **ANN | {"password": b"guess"}) is BAD
    bench.replace(users(ann=b"changed"))
    assert answer(bench, **ANN) is BAD
    assert bench.checker.checked == 3


def test_a_password_that_changes_while_it_is_checked_does_not_let_in() -> None:
    bench = GuardedBench(users(ann=b"secret"))
    client = bench.arriving()
    client.send(Connect("c", **ANN))
    bench.replace(users(ann=b"changed"))
    bench.check_passwords()
    assert client.expect(Connack).reason == BAD


def waiting(bench: GuardedBench, **fields: Any) -> GuardedClient:
    client = bench.arriving()
    client.send(Connect("c", **ANN, **fields))
    assert client.packets == []
    assert not client.reading
    return client


def test_what_a_client_sends_before_connack_is_handled_after_it() -> None:
    bench = GuardedBench(users(ann=b"secret"))
    client = bench.arriving()
    client.send(Connect("c", **ANN), Subscribe(1, [SubscribeEntry("a")]), Publish("a", b"1"), Publish("a", b"2"))
    client.send_bytes(b"\x30\x04\x00")  # the rest comes later
    assert client.packets == []
    bench.check_passwords()
    assert client.reading
    client.send_bytes(b"\x01a\x00")
    assert isinstance(client.packets.pop(0), Connack)
    client.packets.pop(0)
    assert client.payloads() == [b"1", b"2", b""]


def test_a_wrong_password_is_answered_in_the_clients_version_and_what_followed_is_forgotten() -> None:
    bench = GuardedBench(users(ann=b"secret"))
    for version in (V311, V5):
        client = bench.arriving(version)
        connect = Connect("c", username="ann", password=b"x", version=version)
        client.send(connect, Publish("a", b"1", retain=True))
        bench.check_passwords()
        assert len(client.packets) == 1
        assert client.closed
    assert bench.hub.published == 0


def test_too_much_before_connack_closes_the_connection() -> None:
    bench = GuardedBench(users(ann=b"secret"), limits=Limits(maximum_packet_size=1000))
    client = waiting(bench)
    for _ in range(3):
        client.send(Publish("a", bytes(400)))
    small = waiting(bench)
    small.send_bytes(b"\xc0\0" * 501)
    assert client.closed
    assert small.closed
    bench.check_passwords()
    assert bench.checker.checked == 0
    assert client.packets == small.packets == []


def test_a_second_connect_before_connack_is_a_protocol_error() -> None:
    bench = GuardedBench(users(ann=b"secret"))
    client = waiting(bench)
    client.send(Connect("c", **ANN))
    bench.check_passwords()
    assert [type(packet) for packet in client.take()] == [Connack, Disconnect]
    assert client.closed


def test_nothing_is_checked_for_a_client_that_has_gone_or_waited_too_long() -> None:
    bench = GuardedBench(users(ann=b"secret"))
    gone, late = waiting(bench), waiting(bench)
    gone.lose()
    bench.advance(Limits().connect_timeout)
    assert late.closed
    bench.check_passwords()
    assert bench.checker.checked == 0
    assert bench.frontend.sessions == {}


def test_in_a_flood_of_logins_the_next_is_refused_at_once_without_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = GuardedBench(users(ann=b"secret"), queue=2)
    clients = [waiting(bench) for _ in range(2)]
    for version, code in ((V5, BUSY), (V311, 3)):
        client = bench.arriving(version)
        client.send(Connect("d", version=version, **ANN))
        assert client.expect(Connack).reason == code
        assert client.closed
    assert (bench.guard.counts.busy, caplog.records) == (2, [])
    bench.check_passwords()
    assert [client.expect(Connack).reason for client in clients] == [0, 0]


def test_a_refused_login_is_one_warning_with_the_user_and_without_the_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = GuardedBench(users(ann=b"secret"))
    assert answer(bench, username="ann", password=b"my guess") is BAD
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "'ann'" in caplog.text
    assert "my guess" not in caplog.text


def test_a_session_is_its_users_alone() -> None:
    bench = GuardedBench()
    first = bench.login("c", "ann", clean_start=False, properties={17: 60})
    eve = bench.arriving(origin=LOCAL._replace(certificate_user="eve"))
    eve.send(Connect("c"))
    assert eve.expect(Connack).reason == FORBIDDEN
    nobody = bench.arriving()
    nobody.send(Connect("c"))
    assert nobody.expect(Connack).reason == FORBIDDEN
    assert not first.closed
    again = bench.login("c", "ann", clean_start=False)
    assert again.connack.session_present


def test_a_will_that_may_not_be_published_is_refused_at_connect_and_withheld_after_a_change() -> None:
    rule = '[[rule]]\nallow = "{}"\ntopics = "will/%c"'
    bench = GuardedBench(acl=rule.format("both"))
    assert answer(bench, will=Will("will/other", b"x")) is FORBIDDEN
    watcher = bench.login("w", properties={})
    dead = bench.login("c", will=Will("will/c", b"x"))
    bench.replace(acl=rule.format("subscribe"))
    dead.lose()
    bench.replace(acl=rule.format("both"))
    assert bench.hub.published == 0
    assert watcher.messages() == []


@pytest.mark.parametrize("client_id", ["a/b", "+", "#", "a#", "$SYS"])
def test_names_that_could_widen_a_filter_are_refused(client_id: str) -> None:
    bench = GuardedBench(acl='[[rule]]\nallow = "both"\ntopics = ["%c/x", "u/%u"]')
    assert answer(bench, client_id=client_id) is Reason.CLIENT_IDENTIFIER_NOT_VALID
    assert answer(bench, REMOTE._replace(certificate_user=client_id)) is FORBIDDEN
    plain = GuardedBench(acl='[[rule]]\nallow = "both"\ntopics = "#"')
    assert answer(plain, client_id=client_id) is Reason.SUCCESS


def test_an_assigned_identifier_is_that_of_the_rules() -> None:
    bench = GuardedBench(acl='[[rule]]\nallow = "both"\ntopics = "%c"')
    client = bench.arriving()
    assigned = client.connect("").properties[18]
    assert client.subscribe(assigned, "other") == [0, Reason.NOT_AUTHORIZED]


SUBJECT = ((("countryName", "JP"),), (("commonName", "ann"),))


@pytest.mark.parametrize(
    ("certificate", "part", "user"),
    [
        ({"subject": SUBJECT}, "cn", "ann"),
        ({"subject": SUBJECT}, "san", None),
        ({"subject": (*SUBJECT, (("commonName", "admin"),))}, "cn", None),
        ({"subject": ((("countryName", "JP"),),)}, "cn", None),
        ({"subjectAltName": (("IP Address", "::1"), ("URI", "urn:x"), ("DNS", "a"))}, "san", "urn:x"),
        ({"subject": SUBJECT, "subjectAltName": (("email", "ann@x"),)}, "san", "ann@x"),
        ({"subjectAltName": (("DNS", "a"), ("email", "ann@x"), ("DNS", "b"))}, "email", "ann@x"),
        ({"subjectAltName": (("DNS", "a"), ("email", "ann@x"), ("DNS", "b"))}, "dns", None),
        ({"subjectAltName": (("DNS", "a"), ("URI", "urn:x"))}, "uri", "urn:x"),
        ({"subject": SUBJECT}, "dn", "CN=ann,C=JP"),
        ({"subject": ((("userId", "7"), ("commonName", "a,b ")),)}, "dn", "UID=7+CN=a\\,b\\ "),
        ({"subject": SUBJECT}, "fingerprint", hashlib.sha256(b"der").hexdigest()),
    ],
)
def test_the_user_of_a_certificate(certificate: dict[str, Any], part: str, user: str | None) -> None:
    assert Naming(part).user(certificate, b"der") == user


def test_a_pattern_takes_the_user_out_of_a_certificates_name() -> None:
    certificate = {"subjectAltName": (("DNS", "pump-7.devices.city"),)}
    for pattern, user in ((r"([^.]+)\.devices\.city", "pump-7"), (r".*\.city", "pump-7.devices.city"), ("pump", None)):
        assert Naming("dns", re.compile(pattern)).user(certificate, None) == user
    assert pattern_fault("a(b") is not None
    assert pattern_fault("(a)(b)") is not None
    assert pattern_fault("(?:a)(b)") is None


def test_a_client_is_disconnected_when_its_certificate_ends() -> None:
    bench = GuardedBench()
    client = bench.arriving(origin=CERTIFIED._replace(certificate_ends=bench.now + 30))
    client.connect("c", will=Will("w", b"gone"))
    bench.advance(29)
    assert not client.closed
    bench.advance(1)
    assert client.expect(Disconnect).reason == FORBIDDEN
    assert bench.hub.published == 1


def test_a_client_that_comes_back_with_fewer_rights_gets_nothing_that_waits_beyond_them() -> None:
    bench = GuardedBench(acl='[[rule]]\nallow = "both"\ntopics = "#"')
    client = bench.login("c", "ann", clean_start=False, properties={17: 60})
    client.subscribe("#", qos=1)
    client.lose()
    bench.publish("open/a", qos=1)
    bench.publish("secret/a", qos=1)
    bench.guard.access = Access(None, parse_acl('[[rule]]\nallow = "both"\ntopics = "open/#"'))
    again = bench.login("c", "ann", clean_start=False)
    assert [message.topic for message in again.messages()] == ["open/a"]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost"])
def test_loopback_addresses(host: str) -> None:
    assert is_loopback(host)
    assert origin_of((host, 1)).loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "::ffff:10.0.0.1", "fe80::1%eth0", "?", "local"])
def test_other_addresses(host: str) -> None:
    assert not is_loopback(host)
    assert not origin_of(None).loopback


def test_wrong_passwords_back_off_by_address_and_a_known_user_is_never_kept_out() -> None:
    bench = GuardedBench(users(ann=b"secret", bob=b"bobs"))
    attacker, elsewhere = Origin("192.0.2.66"), Origin("192.0.2.1")
    assert answer(bench, attacker, **ANN) is Reason.SUCCESS  # behind the same address as who guesses
    for _ in range(10):
        assert answer(bench, attacker, username="bob", password=b"guess") is BAD
    checked = bench.checker.checked
    for _ in range(5):
        assert answer(bench, attacker, username="bob", password=b"bobs") is Reason.CONNECTION_RATE_EXCEEDED
    assert bench.checker.checked == checked  # no hashing for them
    assert bench.guard.counts.backed_off == 5
    assert answer(bench, attacker, client_id="again", **ANN) is Reason.SUCCESS
    assert answer(bench, elsewhere, client_id="bob", username="bob", password=b"bobs") is Reason.SUCCESS
    bench.advance(6)
    assert answer(bench, attacker, username="bob", password=b"guess") is BAD
