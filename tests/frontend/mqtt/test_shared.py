"""Shared subscriptions of one broker (MQTT 5.0, section 4.8.2)."""

from __future__ import annotations

import pytest

from saps.frontend.mqtt.codec.packets import V5, V311, Publish, Unsubscribe
from saps.frontend.mqtt.codec.properties import Property, PropertyMap
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.limits import Limits
from tests.frontend.mqtt.bench import Bench, Client, puback, pubcomp, pubrec

KEPT: PropertyMap = {Property.SESSION_EXPIRY: 600}


def group(bench: Bench, count: int, *entries: str, qos: int = 1, **fields: object) -> list[Client]:
    members = [bench.client(f"m{number}", **fields) for number in range(count)]
    for member in members:
        member.subscribe(*(entries or ("$share/g/a/+",)), qos=qos)
    return members


def taken(member: Client) -> list[Publish]:
    """What a member has got since the last time."""
    return [packet for packet in member.take() if isinstance(packet, Publish)]


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_members_take_turns_and_each_message_goes_to_one(version: int, qos: int) -> None:
    bench = Bench()
    members = group(bench, 3, version=version, qos=2)
    publisher = bench.client("p")
    for number in range(9):
        publisher.publish(f"a/{number % 2}", b"%d" % number, qos=qos, packet_id=number + 1)
    got = [[message.payload for message in taken(member)] for member in members]
    assert sorted(payload for payloads in got for payload in payloads) == [b"%d" % number for number in range(9)]
    assert Bench.brokers > 1 or [len(payloads) for payloads in got] == [3, 3, 3], "the publisher's broker comes first"


def test_each_group_and_each_plain_subscription_gets_its_own_copy() -> None:
    bench = Bench()
    client, other = bench.client("c"), bench.client("o")
    client.subscribe("$share/g/a", "$share/h/a", "a", "$share/g/+")
    other.subscribe("$share/g/a")
    bench.client("p").publish("a", b"x")
    bench.client("q").publish("a", b"y")
    assert sorted(client.payloads() + other.payloads()) == [b"x"] * 4 + [b"y"] * 4


def test_a_publisher_is_told_when_only_a_group_is_there() -> None:
    bench = Bench()
    group(bench, 2, "$share/g/a")
    publisher = bench.client("p")
    publisher.publish("a", qos=1)
    assert publisher.take() == [puback(1)]
    publisher.publish("b", qos=1)
    assert publisher.take() == [puback(1, Reason.NO_MATCHING_SUBSCRIBERS)]


def test_nothing_retained_for_a_group() -> None:
    bench = Bench()
    bench.client("p").publish("a", b"x", retain=True)
    (member,) = group(bench, 1, "$share/g/a")
    assert taken(member) == []


def test_a_member_that_unsubscribes_has_no_turn_any_more() -> None:
    bench = Bench()
    one, two = group(bench, 2, "$share/g/a")
    one.send(Unsubscribe(9, ["$share/g/a"]))
    one.take()
    for _ in range(2):
        bench.client("p").publish("a")
    assert (len(taken(one)), len(taken(two))) == (0, 2)
    two.send(Unsubscribe(9, ["$share/g/a"]))
    assert not len(bench.hub.index)
    assert not bench.hub.index._shared.children


@pytest.mark.parametrize("properties", [{}, KEPT])
def test_unacknowledged_qos_1_moves_on_when_its_member_goes(properties: PropertyMap) -> None:
    bench = Bench()
    one, two = group(bench, 2, "$share/g/a", properties=properties)
    publisher = bench.client("p")
    for number in range(4):
        publisher.publish("a", b"%d" % number, qos=1, packet_id=number + 1)
    mine = taken(one)
    one.send(puback(mine[0].packet_id or 0))
    taken(two)
    one.lose()
    bench.advance(1)
    assert [message.payload for message in taken(two)] == [mine[1].payload]
    back = bench.client("m0", clean_start=False, properties=properties)
    assert taken(back) == []


def test_if_all_members_are_away_one_of_them_keeps_it() -> None:
    bench = Bench()
    members = group(bench, 2, "$share/g/a", properties=KEPT)
    for member in members:
        member.lose()
    bench.client("p").publish("a", b"x", qos=1)
    back = [bench.client(f"m{number}", clean_start=False, properties=KEPT) for number in range(2)]
    assert [message.payload for member in back for message in taken(member)] == [b"x"]


@pytest.mark.one_broker("whose turn it is counts there")
def test_qos_2_that_waits_moves_on() -> None:
    bench = Bench(Limits(send_maximum=1))
    one, two = group(bench, 2, "$share/g/a", qos=2)
    publisher = bench.client("p")
    for number in range(4):
        publisher.publish("a", b"%d" % number, qos=2, packet_id=number + 1)
    assert (len(taken(one)), len(taken(two))) == (1, 1)
    one.lose()
    for packet_id in (1, 2, 3):
        two.send(pubrec(packet_id), pubcomp(packet_id))
    assert len(taken(two)) == 2, "both that waited"


def test_a_refusal_by_the_member_is_the_end_of_the_message() -> None:
    """MQTT-4.8.2-6."""
    bench = Bench()
    one, two = group(bench, 2, "$share/g/a")
    bench.client("p").publish("a", b"x", qos=1)
    (message,) = taken(one)
    one.send(puback(message.packet_id or 0, Reason.QUOTA_EXCEEDED))
    one.lose()
    assert taken(two) == []


@pytest.mark.one_broker("whose turn it is counts there")
def test_a_member_that_is_behind_is_passed_over() -> None:
    bench = Bench(Limits(send_maximum=2))
    one, two = group(bench, 2, "$share/g/a")
    publisher = bench.client("p")
    for number in range(6):
        publisher.publish("a", b"%d" % number, qos=1, packet_id=number + 1)
        for message in taken(two):
            two.send(puback(message.packet_id or 0))
    assert len(taken(one)) == 2
    assert two.connection.session is not None
    assert two.connection.session.delivered == 4
