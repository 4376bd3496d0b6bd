"""The clients agent: who is found, what is told of a client, and its disconnection."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from saps.agents.api import Answers
from saps.frontend.mqtt.codec.packets import V311, Disconnect, Will
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.limits import Limits
from saps.messages import Subscription
from saps.operations.clients import CLIENTS, ClientsAgent
from saps.operations.rates import LONGEST
from saps.operations.values import LONGEST as LONGEST_TEXT
from saps.operations.values import Client, ClientRow, Question, order, shown, unpacked
from saps.simulator import Network, SimBroker
from tests.frontend.mqtt.bench import Bench
from tests.overlay.roams import Roams


def agent_of(bench: Any, name: str = "b1") -> ClientsAgent:
    """Where the wall clock is 5,000 s ahead of the frontend's."""
    return ClientsAgent(name, bench.frontend, lambda: bench.frontend.clock() + 5000, lambda connection: "TCP")


def find(agent: ClientsAgent, **asked: Any) -> list[str]:
    """The clients found, in their order."""
    count, rows = agent.find(msgspec.to_builtins(Question(**asked)))
    names = [row.client for row in unpacked(rows)]
    assert count >= len(names)
    return names


@pytest.fixture
def bench() -> Bench:
    """Three clients: one subscribes, one is away, one publishes."""
    bench = Bench(Limits(maximum_queued=2))
    reader = bench.client("reader/1", version=V311)
    reader.subscribe("air/+/pm25", "$share/g/alert/#", qos=1)
    away = bench.client("away", clean_start=False, properties={Property.SESSION_EXPIRY: 60})
    away.subscribe("air/#", qos=1)
    away.lose()
    bench.client("Writer", will=Will("bye", b"\xff", 1, True, {Property.WILL_DELAY: 9}))
    return bench


def test_clients_are_found_by_whatever_is_known_of_them(bench: Bench) -> None:
    agent = agent_of(bench)
    bench.sessions["away"].user = "Ann"
    assert find(agent) == ["Writer", "away", "reader/1"]
    assert find(agent, search="WRITE") == ["Writer"]
    assert find(agent, search="ann") == find(agent, user="A*n") == find(agent, connected=False) == ["away"]
    assert find(agent, client="*ea*/*") == ["reader/1"]
    assert find(agent, address="te*") == ["Writer", "reader/1"]
    assert find(agent, topic_filter="air/x/pm25") == ["away", "reader/1"]
    assert find(agent, topic_filter="air/x/y") == ["away"]
    assert find(agent, topic_filter="alert/#") == ["reader/1"]
    assert find(agent, topic_filter="+/x/pm25", connected=True) == ["reader/1"]
    assert find(agent, limit=2) == ["Writer", "away"]
    assert agent.find({"limit": 1})[0] == 3
    assert find(agent, after=("Writer", "b0")) == ["Writer", "away", "reader/1"]
    assert find(agent, after=("Writer", "b1")) == ["away", "reader/1"]
    assert agent.find({"limit": 1, "after": ["away", "b1"]})[0] == 3
    with pytest.raises(ValueError, match="4 stars"):
        find(agent, client="*a" * 5)


def test_rates_are_of_the_time_between_two_looks(bench: Bench) -> None:
    agent = agent_of(bench)
    writer = bench.client("Writer")

    def busiest() -> list[tuple[str, float | None]]:
        rows = unpacked(agent.find({"sort": "rate"})[1])
        assert rows == sorted(rows, key=lambda row: order(row, "rate"))
        return [(row.client, row.published_rate) for row in rows]

    assert {rate for _, rate in busiest()} == {None}
    for _ in range(20):
        writer.publish("x")
    bench.advance(0.5)
    assert {rate for _, rate in busiest()} == {None}
    bench.advance(1.5)
    assert busiest()[0] == ("Writer", 10.0)
    bench.advance(LONGEST)
    bench.advance(LONGEST)
    assert agent._rates._seen == {}  # nobody looked


def test_a_client_is_told_whole(bench: Bench) -> None:
    agent = agent_of(bench)
    writer = bench.client("Writer", will=Will("bye", b"\xff", 1, True, {Property.WILL_DELAY: 9}))
    for number in range(3):
        writer.publish("air/x/pm25", b"%d" % number, qos=1, packet_id=number + 1)
    bench.advance(5)
    away = msgspec.convert(agent.describe("away"), Client)
    assert away.row.queued == len(away.queue) == 2
    assert (away.row.dropped, away.expiry) == (1, 60)
    assert [(row.topic, row.text, row.qos) for row in away.queue] == [("air/x/pm25", "1", 1), ("air/x/pm25", "2", 1)]
    assert away.row.since == 1000 + 5000
    assert away.ends == away.row.since + 60
    assert (away.keep_alive, away.receive_maximum, away.row.address) == (None, None, "")
    reader = msgspec.convert(agent.describe("reader/1"), Client)
    assert reader.row.protocol == "MQTT 3.1.1 over TCP"
    assert [each.filter for each in reader.subscriptions] == ["air/+/pm25", "$share/g/alert/#"]
    assert [row.packet_id for row in reader.inflight] == [1, 2, 3]
    told = msgspec.convert(agent.describe("Writer"), Client)
    assert told.will is not None
    assert (told.will.topic, told.will.text, told.will.delay, told.will.retain) == ("bye", "0xff", 9, True)
    assert told.row.published == 3
    assert agent.describe("nobody") is None


