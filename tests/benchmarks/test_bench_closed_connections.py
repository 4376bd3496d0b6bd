"""The benchmark of closed connections: it measures what it says."""

from __future__ import annotations

import pytest

from benchmarks.closed_connections import MIB, WARM_UP, measured


@pytest.mark.network
def test_connections_that_are_over_cost_no_memory() -> None:
    """60,000 of them once cost 67 to 108 MiB, about 1.4 KiB each."""
    first, last = measured(10 * WARM_UP)
    assert first > 0
    assert last - first < 5 * MIB
