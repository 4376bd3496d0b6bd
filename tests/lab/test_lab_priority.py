"""An alert beside bulk traffic that fills a narrow link: broker processes, real switches, both ways."""

from __future__ import annotations

import os

import pytest

from benchmarks.lab_priority import scene
from lab.plan import shaping

pytestmark = [pytest.mark.network, pytest.mark.xdist_group("processes"), pytest.mark.timeout(400)]

NARROW = 1_000_000
"""Bits a second. What is queued before the first alert takes longer than any test may last on a busy machine."""


@pytest.mark.parametrize("ofm", [False, True], ids=["alm", "ofm"])
def test_alerts_arrive_while_bulk_published_before_them_still_waits(ofm: bool) -> None:
    """Without priority an alert comes after all bulk that was published before it; the alert's publisher would not even
    be read, as the link is congested. No time is looked at: only what has come, and what has not."""
    with scene(NARROW, priority=True, ofm=ofm, name=f"prio{os.getpid()}") as made:
        made.begin(ahead=1 << 21)
        for _ in range(3):
            waiting = made.published
            made.alert()
            assert made.look() < waiting - (1 << 20)


def test_a_limit_by_priority_has_two_classes_whose_rates_make_up_the_whole() -> None:
    lines = list(shaping("s1-core", 8_000_000, 50, by_priority=True))
    assert sum("classid 1:10" in line and "7200000bit ceil 8000000bit prio 0" in line for line in lines) == 1
    assert sum("classid 1:20" in line and "800000bit ceil 8000000bit prio 1" in line for line in lines) == 1
    assert sum("limit 50000" in line for line in lines) == 2
