"""The benchmark of clients that come and go for hours: it measures what it says."""

from __future__ import annotations

import pytest

from benchmarks import soak
from benchmarks.soak import Sample, growth, samples


@pytest.mark.network
def test_devices_come_and_go_and_get_what_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "MINUTE", 2.0)
    monkeypatch.setattr(soak, "PAUSE", 0.2)
    first, second = samples(2, 30, 0.5, 1)
    assert 30 < first.visits < second.visits
    assert 0 < first.delivered < second.delivered
    assert all(each.refused == 0 and each.processor > 0 and len(each.resident) == 2 for each in (first, second))


def test_growth_begins_when_the_memory_has_settled() -> None:
    found = [Sample(minute, 0, 0, 0, 0, 0.0, [size, size]) for minute, size in enumerate((10, 50, 40, 42, 41), 1)]
    assert growth(found, 3) == pytest.approx(1.05)
