"""Tables of decisions on their way to OFGate, over real HTTP: idempotent, in order, and retried."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

pytest.importorskip("pyarrow")

from monitoring.decisions.sink import Sink
from monitoring.decisions.store import NOTHING, Store
from monitoring.decisions.table import Judged, Table, decide
from monitoring.selection.network import Network, Room
from saps.agents.ofgate.decisions_io import DecisionHandler, Decisions, DecisionServer
from saps.ofm.northbound.schema import OVERHEAD, Demand


class Gate:
    """What OFGate would do, remembered."""

    def __init__(self) -> None:
        self.leading = True
        self.has: set[str] = set()
        self.orders: list[str] = []
        self.remeasured: list[str] = []
        self.loads: dict[str, float] = {}

    def leads(self) -> bool:
        return self.leading

    async def exploit(self, topic: str) -> Any:
        self.has.add(topic)
        self.orders.append(f"+{topic}")
        return ["constructing", None]

    def release(self, topic: str) -> Any:
        self.has.discard(topic)
        self.orders.append(f"-{topic}")
        return ["none", None]

    def remeasure(self, topic: str) -> None:
        self.remeasured.append(topic)

    def spread(self, loads: dict[str, float]) -> None:
        self.loads = loads

    def wanted(self) -> set[str]:
        return set(self.has)

    def describe(self) -> dict[str, Any]:
        return {"topics": sorted(self.has)}


class Place:
    """A store whose tables are sent to a door."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)
        self.gate = Gate()
        self.pinned: set[str] = set()
        self.request_handler = DecisionHandler(self.gate, lambda: self.pinned)
        self.door = DecisionServer(self.request_handler, self.gate, "secret")
        self.url = ""

    def decided(self, epoch: int, *topics: str, size: float = 0.0) -> Table:
        judged = [Judged(topic, 900.0, 1.0, 900.0, 9.0, "a:1:0|b:1:1", size) for topic in topics]
        table = decide(judged, {}, Network(), epoch)
        self.store.keep(table)
        self.store.fresh(epoch)
        self.store.commit(NOTHING._replace(batch=epoch, closed=epoch, epoch=epoch, digest=table.digest))
        return table

    async def flush(self, token: str = "secret", *more: str) -> bool:
        return await asyncio.to_thread(Sink([*more, self.url], self.store, token).flush)


@pytest.fixture
async def place(tmp_path: Path):  # type: ignore[no-untyped-def]
    place = Place(tmp_path)
    place.url = f"http://127.0.0.1:{await place.door.start('127.0.0.1', 0)}"
    yield place
    await place.door.close()


async def test_a_table_is_carried_out_once_however_often_it_is_sent(place: Place) -> None:
    place.decided(1000, "a", "b")
    assert await place.flush()
    assert place.gate.orders == ["+a", "+b"]
    for file in (Path(str(place.store.folder)) / "sent").iterdir():
        file.unlink()  # it was killed before it could note that it had sent
    assert await place.flush()
    assert place.gate.orders == ["+a", "+b"]
    assert place.request_handler.repeated == 1


async def test_what_is_not_in_the_next_table_goes_but_what_the_operator_ordered_stays(place: Place) -> None:
    place.gate.has, place.pinned = {"mine", "old"}, {"mine"}
    place.decided(1000, "a")
    assert await place.flush()
    assert place.gate.has == {"mine", "a"}
    place.decided(2000, "b")
    assert await place.flush()
    assert place.gate.has == {"mine", "b"}


async def test_the_busiest_topics_without_a_tree_are_spread_over_the_planes(place: Place) -> None:
    """There is no room for a tree on any switch."""
    judged = [Judged("busy", 900.0, 1.0, 900.0, 9.0, "a:1:0|b:1:1", 90.0), Judged("idle", 1.0, 9.0, 1.0, 0.1, "a:1:1")]
    table = decide(judged, {}, Network(Room(0, 0)), 1000)
    assert [each.topic for each in table.beside] == ["busy"]
    await place.request_handler.take(convert(message_of(table), Decisions))
    assert place.gate.loads == {"busy": 9.0 * (90 + OVERHEAD)}
    assert place.gate.has == set()
    body = message_of(table) | {"beside": [{"topic": "a/#", "rate": 1.0}]}
    with pytest.raises(Exception, match="400"):
        await asyncio.to_thread(Sink([place.url], place.store, "secret")._send, body)


