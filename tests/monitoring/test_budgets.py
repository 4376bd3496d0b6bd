"""The room that the controller says there is, and what selection makes of it."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.counts.features import sites_of
from monitoring.decisions.table import Judged, decide
from monitoring.selection.budgets import Budgets, Told, room
from monitoring.selection.network import CORE, Network, Room
from monitoring.selection.selection import Calm, Held

EAST, WEST, MIDDLE = "0000000000000002", "0000000000000003", "0000000000000001"
KNOWN = Network(dpids={"east": EAST, "west": WEST, CORE: MIDDLE})
SITES = "east:1:1|west:1:0"
NEEDS = KNOWN.needs(sites_of(SITES))


def answer(used: int = 0, budget: int = 100) -> list[dict[str, Any]]:
    quota = {"used": used, "budget": budget}
    return [{"dpid": dpid, "connected": True, "entries": quota, "buckets": quota} for dpid in (MIDDLE, EAST, WEST)]


def judged(topic: str) -> Judged:
    return Judged(topic, 1000.0, 1.0, 1000.0, 10.0, SITES)


def trees(budgets: Budgets, topics: list[str], held: dict[str, Held]) -> list[str]:
    rows = [judged(topic) for topic in topics]
    return decide(rows, held, budgets.network(rows, held), 10_000_000, Calm(0.0, 0)).trees


@pytest.fixture
def controller() -> Iterator[tuple[str, dict[str, Any]]]:
    """A northbound that answers as it is told: its address, and the answers by path."""
    answers: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answers[self.path]).encode() if self.path in answers else b""
            self.send_response(200 if body else 503)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", answers
        server.shutdown()
        thread.join()


def test_no_more_trees_than_the_controller_has_room_for(controller: tuple[str, dict[str, Any]]) -> None:
    url, answers = controller
    budgets, topics = Budgets(url, KNOWN), ["a", "b", "c"]
    each = NEEDS["east"].entries
    assert trees(budgets, topics, {}) == topics, "nothing is told: the default has room for all"
    answers |= {"/v1/budgets": answer(used=100 - 2 * each), "/v1/ofms": [{"topic": "x", "address": "y"}]}
    assert len(trees(budgets, topics, {})) == 2, "an operator's tree has the rest"
    answers |= {"/v1/budgets": answer(used=100), "/v1/ofms": [{"topic": "a", "address": "y"}]}
    assert trees(budgets, topics, {"a": Held(True, 0)}) == ["a"], "a tree that stands is in what is used"
    answers |= {"/v1/ofms": [{"topic": "a", "address": None}]}
    assert trees(budgets, topics, {"a": Held(True, 0)}) == [], "one that is not built has no room of its own"


def test_what_cannot_be_had_is_as_it_was_and_said_once(
    controller: tuple[str, dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    url, answers = controller
    budgets = Budgets(url, KNOWN)
    answers |= {"/v1/budgets": answer(used=98), "/v1/ofms": []}
    before = budgets.network([], {})
    assert before.budget("east") == Room(2, 2)
    answers.clear()
    with caplog.at_level(logging.INFO):
        assert budgets.network([], {}) == budgets.network([], {}) == before
        answers |= {"/v1/budgets": [], "/v1/ofms": []}
        assert budgets.network([], {}) == before, "a controller without switches says nothing"
        answers |= {"/v1/budgets": answer(), "/v1/ofms": []}
        assert budgets.network([], {}).budget("east") == Room(100, 100)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_file_serves_as_well(tmp_path: Path) -> None:
    file = tmp_path / "budgets.json"
    file.write_text(json.dumps(answer(used=90)))
    network = Budgets(str(file), KNOWN).network([], {})
    assert {name: network.budget(name) for name in ("east", CORE, "elsewhere")} == dict.fromkeys(
        ("east", CORE, "elsewhere"), Room(10, 10)
    )


rooms = st.builds(Room, st.integers(0, 40), st.integers(0, 40))


@given(
    st.fixed_dictionaries(dict.fromkeys((MIDDLE, EAST, WEST), rooms)),
    st.integers(0, 6),
    st.sets(st.sampled_from(["east", "west", CORE])),
)
def test_trees_that_stand_and_what_others_use_never_exceed_a_budget(
    others: dict[str, Room], standing: int, named: set[str]
) -> None:
    """Whatever switches are known by name: what others use and what may be selected fits the budget."""
    full = Room(60, 60)
    ours = [judged(f"t{number}") for number in range(standing)]
    at = KNOWN.dpids
    used = {
        dpid: Room(*(there + standing * need for there, need in zip(others[dpid], NEEDS[name], strict=True)))
        for name, dpid in at.items()
    }
    known = Network(dpids={name: dpid for name, dpid in at.items() if name in named})
    told = Told(dict.fromkeys(at.values(), full), used, frozenset(row.topic for row in ours))
    network = room(known, told, ours)
    for name, dpid in at.items():
        may, left = network.budget(name), Room(*(f - o for f, o in zip(full, others[dpid], strict=True)))
        assert may.entries <= left.entries
        assert may.buckets <= left.buckets
        assert may == left or name not in named