def test_a_client_is_disconnected_and_its_session_ended_if_wanted(bench: Bench) -> None:
    agent = agent_of(bench)
    client = bench.client("c", clean_start=False, properties={Property.SESSION_EXPIRY: 60})
    assert agent.disconnect("c", False) == ["b1", True, False]
    bench.flush()
    assert client.expect(Disconnect).reason == Reason.ADMINISTRATIVE_ACTION
    assert client.closed
    assert find(agent, client="c", connected=False) == ["c"]
    assert agent.disconnect("c", True) == ["b1", False, True]
    assert find(agent, client="c") == []
    assert agent.disconnect("c", True) is None
    bench.client("brief", clean_start=False, properties={Property.SESSION_EXPIRY: 0})
    assert agent.disconnect("brief", False) == ["b1", True, True], "its session ends with its connection"
    assert find(agent, client="brief") == []


def test_a_payload_is_shown_as_text_or_as_digits() -> None:
    assert shown(b"21.5") == "21.5"
    assert shown(b"\xff\x00") == "0xff00"
    assert shown("µ".encode() * LONGEST_TEXT).startswith("µµ")
    assert shown(b"x" + "µ".encode() * LONGEST_TEXT).endswith("µ…")
    assert shown(b"\xff" * 1000) == "0x" + "ff" * (LONGEST_TEXT // 2) + "…"


@pytest.mark.simulation
def test_any_of_100_000_clients_on_100_brokers_is_found_within_a_second() -> None:
    """By whatever is known of it, from any broker, on links of 5 ms a hop. What they answer is not kept for a repeated
    question."""
    mesh = Roams(1, network=Network((0.005, 0.005)), check=False)
    brokers = mesh.build(100, 10)
    for broker in brokers:
        frontend = mesh.benches[broker].frontend
        for number in range(1000):
            client = f"{broker.name}-sensor-{number:04d}"
            session = frontend.sessions[client] = frontend.sessions.new_session(client, 60)
            session.user = f"user-{broker.name}-{number % 500}"
            topic_filter = f"air/{broker.name}/{number % 500}/#"
            session.subscriptions[topic_filter] = Subscription(topic_filter, 1)
        broker.agents.host(CLIENTS, agent_of(mesh.benches[broker], broker.name))
    wanted = ["b77-sensor-0123", "b77-sensor-0623"]
    for question in (
        {"search": "77-SENSOR-0123"},
        {"client": "b77*0123"},
        {"user": "user-b77-123"},
        {"topic_filter": "air/b77/123/pm25"},
    ):
        begun = mesh.now
        found = call(mesh, brokers[42], "find", question)
        rows = [row.client for _, rows in found for row in unpacked(rows)]
        assert mesh.now - begun < 1
        assert sorted(rows) == wanted[: sum(count for count, _ in found)]
        assert rows
    assert sum(count for count, _ in call(mesh, brokers[0], "find", {})) == 100_000
    (told,) = (value for value in call(mesh, brokers[5], "describe", wanted[0]) if value is not None)
    assert told["row"]["broker"] == "b77"
    (gone,) = (value for value in call(mesh, brokers[5], "disconnect", wanted[0], True) if value is not None)
    assert gone == ["b77", False, True]
    assert all(len(broker.agents._answered) == 1 for broker in brokers)


def call(mesh: Roams, broker: SimBroker, method: str, *args: Any) -> list[Any]:
    """What all brokers answer, within a second."""
    found: list[Answers] = []
    broker.act(lambda: broker.agents.call(f"!{CLIENTS}", method, args, found.append))
    mesh.run_until(lambda: bool(found), 1.0)
    assert found[0].complete
    assert all(answer.error is None for answer in found[0])
    return [answer.value for answer in found[0]]


def test_rows_cross_the_mesh_whole() -> None:
    row = ClientRow(
        client="c", broker="b", user=None, address="", connected=False, since=1.5, protocol="", subscriptions=1,
        inflight=2, queued=3, queued_bytes=4, published=5, delivered=6, dropped=7,
    )  # fmt: skip
    assert unpacked([list(msgspec.structs.astuple(row))]) == [row]
