"""Live traces: packets decoded, where messages go, why one is not delivered, and their bounds."""

from __future__ import annotations

from typing import Any

import pytest

from saps.frontend.mqtt.access.acl_file import parse_acl
from saps.frontend.mqtt.codec.packets import V5, Connect, SubscribeEntry, Unsubscribe
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.limits import Limits
from saps.operations.following import KEPT, LONGEST, MOST, PER_SECOND, Following
from tests.frontend.mqtt.bench import Bench, Client


class Eye:
    """Live traces at a broker alone."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.bench = Bench(limits)
        self.following = Following("b1", self.bench.frontend, lambda: self.bench.now + 5000)
        self.bench.frontend.orders.witness = self.following
        self._seen: dict[str, int] = {}

    def begin(self, client: str = "", topic_filter: str = "", seconds: float = 60) -> None:
        self.following.begin("f", client, topic_filter, seconds)

    def events(self) -> list[dict[str, Any]]:
        """Those since the last time."""
        broker, self._seen["b1"], _, events = self.following.take("f", self._seen)
        assert broker == "b1"
        found: list[dict[str, Any]] = events
        return found

    def said(self, *fields: str) -> list[tuple[Any, ...]]:
        return [tuple(event.get(name) for name in fields) for event in self.events()]


def test_a_clients_packets_are_told_both_ways_and_decoded() -> None:
    eye = Eye()
    client = eye.bench.client("c")
    eye.begin("c")
    client.subscribe("air/+", qos=1)
    client.publish("air/x", b"21.5", qos=1, packet_id=7)
    client.take()
    assert eye.said("what", "packet", "topic", "text", "why") == [
        ("in", "SUBSCRIBE", None, "air/+ (QoS 1)", None),
        ("out", "SUBACK", None, "QoS 1", None),
        ("in", "PUBLISH", "air/x", "21.5", "number 7"),
        ("out", "PUBLISH", "air/x", "21.5", "number 1"),
        ("out", "PUBACK", None, "number 7", None),
    ]
    eye.bench.client("other").publish("air/x", b"1")
    assert {event["client"] for event in eye.events()} == {"c"}
    client.lose()
    eye.bench.client("c", username="u", password=b"secret")
    first, *_ = events = eye.events()
    assert (first["packet"], first["text"], first["at"]) == ("CONNECT", "from test", 6000)
    assert "secret" not in str(events)
    eye.following.end("f")
    assert all(connection.output.tap is None for connection in eye.bench.connections)
    assert eye.following.take("f", {}) is None


def test_it_is_said_why_a_message_is_not_delivered() -> None:
    eye = Eye(Limits(maximum_queued=1))
    bench = eye.bench
    reader = bench.client("reader", clean_start=False, properties={Property.SESSION_EXPIRY: 600})
    reader.subscribe(SubscribeEntry("air/#", 1))
    writer = bench.client("writer")
    eye.begin("reader")
    reader.lose()
    writer.publish("air/0", b"a")
    writer.publish("air/1", b"b", qos=1, properties={Property.MESSAGE_EXPIRY: 5})
    writer.publish("air/2", b"c", qos=1, packet_id=2, properties={Property.MESSAGE_EXPIRY: 5})
    bench.advance(6)
    eye.events()
    small = Client(bench)
    small.connect(
        "reader", clean_start=False, properties={Property.SESSION_EXPIRY: 600, Property.MAXIMUM_PACKET_SIZE: 40}
    )
    writer.publish("air/3", b"d" * 100)
    writer.publish("air/4", b"e" * 100, qos=1, packet_id=3)
    lost = [(topic, why) for what, topic, why in eye.said("what", "topic", "why") if what == "lost"]
    assert lost == [
        ("air/2", "it expired while it waited"),
        ("air/3", "it is larger than the client takes"),
        ("air/4", "it is larger than the client takes"),
    ]


def test_what_was_lost_while_the_client_was_away_is_said_at_once() -> None:
    eye = Eye(Limits(maximum_queued=1))
    reader = eye.bench.client("reader", clean_start=False, properties={Property.SESSION_EXPIRY: 600})
    reader.subscribe(SubscribeEntry("air/#", 1))
    reader.lose()
    eye.begin(topic_filter="air/+")
    writer = eye.bench.client("writer")
    for number in range(3):
        writer.publish(f"air/{number}", b"", qos=int(number > 0), packet_id=number)
    assert [(what, topic, why) for what, topic, why in eye.said("what", "topic", "why")] == [
        ("published", "air/0", "to reader"),
        ("lost", "air/0", "QoS 0, and the client is away"),
        ("published", "air/1", "to reader"),
        ("published", "air/2", "to reader"),
        ("lost", "air/1", "its queue is full"),
    ]


def test_access_rules_and_filters_are_named_as_reasons() -> None:
    eye = Eye()
    bench = eye.bench
    policy = parse_acl('default = "allow"\n[[rule]]\ndeny = "both"\nclients = "barred"\ntopics = "secret/#"\n')
    bench.hub.routes.restricted = True
    barred, other = bench.client("barred"), bench.client("other")
    barred.subscribe("#")
    bench.sessions["barred"].obey(policy.rights(None, "barred"))
    bench.hub.routes.clear()
    eye.begin(topic_filter="secret/#")
    eye.following.begin("g", "barred", "secret/#", 60)
    eye.following.begin("h", "other", "secret/#", 60)
    other.publish("secret/1")
    barred.publish("secret/2", b"", qos=1)
    other.publish("open")
    assert eye.said("what", "client", "topic", "why") == [
        ("published", "other", "secret/1", "not to barred: the access rules or a policy do not let it be received"),
        ("refused", "barred", "secret/2", "the access rules do not let it publish there"),
    ]
    events = eye.following.take("g", {})[3]
    why = "the access rules or a policy do not let it be received"
    refused = ("refused", "secret/2", "the access rules do not let it publish there")
    assert [(e["what"], e["topic"], e["why"]) for e in events] == [("not delivered", "secret/1", why), refused]
    events = eye.following.take("h", {})[3]
    why = "no subscription of the client matches"
    assert [(e["what"], e.get("topic"), e["why"]) for e in events] == [
        ("not delivered", None, why),
        ("not delivered", "secret/1", why),
        refused,
    ]
    barred.send(Unsubscribe(9, ["#"]))
    assert eye.following.begin("j", "barred", "secret/1", 60) == "b1"
    why += "; the access rules do not let it subscribe there"
    assert [e["why"] for e in eye.following.take("j", {})[3]] == [why]
    assert eye.following.begin("k", "nobody", "", 60) == ""
    eye.following.refused(other.connection, "barred", None, Reason.BANNED, "")
    eye.following.begin("i", "barred", "", 60)
    eye.following.refused(other.connection, "barred", None, Reason.BANNED, "")
    assert [e["why"] for e in eye.following.take("i", {})[3]] == ["banned"]


def test_live_traces_are_bounded_and_end_by_themselves() -> None:
    eye = Eye()
    bench = eye.bench
    writer = bench.client("writer")
    assert bench.hub.tracer is None
    eye.begin(topic_filter="#", seconds=5)
    for number in range(int(PER_SECOND) + 100):
        writer.publish(f"t/{number}")
    assert len(eye.events()) == PER_SECOND
    assert eye.following.take("f", {})[2] == 100
    for number in range(MOST - 1):
        eye.following.begin(str(number), "x", "", 10 * LONGEST)
    with pytest.raises(ValueError, match="8 live traces"):
        eye.following.begin("more", "x", "", 1)
    with pytest.raises(ValueError, match="wanted"):
        Following("b2", bench.frontend, lambda: 0.0).begin("f", "", "", 1)
    for _ in range(20):
        bench.advance(0.1)
        for number in range(100):
            writer.publish(f"t/{number}")
    assert len(eye.following._follows["f"].events) <= KEPT
    bench.advance(5)
    assert eye.following.take("f", {}) is None
    bench.advance(LONGEST)
    assert bench.hub.tracer is None
    writer.send(Connect("again", V5))
