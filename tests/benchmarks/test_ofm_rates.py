"""The benchmark of a busy topic by ALM, OFM and raw UDP: its page, and the worlds it measures in."""

from __future__ import annotations

import pytest

from benchmarks.ofm_rates import Row, markdown
from benchmarks.ofm_worlds import OnSwitches
from lab import LabError


def test_the_ways_at_one_rate_are_one_line() -> None:
    times, none = (1.0, 10.0), (0.0, 0.0)
    found = [
        Row("a", "ALM", 7, 2000, 1999, 0.0, 0, *times, 40.0, 200.0, 2.5, 1400.0, 0),
        Row("a", "OFM", 7, 2000, 1998, 0.0, 0, *times, 50.0, 300.0, 1.4, 1000.0, 5.1),
        Row("a", "UDP", 7, 2000, 1997, 0.0125, 0, *times, *none, 4.1, 980.0, 1),
        Row("b", "ALM", 7, 0, 4843, 0.0, 0, *times, 4.0, 23.0, *none, 0),
    ]
    head, _, columns, dashes, first, second = markdown(found).splitlines()
    assert head.startswith("ALM/OFM/UDP; CPU")
    assert len({line.count("|") for line in (columns, dashes, first, second)}) == 1
    assert first.startswith("| a | 2,000 | 1,999/1,998/1,997 | 0/0/1.2 | 1.0/1.0/1.0 |")
    assert first.endswith("| 40/50/- | 2.50/1.40/4.10 | 1400/1000/980 |")
    assert second.startswith("| b | QoS 1 | 4,843/-/- |")


def test_switches_in_software_are_a_tree_of_clusters() -> None:
    with pytest.raises(LabError, match="ring:3: with `saps switches` it is to be tree:CxN"):
        OnSwitches("ring:3")
    assert OnSwitches("tree:2x2").hosts == ("c1b1", "c1b2", "c2b1", "c2b2")
