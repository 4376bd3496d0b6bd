"""The benchmark of clients that come back: they do, with their sessions where these are stored."""

from __future__ import annotations

import pytest

from benchmarks.returning import GOAL, restarted


@pytest.mark.network
@pytest.mark.parametrize("stored", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_all_clients_come_back_after_a_restart(stored: bool) -> None:
    found = restarted(50, stored=stored)
    assert found.sessions == (50 if stored else 0)
    assert 0 < found.back < GOAL
    assert found.used > 0
