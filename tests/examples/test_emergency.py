"""The emergency example as a user runs it; how its result is judged. Nothing here looks at times."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree.ElementTree import fromstring

import msgspec
import pytest

from examples.emergency.result import CALM, LOADED, Arrival, Emergency, draw
from lab import obstacle

COMMAND = [sys.executable, "-m", "examples.emergency", "--plain"]


def run(folder: Path, *options: str) -> Emergency:
    """One run of the command, which must succeed."""
    file, picture = folder / "result.json", folder / "picture.svg"
    done = subprocess.run(
        [*COMMAND, *options, "--json", str(file), "--picture", str(picture)],
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SAPS emergency" in done.stdout
    assert picture.read_text().startswith("<svg")
    return msgspec.json.decode(file.read_bytes(), type=Emergency)


def heard(result: Emergency) -> None:
    """Every siren has every alert and every notice."""
    assert result.given[0] == result.given[1] > 0
    assert len(result.arrivals) == 2 * sum(result.given)
    assert result.pictures > 0
    assert {row.way for row in result.times()} == {CALM, LOADED}


@pytest.mark.network
@pytest.mark.timeout(500)
def test_without_root_brokers_on_this_machine_do(tmp_path: Path) -> None:
    result = run(tmp_path, "--world", "loopback", "--seconds", "3")
    heard(result)
    assert not result.trees
    assert result.archived > 0


@pytest.mark.network
@pytest.mark.timeout(500)
def test_over_two_openflow_domains_alerts_pass_what_fills_the_way(tmp_path: Path) -> None:
    if why := obstacle():
        pytest.skip(why)
    result = run(tmp_path, "--world", "lab", "--seconds", "4.5", "--mbit", "2")
    heard(result)
    assert result.trees
    assert result.megabits


def emergency(*arrivals: Arrival, given: int = 2) -> Emergency:
    return Emergency(
        world="", trees=False, given=(given, given), arrivals=list(arrivals), load=(1.0, 2.0), pictures=1, archived=1,
        megabits=None,
    )  # fmt: skip


def test_what_is_lost_doubled_or_out_of_order_is_said() -> None:
    def alert(number: int, priority: bool = True) -> Arrival:
        return Arrival("osaka", priority, number, number / 1.0, 0.1)

    fine = emergency(alert(1), alert(2), alert(1, False), alert(2, False)).judged()
    assert fine.problems == []
    wrong = emergency(alert(2), alert(1), alert(1), alert(1, False)).judged()
    assert len(wrong.problems) == 3
    assert [(row.priority, row.way, row.alerts) for row in fine.times()] == [
        (True, CALM, 1),
        (True, LOADED, 1),
        (False, CALM, 1),
        (False, LOADED, 1),
    ]
    assert emergency().judged().problems
    assert fromstring(draw(fine).svg()).tag.endswith("svg")
