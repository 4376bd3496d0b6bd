"""Serves ``/metrics`` in the formats of Prometheus and OpenMetrics, ``/healthz`` and ``/readyz``.

No metric has a label whose number of values grows with clients or topics; ``/v1/topics`` has figures by topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from saps.frontend.web.http.problems import ProblemError


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


class BrokerCollector(Collector):
    """Collects the broker's samples at each scrape."""

    def __init__(self, samples: Samples, about: Mapping[str, str]) -> None:
        """`samples` returns the present samples. `about`: labels of ``saps_build_info``."""
        self._samples = samples
        self._about = dict(about)

    def collect(self) -> Iterator[Metric]:
        """Yield ``saps_build_info`` and all samples as metrics of the Prometheus client."""
        info = GaugeMetricFamily("saps_build_info", "What runs here.", labels=list(self._about))
        info.add_metric(list(self._about.values()), 1.0)
        yield info
        for sample in self._samples():
            if isinstance(sample.value, Histogram):
                yield _histogram(sample, sample.value)
                continue
            kind = CounterMetricFamily if sample.counter else GaugeMetricFamily
            labels = [sample.label] if sample.label else []
            family = kind(f"saps_{sample.name}", sample.text, labels=labels)
            if isinstance(sample.value, Mapping):
                for value, number in sample.value.items():
                    family.add_metric([value], number)
            else:
                family.add_metric([], sample.value)
            yield family


def _histogram(sample: Sample, value: Histogram) -> HistogramMetricFamily:
    labels = [*(f"{bound:g}" for bound in value.bounds), "+Inf"]
    buckets = [(label, float(count)) for label, count in zip(labels, accumulate(value.counts), strict=True)]
    return HistogramMetricFamily(f"saps_{sample.name}", sample.text, buckets=buckets, sum_value=value.total)


class Metrics:
    """Answers scrapes with the broker's samples and the metrics of the process."""

    def __init__(self, samples: Samples, about: Mapping[str, str]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(BrokerCollector(samples, about))
        ProcessCollector(registry=self._registry)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a scrape in the format that the header Accept asks for."""
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})


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
