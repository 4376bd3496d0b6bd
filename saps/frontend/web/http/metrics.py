"""Serves ``/metrics`` in the formats of Prometheus and OpenMetrics, ``/healthz`` and ``/readyz``.

No metric has a label whose number of values grows with clients or topics; ``/v1/topics`` has figures by topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web

from saps.frontend.web.http.problems import ProblemError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class Histogram(NamedTuple):
    """A histogram of durations or sizes since the start."""

    bounds: Sequence[float]
    """Inclusive upper bounds of all buckets except the last."""
    counts: Sequence[int]
    """Number of values in each bucket; the last bucket has no bound."""
    total: float
    """Sum of all values."""


class Sample(NamedTuple):
    """One metric: a number, numbers by the values of one label, or a histogram."""

    name: str
    """Name without the prefix ``saps_``, and a counter's without the suffix ``_total``."""
    text: str
    """Description of the metric."""
    value: float | Mapping[str, float] | Histogram
    label: str = ""
    """Name of the label, if `value` is a mapping."""
    counter: bool = False
    """Whether the metric is a counter; otherwise a gauge."""


Samples = Callable[[], Iterable[Sample]]


class Metrics:
    """Answers scrapes with the broker's samples and the metrics of the process."""

    def __init__(self, samples: Samples, about: Mapping[str, str]) -> None:
        """`samples` returns the present samples. `about`: labels of ``saps_build_info``."""
        self._samples = samples
        self._about = about
        self._registry: CollectorRegistry | None = None

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a scrape in the format that the header Accept asks for."""
        from saps.frontend.web.http import exposition  # here: 1 MiB that a program nobody scrapes does without

        if self._registry is None:
            self._registry = exposition.registry(self._samples, self._about)
        body, content_type = exposition.encoded(self._registry, request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})


class Health:
    """Answers ``/healthz`` (the process is alive) and ``/readyz`` (the broker can serve clients, or a 503 with the
    reasons)."""

    def __init__(self, obstacles: Callable[[], list[str]]) -> None:
        """`obstacles` returns the reasons why the broker cannot serve clients now; none if it can."""
        self._obstacles = obstacles

    async def alive(self, _request: web.Request) -> web.Response:
        """Answer ``/healthz``."""
        return web.Response(text="ok\n")

    async def ready(self, _request: web.Request) -> web.Response:
        """Answer ``/readyz``. Raises `ProblemError` (503) with the obstacles."""
        obstacles = self._obstacles()
        if obstacles:
            raise ProblemError(503, "Not ready", "; ".join(obstacles))
        return web.Response(text="ready\n")