async def test_an_order_before_ofgate_leads_is_carried_out_when_it_does(place: Place) -> None:
    """Without any table, nothing that is there is dropped."""
    place.gate.leading, place.gate.has, place.pinned = False, {"other"}, {"mine"}
    await place.request_handler.carry_out()
    assert place.gate.has == {"other"}
    place.gate.leading = True
    await place.request_handler.carry_out()
    assert place.gate.has == {"mine", "other"}


async def test_an_older_table_is_refused(place: Place) -> None:
    first = place.decided(1000, "a")
    place.decided(2000, "b")
    assert await place.flush()
    with pytest.raises(Exception, match="409"):
        await asyncio.to_thread(Sink([place.url], place.store, "secret")._send, message_of(first))
    assert place.gate.has == {"b"}


def message_of(table: Table) -> dict[str, Any]:
    from monitoring.decisions.sink import message

    return message(table)


async def test_an_ofgate_that_is_away_is_waited_for_and_said_once(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.decided(1000, "a")
    place.gate.leading = False
    sink = Sink([place.url], place.store, "secret")
    with caplog.at_level(logging.INFO):
        assert [await asyncio.to_thread(sink.flush) for _ in range(3)] == [False] * 3
        place.decided(2000, "b")
        place.gate.leading = True
        assert await asyncio.to_thread(sink.flush)
    assert place.gate.orders == ["+b"]
    assert caplog.text.count("trying again") == 1
    assert "takes decisions again" in caplog.text
    assert place.store.unsent() == []


async def test_a_table_that_waits_is_not_forgotten_over_batches_without_one(place: Place) -> None:
    place.decided(1000, "a")
    place.store.fresh(1001)
    place.store.commit(place.store.last()._replace(batch=1001, epoch=0, digest=""))
    assert place.store.unsent() == [1000]
    assert await place.flush()
    assert place.gate.has == {"a"}


async def test_a_table_of_a_batch_that_was_not_committed_is_not_sent(place: Place) -> None:
    place.decided(1000, "a")
    place.store.keep(place.store.table(1000)._replace(epoch=2000))
    assert place.store.unsent() == [1000]


async def test_the_history_ends_with_its_time_and_of_what_was_sent_the_last_is_known(place: Place) -> None:
    for day in range(20):
        place.decided(day * 86_400_000, "a")
        assert await place.flush()
    assert place.store.epochs() == [day * 86_400_000 for day in range(5, 20)]
    assert place.store.folder.names("sent").files == {str(19 * 86_400_000)}
    assert place.store.unsent() == []


async def test_another_ofgate_is_tried_where_the_first_cannot_be_reached(place: Place) -> None:
    place.decided(1000, "a")
    sink = Sink(["http://127.0.0.1:1", place.url], place.store, "secret")
    assert await asyncio.to_thread(sink.flush)
    assert place.gate.has == {"a"}


async def test_an_ofgate_that_has_started_anew_gets_the_table_again(place: Place) -> None:
    place.decided(1000, "a")
    sink = Sink([place.url], place.store, "secret")
    assert await asyncio.to_thread(sink.flush)
    place.gate.has.clear()
    place.request_handler.table = None
    assert await asyncio.to_thread(sink.remind)
    assert place.gate.has == {"a"}


async def test_without_the_token_nothing_is_taken(place: Place) -> None:
    place.decided(1000, "a")
    assert not await place.flush("guess")
    assert place.gate.orders == []


async def test_a_tree_that_could_not_be_had_at_first_is_tried_again(place: Place) -> None:
    place.decided(1000, "a")
    assert await place.flush()
    place.gate.has.clear()
    assert (await place.request_handler.carry_out())["build"] == ["a"]
    assert (await place.request_handler.carry_out()) == {"build": [], "drop": []}


async def test_the_controller_is_told_what_messages_of_their_real_size_take_and_again_when_that_changes(
    place: Place,
) -> None:
    place.decided(1000, "a", "b", size=3000.0)
    assert await place.flush()
    told = place.request_handler.demand("a")
    assert told == Demand(messages=9.0, size=3000.0)
    assert told is not None
    assert told.bits > 8 * 9 * 3000
    place.decided(2000, "a", "b", size=3100.0)
    assert await place.flush()
    assert place.gate.remeasured == []
    place.decided(3000, "a", "b", size=6000.0)
    assert await place.flush()
    assert place.gate.remeasured == ["a"], "nobody has asked for the other"
    place.decided(4000, "a")
    assert await place.flush()
    assert place.request_handler.demand("a") == Demand(messages=9.0), "of a size that is not known the usual one"
