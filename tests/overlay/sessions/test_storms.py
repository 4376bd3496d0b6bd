"""Between two sites nothing acknowledged is lost, doubled or out of order, whatever faults overlap."""

from __future__ import annotations

import pytest

from benchmarks.chaos.schedule import Kind
from saps.overlay.delivery import order
from tests import marks
from tests.drawn import kept
from tests.overlay.storms import FAULTS, Storm

pytestmark = pytest.mark.simulation

ALL = tuple(FAULTS)
DEATHS = (Kind.KILL, Kind.PARTITION)
RESTARTS = (Kind.RESTART, Kind.KILL, Kind.PARTITION, Kind.CUT, Kind.WIPE)


@pytest.mark.parametrize(
    ("seed", "disks", "kinds"),
    kept(
        *((seed, True, DEATHS) for seed in (1, 6, 8, 9, 21, 36, 42)),
        *((seed, False, DEATHS) for seed in (5, 22, 48)),
        *((seed, True, (Kind.KILL, Kind.FREEZE)) for seed in (36, 51, 56)),
        *((seed, True, ALL) for seed in (7, 8, 14, 34, 39, 46, 55, 57, 73, 84, 152)),
        *((seed, False, ALL) for seed in (12, 23, 51, 55, 57, 71, 72, 89)),
        (34, True, DEATHS),
        (5, True, DEATHS),
        (15, True, DEATHS),
        (177, True, ALL),
        (14, False, ALL),
        (16, False, ALL),
        (46, False, ALL),
        (52, False, ALL),
        *((seed, True, ALL) for seed in (26, 27, 54, 60)),
        quick=3,
    ),
)
def test_storms_that_failed_once(seed: int, disks: bool, kinds: tuple[Kind, ...]) -> None:
    Storm(seed, disks, kinds).carry_out()


@marks.expect("made up for sessions that were elsewhere", "lag of a former incarnation kept during a cut")
def test_what_brokers_had_missed_reaches_sessions_that_have_left_them() -> None:
    Storm(22, disks=True).carry_out()


def test_what_went_live_to_a_broker_as_it_caught_up_reaches_its_heir() -> None:
    """It died before it had that, and its heir was beyond a cut."""
    Storm(31, disks=True).carry_out()


@pytest.mark.parametrize(("seed", "disks"), kept((231, False), (232, False), (201, True), (202, True), quick=1))
def test_orderly_restarts_in_storms_cost_nothing(seed: int, disks: bool) -> None:
    Storm(seed, disks, RESTARTS, 4).carry_out()


@marks.expect("bequeathed by a broker that has gone since")
def test_what_a_broker_has_told_an_heir_counts_when_it_has_left() -> None:
    """The heir asked again, as it could not reach all, and forgot what it had been told before."""
    Storm(7011, False, RESTARTS).carry_out()


def test_an_heir_that_leaves_adopts_before() -> None:
    """It left, the next one adopted, and nobody had what the first had published meanwhile. The heir is cut off from
    brokers that it takes to be there."""
    Storm(7000, False, RESTARTS).carry_out()


@pytest.mark.parametrize(("seed", "disks"), kept((212, True), (233, False), (247, False), quick=2))
def test_cuts_that_outlast_what_is_kept_of_a_dead_broker(
    seed: int, disks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sequences were dropped. Then nothing of it counted as delivered, and sessions that had moved missed some."""
    monkeypatch.setattr(order, "MEMORY", 2.5)
    Storm(seed, disks, RESTARTS).carry_out()


@pytest.mark.soak
@pytest.mark.parametrize("disks", [False, True], ids=["in memory", "on disk"])
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_storms_cost_nothing(seed: int, disks: bool) -> None:
    Storm(seed, disks).carry_out()
    Storm(seed, disks, RESTARTS).carry_out()
