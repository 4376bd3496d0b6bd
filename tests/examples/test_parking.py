"""The parking example: the ledger, the check, and the whole command, with a broker killed on the way."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.parking.check import faults, signs
from examples.parking.desk import Answer, Driver
from examples.parking.ledger import Ledger, found
from examples.parking.picture import Outcome, draw
from examples.parking.town import PARKS, PLACES, CarPark, drivers
from tests.examples.commands import run_example

SMALL = (CarPark("a", 0, 2), CarPark("b", 9, 3))


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 8), st.integers(0, 1)), max_size=40))
def test_a_request_gets_one_place_however_often_and_at_whatever_worker_it_comes(
    requests: list[tuple[str, int, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ledger"
        found(file, SMALL)
        workers = [Ledger(file), Ledger(file)]
        got: dict[str, int | None] = {}
        for park, number, worker in requests:
            request = f"d{number} {park}"
            place, before = workers[worker].reserve(park, request)
            assert before == (got.get(request) is not None)
            if before:
                assert place == got[request]
            got[request] = place
        taken = workers[0].taken()
        assert {request: number for (_, number), request in taken.items()} == {
            request: place for request, place in got.items() if place is not None
        }
        for each in SMALL:
            asked = len({request for request in got if request.endswith(each.name)})
            assert workers[1].free(each.name) == max(0, each.places - asked)
        for ledger in workers:
            ledger.close()


def _driver(place: int | None, *full: str) -> Driver:
    driver = Driver(drivers(1)[0])
    driver.began = True
    driver.answer = Answer("market", place, "w") if place is not None else None
    driver.full = list(full)
    return driver


def test_the_check_finds_a_place_sold_twice_a_place_nobody_knows_of_and_a_lie() -> None:
    holder = _driver(1)
    right = {("market", 1): f"{holder.plan.name} market"}
    assert list(faults([holder], right)) == []
    assert any("sold 2 times" in fault for fault in faults([holder, _driver(1)], right))
    assert any("has not been told" in fault for fault in faults([holder], right | {("market", 2): "driver-99 market"}))
    assert any("ledger has" in fault for fault in faults([_driver(2)], right))
    assert any("no answer" in fault for fault in faults([_driver(None)], {}))
    assert any("that market is full" in fault for fault in faults([_driver(None, *(park.name for park in PARKS))], {}))
    assert list(signs(right, {("a sign", "market"): 11, ("a sign", "harbour"): 24})) == []
    assert len(list(signs(right, {("a sign", "market"): 12, ("a page", "harbour"): None}))) == 2


@pytest.mark.network
@pytest.mark.chaos
def test_no_place_is_sold_twice_though_a_broker_is_killed(tmp_path: Path) -> None:
    done, result = run_example("parking", Outcome, tmp_path, "--seconds", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert result.problems == []
    assert result.killed == "b3"
    assert result.parked == PLACES
    assert result.parked + result.refused == result.drivers == len(drivers(1))
    assert sum(result.by_worker.values()) >= result.drivers
    assert sum(count > 0 for count in result.by_worker.values()) > 1
    assert (tmp_path / "picture.svg").read_text() == draw(result).svg()
