"""Stamps of the hybrid logical clock, and what they decide when the clocks of two brokers are far apart."""

from __future__ import annotations

import pytest

from saps.overlay.retained.stamps import AHEAD, MOST, StampClock, seconds
from tests.overlay.roams import Nomad, Roams

NOW = 1.7e9
"""A time of day in seconds since the epoch."""


def clock(name: str, wall: float) -> StampClock:
    return StampClock(name, lambda: wall)


def test_a_clock_follows_stamps_unless_they_are_too_far_ahead() -> None:
    mine = clock("a", NOW)
    mine.seen(clock("b", NOW + AHEAD - 1).stamp())
    assert seconds(mine.stamp()) == pytest.approx(NOW + AHEAD - 1)
    mine.seen(clock("b", NOW + AHEAD + 1).stamp())
    assert seconds(mine.stamp()) == pytest.approx(NOW + AHEAD - 1)


@pytest.mark.parametrize("ahead", [-AHEAD, 0, AHEAD / 2, 2 * AHEAD])
def test_a_later_stamp_is_later_however_far_the_other_is_ahead(ahead: float) -> None:
    mine, other = clock("a", NOW), clock("b", NOW + ahead).stamp()
    assert mine.later(other) > other
    assert seconds(mine.stamp()) == pytest.approx(NOW + (ahead if 0 < ahead < AHEAD else 0))


def test_no_stamp_exhausts_the_clock() -> None:
    mine = clock("a", NOW)
    assert mine.later(MOST) == MOST
    assert seconds(mine.stamp()) == pytest.approx(NOW)


@pytest.mark.simulation
def test_a_session_moves_to_a_broker_whose_clock_is_far_behind() -> None:
    """No claim of that broker was ever later: its clients were told 0x89 for as long as it ran (`make chaos`)."""
    mesh = Roams(1)
    one, two, _ = mesh.build(3)
    one.node.sessions._stamp = clock(one.name, NOW).later
    two.node.sessions._stamp = clock(two.name, NOW - 2 * AHEAD).later
    nomad = Nomad(mesh, "c")
    nomad.arrive(one)
    assert nomad.arrive(two)
    assert mesh.sessions("c") == [two.name]
    assert nomad.arrive(one)
