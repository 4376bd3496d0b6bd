"""How many schedules a property of the simulator draws: few in `make test`, `TIMES` as many, and fresh ones, in
`make soak`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

TIMES = max(1, settings().max_examples // 60)
"""60 is the profile `ci`; the profile says how many times as many are drawn (tests/conftest.py)."""


def schedules(count: int) -> settings:
    """`count` schedules in `make test`; a schedule takes 0.1 to 2 s."""
    return settings(max_examples=count * TIMES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def seeds(count: int) -> pytest.MarkDecorator:
    """The same for a test that draws by a seed of its own: `count` seeds, from 0, in `make test`."""
    return pytest.mark.parametrize("seed", range(count * TIMES))


def kept(*cases: Any, quick: int) -> list[Any]:
    """The parameters of schedules that failed once: `make test` runs the last `quick` of them, `make soak` all."""
    marks = [[pytest.mark.soak]] * (len(cases) - quick) + [[]] * quick
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=mark)
        for case, mark in zip(cases, marks, strict=True)
    ]
