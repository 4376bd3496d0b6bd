"""The state of the mesh at one broker: what all brokers report, where a message would go, and what has changed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.agents.api import remote
from saps.frontend.web.mesh.live import News, Picture, news
from saps.frontend.web.mesh.network import Decisions, Network
from saps.frontend.web.mesh.report import Broker, State, TopicRow
from saps.frontend.web.mesh.status import StatusAgent
from tests.frontend.web.conftest import TIMEOUT, Site, Start, crash
from tests.frontend.web.snapshots import broker_row, snapshot, topic_row
from tests.frontend.web.test_web_topics import subscribed


async def until(ask: Callable[[], Awaitable[Any]], wanted: Callable[[Any], bool]) -> Any:
    """The first answer that is as wanted."""
    async with asyncio.timeout(TIMEOUT):
        while not wanted(found := await ask()):  # noqa: ASYNC110 - what is asked does not tell
            await asyncio.sleep(0.1)
        return found


async def mesh_of(start: Start, count: int) -> list[Site]:
    """Brokers of one mesh, two to a cluster."""
    sites = [await start("b0", cluster="c0")]
    for number in range(1, count):
        contact = sites[0].broker.ref.address
        sites.append(await start(f"b{number}", cluster=f"c{number // 2}", join=contact))
    return sites


async def test_one_broker_knows_of_all_and_adds_up_their_topics(start: Start) -> None:
    sites = await mesh_of(start, 4)
    sockets = [await subscribed(site, "air/#") for site in sites[2:]]
    sockets.append(await subscribed(sites[3], "air/ward1"))
    for _ in range(5):
        await sites[0].publish("air/ward1", b"12345", qos=1)

    async def ask() -> Any:
        await sites[0].publish("air/ward1", b"12345", qos=1)
        return await sites[1].json("/v1/topics?search=AIR")

    found = await until(ask, lambda found: found["topics"] and found["topics"][0]["rate"] > 0)
    (row,) = found["topics"]
    assert row["topic"] == "air/ward1"
    assert (row["publishers"], row["brokers"], row["subscribers"]) == (["b0"], ["b2", "b3"], 3)
    assert (row["mode"], found["complete"], found["total"]) == ("alm", True, 1)
    assert abs(row["bytes"] - 5 * row["rate"]) < 1
    brokers = await sites[1].json("/v1/brokers")
    assert [(b["name"], b["cluster"]) for b in brokers["brokers"]] == [(f"b{n}", f"c{n // 2}") for n in range(4)]
    assert all(b["links"] and set(b["links"]) <= {"b0", "b1", "b2", "b3"} - {b["name"]} for b in brokers["brokers"])
    assert brokers["brokers"][3]["clients"] >= 2
    to, sent, away = next(iter(brokers["brokers"][0]["traffic"]))
    assert to in {"b1", "b2", "b3"}
    assert sent >= 0
    assert away is None or 0 < away < TIMEOUT
    assert sum(b["published"] for b in brokers["brokers"]) == sites[0].broker.hub.published


async def test_subscribers_are_counted_now_and_not_at_the_last_message(start: Start) -> None:
    sites = await mesh_of(start, 2)
    await sites[0].publish("air/ward1", b"", qos=1)
    sockets = [await subscribed(sites[1], "air/#")]
    await sites[0].publish("air/ward1", b"", qos=1)

    async def ask() -> Any:
        return [(row["subscribers"], row["brokers"]) for row in (await sites[0].json("/v1/topics"))["topics"]]

    await until(ask, lambda found: found == [(1, ["b1"])])
    sockets += [await subscribed(site, each) for site in sites for each in ("air/+", "$share/g/air/ward1")]
    await until(ask, lambda found: found == [(5, ["b0", "b1"])])
    ends = (await sites[0].json("/v1/trace/air/ward1"))["ends"]
    assert [(end["broker"], end["clients"]) for end in ends] == [("b0", 2), ("b1", 3)]
    for socket in sockets[:2]:
        await socket.close()
    await until(ask, lambda found: found == [(3, ["b0", "b1"])])


async def test_a_broker_that_dies_is_known_as_away_until_it_is_forgotten(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "saps.broker.broker")
    sites = await mesh_of(start, 3)
    await crash(sites[1])
    found = await until(
        lambda: sites[0].json("/v1/brokers"), lambda found: found["away"] and len(found["brokers"]) == 2
    )
    (away,) = found["away"]
    assert (away["name"], away["cluster"], abs(away["since"] - time.time()) < TIMEOUT) == ("b1", "c0", True)
    seen = [(event["what"], event["broker"]) for event in reversed(found["events"])]
    assert [event for event in seen if event[1] == "b1"] == [("joined", "b1"), ("suspected", "b1"), ("dead", "b1")]
    assert ("joined", "b2") in seen
    said = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("broker b1 (c0) joined, at 127.0.0.1:") for line in said)
    assert any(line.startswith("broker b1 (c0) is taken for dead: no answer from 127.0.0.1:") for line in said)
    text = await (await sites[0].session.get(f"{sites[0].url}/metrics")).text()
    assert "saps_brokers_away 1.0" in text
    assert 'saps_broker_events_total{what="dead"} 1.0' in text
    async with sites[2].session.delete(f"{sites[2].url}/v1/brokers/b2") as response:
        assert response.status == 404
    async with sites[2].session.delete(f"{sites[2].url}/v1/brokers/b1") as response:
        assert (response.status, await response.json()) == (200, {"forgotten": "b1"})
    assert (await sites[2].json("/v1/brokers"))["away"] == []
    await sites[2].broker.stop()
    found = await until(lambda: sites[0].json("/v1/brokers"), lambda found: found["events"][0]["broker"] == "b2")
    assert (found["events"][0]["what"], found["away"], len(found["brokers"])) == ("left", [], 1)


async def test_a_trace_is_the_tree_that_messages_take(start: Start) -> None:
    """Every broker with subscribers is reached once, and as many messages are counted as hops were foretold."""
    sites = await mesh_of(start, 6)
    for site in sites[1:]:
        await subscribed(site, "air/+")
    computed = await sites[2].json("/v1/trace/air/x?from=b0")
    assert "does not publish" in computed["reasons"][0]
    await sites[0].publish("air/x", b"", qos=1)
    known = await sites[5].json("/v1/trace/air/x?from=b0")
    assert "knows its members" in known["reasons"][0]
    for trace in (computed, known):
        assert trace["complete"]
        assert sorted(hop["target"] for hop in trace["hops"]) == ["b1", "b2", "b3", "b4", "b5"]
        assert [(end["broker"], end["clients"]) for end in trace["ends"]] == [(f"b{n}", 1) for n in range(1, 6)]
        assert sum(hop["crosses"] for hop in trace["hops"]) == 2  # clusters with subscribers, but for the own one
        reached = {"b0"}
        for hop in sorted(trace["hops"], key=lambda hop: hop["depth"]):
            assert hop["source"] in reached
            reached.add(hop["target"])
    assert [h["target"] for h in known["hops"]] == [h["target"] for h in computed["hops"]]
    before = {site.broker.ref.name: site.broker.mesh.node.delivery.multicast.sent for site in sites}
    await sites[0].publish("air/x", b"", qos=1)
    sent = {
        site.broker.ref.name: site.broker.mesh.node.delivery.multicast.sent - before[site.broker.ref.name]
        for site in sites
    }
    foretold = {name: sum(hop["source"] == name for hop in known["hops"]) for name in sent}
    assert sent == foretold


async def test_a_broker_that_does_not_answer_is_not_said_to_publish_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = await mesh_of(start, 2)
    assert len((await sites[0].json("/v1/brokers"))["brokers"]) == 2
    divide = StatusAgent.divide

    def failing(agent: StatusAgent, topic: str, members: list[str] | None) -> Any:
        if agent._name == "b1":
            raise RuntimeError("out of order")
        return divide(agent, topic, members)

    monkeypatch.setattr(StatusAgent, "divide", remote(failing))
    assert (await sites[0].json("/v1/trace/air/x?from=b0"))["source"] == "b0"
    async with sites[0].session.get(f"{sites[0].url}/v1/trace/air/x?from=b1") as response:
        assert response.status == 504
        assert (await response.json(content_type=None))["detail"].startswith("b1 has not told")


async def test_a_fault_before_the_first_state_is_pushed_too(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    sites = await mesh_of(start, 2)
    with monkeypatch.context() as patched:
        patched.setattr("saps.frontend.web.http.answers.TIMEOUT", 0)
        async with asyncio.timeout(TIMEOUT), sites[0].session.ws_connect(f"{sites[0].url}/v1/live") as socket:
            told = msgspec.json.decode((await socket.receive()).data)
            assert (told["at"], told["fault"]) == (0, "The mesh does not answer: nothing for 0 s")
            patched.undo()
            while not told.get("full"):
                told = msgspec.json.decode((await socket.receive()).data)
            assert (told.get("fault"), len(told["brokers"])) == (None, 2)


async def test_what_is_pushed_adds_up_to_what_is_asked(start: Start) -> None:
    sites = await mesh_of(start, 2)
    socket = await sites[0].session.ws_connect(f"{sites[0].url}/v1/live")
    brokers: dict[str, Any] = {}
    topics: dict[str, Any] = {}

    async def one() -> dict[str, Any]:
        told: dict[str, Any] = msgspec.json.decode((await socket.receive()).data)
        brokers.update({row["name"]: row for row in told.get("brokers", [])})
        topics.update({row["topic"]: row for row in told.get("topics", [])})
        for name in told.get("topics_gone", []):
            del topics[name]
        return told

    async with asyncio.timeout(TIMEOUT):
        assert (await one())["full"]
        assert brokers.keys() == {"b0", "b1"}
        await subscribed(sites[1], "late")
        while "late" not in topics:
            assert not (await one()).get("full")
    assert topics["late"]["subscribers"] == 1


async def test_nobody_is_asked_while_nobody_looks(start: Start) -> None:
    sites = await mesh_of(start, 2)
    registry = sites[1].broker.agents
    answered = len(registry._answered)
    async with sites[0].session.ws_connect(f"{sites[0].url}/v1/live") as socket:
        await socket.receive()
    assert len(registry._answered) > answered
    live = sites[0].broker.web._console._live  # type: ignore[union-attr]
    async with asyncio.timeout(TIMEOUT):
        if live._loop is not None:
            await live._loop
    answered = len(registry._answered)
    await sites[0].publish("x", b"", qos=1)
    assert len(registry._answered) == answered


_brokers = st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)).map(
    lambda found: [broker_row(name, clients=clients) for name, clients in found.items()]
)
_topics = st.dictionaries(st.sampled_from("xyz"), st.integers(0, 2)).map(
    lambda found: [topic_row(topic, rate=float(rate)) for topic, rate in found.items()]
)


def _state(brokers: list[Broker], topics: list[TopicRow]) -> State:
    return State(at=0.0, seen_from="a", complete=True, topics_total=len(topics), brokers=brokers, topics=topics)


@given(st.lists(st.builds(_state, _brokers, _topics), min_size=1, max_size=5))
def test_whoever_applies_the_news_has_the_state(states: list[State]) -> None:
    brokers: dict[str, Broker] = {}
    topics: dict[str, TopicRow] = {}
    before = None
    for state in states:
        now = Picture(state, Network(configured=False), Decisions(configured=False))
        told: News = news(before, now)
        if told.full:
            brokers, topics = {}, {}
        brokers |= {row.name: row for row in told.brokers}
        topics |= {row.topic: row for row in told.topics}
        for name in told.brokers_gone:
            del brokers[name]
        for name in told.topics_gone:
            del topics[name]
        assert brokers == now.brokers
        assert topics == now.topics
        before = now


def test_a_snapshot_of_a_hundred_brokers_and_ten_thousand_topics_is_small_enough() -> None:
    made = snapshot(100, 10_000)
    full = msgspec.json.encode(news(None, made))
    assert len(full) < 6 << 20
    again = msgspec.json.encode(news(made, snapshot(100, 10_000, turn=1)))
    assert len(again) < len(full) // 2
