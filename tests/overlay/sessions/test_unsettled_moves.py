"""Sessions that move while brokers stand still on the way of what was published before."""

from __future__ import annotations

import os

import pytest

from tests import marks
from tests.overlay.ordeals import standing_still

COUNT = int(os.environ.get("REPLICA_SCHEDULES", "2"))


@pytest.mark.parametrize("seed", range(COUNT))
def test_brokers_that_stand_still_beside_a_move_cost_nothing(seed: int) -> None:
    standing_still(seed, disks=seed % 2 > 0, rounds=2, patience=5)


def test_a_broker_that_has_stood_still_ends_no_session_of_another() -> None:
    """It had asked for the session before. When it went on, it took the other one for silent, and made it end it."""
    standing_still(5302, disks=False, rounds=2, patience=5)


@pytest.mark.parametrize("seed", [47, 126])
@marks.expect("own publications made up for a session that comes before all is settled")
def test_the_publications_of_the_broker_to_which_a_session_moves_are_not_lost(seed: int) -> None:
    """They were on their way to the broker that the session left, and the move waited no longer. Some came later,
    out of order."""
    standing_still(seed, disks=False, rounds=1, patience=0.7)
