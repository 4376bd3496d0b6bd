"""The $SYS tree: names and values, who gets it and when, and that it is nobody else's to write."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saps.frontend.mqtt.codec.packets import Pingreq, Pingresp
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.load import LoadAverage
from saps.frontend.mqtt.systree import SysTree, Value
from saps.frontend.mqtt.totals import totals
from tests.frontend.mqtt.bench import Bench, Client, puback

LOADS = ("messages/received", "messages/sent", "publish/dropped", "publish/received", "publish/sent", "bytes/received",
         "bytes/sent", "sockets", "connections")  # fmt: skip
MOSQUITTO = [
    *("version", "uptime", "clients/total", "clients/disconnected", "clients/connected", "clients/expired"),
    *("clients/maximum", "messages/received", "messages/sent", "store/messages/count", "subscriptions/count"),
    *("publish/messages/dropped", "publish/messages/received", "publish/messages/sent", "retained messages/count"),
    *("bytes/received", "bytes/sent"),
    *(f"load/{name}/{window}min" for name in LOADS for window in (1, 5, 15)),
]
"""What Mosquitto 2.0 publishes, but for what this broker has no such thing of (its heap, its message store)."""


def sys_bench(limits: Limits | None = None) -> Bench:
    """A broker with a tree, published every 10 s."""
    bench = Bench(limits)

    def source() -> dict[str, Value]:
        return {"broker/bytes/received": 600, "broker/bytes/sent": 6, "saps/sockets/accepted": 3}

    bench.frontend.status = SysTree(bench.frontend, 10, "1.2.3", [source])
    return bench


def values(client: Client) -> dict[str, str]:
    return {message.topic: message.payload.decode() for message in client.messages()}


def test_mosquitto_s_names_are_there_at_once_as_if_retained() -> None:
    bench = sys_bench()
    client = bench.client("c")
    client.subscribe("$SYS/#", qos=2)
    messages = client.messages()
    assert all(message.retain and message.qos == 0 for message in messages)
    topics = [message.topic for message in messages]
    assert sorted({f"$SYS/broker/{name}" for name in MOSQUITTO} - set(topics)) == []
    assert len(set(topics)) == len(topics)


def test_the_values_are_what_has_happened() -> None:
    bench = sys_bench(Limits(maximum_queued=1, publisher_wait=0))
    client = bench.client("c", properties={Property.SESSION_EXPIRY: 5}, clean_start=False)
    client.subscribe("a", "b", qos=1)
    publisher = bench.client("p")
    publisher.publish("a", b"1", qos=1)
    publisher.publish("a", b"2", retain=True)
    client.lose()
    publisher.publish("a", b"3", qos=1)
    publisher.publish("a", b"4", qos=1)
    watcher = bench.client("w")
    watcher.subscribe("$SYS/#")
    found = {topic.removeprefix("$SYS/broker/"): value for topic, value in values(watcher).items()}
    assert found["version"] == "saps version 1.2.3"
    expected = {
        "clients/connected": 2,
        "clients/disconnected": 1,
        "clients/total": 3,
        "clients/maximum": 2,
        "publish/messages/received": 4,
        "publish/messages/sent": 2,
        "publish/messages/dropped": 1,
        "messages/received": 3 + 2 + 4,
        "messages/sent": 3 + 2 + 3 + 2,
        "messages/inflight": 1,
        "store/messages/count": 2,
        "retained messages/count": 1,
        "subscriptions/count": 3,
    }
    assert {name: int(found[name]) for name in expected} == expected
    bench.advance(20)
    assert values(watcher)["$SYS/broker/clients/expired"] == "1"
    assert totals(bench.frontend).published == 4, "sessions that are over count, too"


def test_what_has_changed_comes_once_an_interval_to_those_who_subscribe() -> None:
    bench = sys_bench()
    client = bench.client("c")
    client.subscribe("$SYS/broker/uptime", "$SYS/broker/version")
    assert values(client) == {"$SYS/broker/uptime": "0 seconds", "$SYS/broker/version": "saps version 1.2.3"}
    bench.advance(9.9)
    assert values(client) == {}
    bench.advance(0.2)
    assert values(client)["$SYS/broker/uptime"] == "10 seconds"
    bench.advance(20)
    assert values(client) == {"$SYS/broker/uptime": "30 seconds"}


def test_the_tree_is_not_matched_by_leading_wildcards_nor_written_by_clients_nor_seen_elsewhere() -> None:
    bench = sys_bench()
    client = bench.client("c")
    client.subscribe("#", "+/#", "+/broker/version")
    client.publish("$SYS/broker/version", b"forged", retain=True)
    bench.advance(30)
    client.send(Pingreq())
    assert client.take() == [Pingresp()]
    assert not bench.hub.routes.known
    client.subscribe("$SYS/broker/version")
    assert values(client) == {"$SYS/broker/version": "saps version 1.2.3"}


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_acknowledgements_are_packets_too(qos: int) -> None:
    bench = sys_bench()
    client, publisher = bench.client("c"), bench.client("p")
    client.subscribe("a", qos=1)
    counts = bench.frontend.counts
    before = counts.handled, counts.answered
    for number in range(1, 4):
        publisher.publish("a", b"x", qos=qos, packet_id=number)
        publisher.publish("a", b"x", qos=qos, packet_id=number + 10)
    client.send_bytes(b"".join(b"\x40\2" + m.packet_id.to_bytes(2) for m in client.messages() if m.packet_id))
    client.send(puback(999))
    assert counts.answered - before[1] == (6 if qos else 0)
    assert counts.handled - before[0] == (7 if qos else 1)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(0.1, 100)), min_size=1, max_size=20), st.floats(1, 100))
def test_load_averages_follow_the_rate(history: list[tuple[int, float]], interval: float) -> None:
    """Between the least and the greatest rate there was, and in the end the present one, the short window first."""
    load, counter, rates = LoadAverage(), 0, [0.0]
    for count, elapsed in history:
        counter += count
        load.update(counter, elapsed)
        rates.append(count * 60 / elapsed)
        assert all(min(rates) - 1e-6 <= minutes <= max(rates) * (1 + 1e-9) for minutes in load.minutes.values())
    for _ in range(math.ceil(900 * 12 / interval)):
        counter += 7
        load.update(counter, interval)
    assert all(math.isclose(minutes, 7 * 60 / interval, rel_tol=0.05, abs_tol=0.2) for minutes in load.minutes.values())
