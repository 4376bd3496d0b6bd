"""``/metrics`` in the formats of Prometheus and OpenMetrics, ``/healthz`` and ``/readyz``.

No metric has a label whose values grow with clients or topics: those are in ``/v1/topics``.
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
    """How often something took how long, ever."""

    bounds: Sequence[float]
    """Upper bounds of the buckets but the last, inclusive."""
    counts: Sequence[int]
    """By bucket; the last one has no bound."""
    total: float
    """Of all values."""


class Sample(NamedTuple):
    """One metric: plain, with values by one label, or a histogram."""

    name: str
    """Without ``saps_``, and a counter's without ``_total``."""
    text: str
    value: float | Mapping[str, float] | Histogram
    label: str = ""
    counter: bool = False


Samples = Callable[[], Iterable[Sample]]


class BrokerCollector(Collector):
    """Reads the broker when it is scraped."""

    def __init__(self, samples: Samples, about: Mapping[str, str]) -> None:
        """`about`: of the broker, for ``saps_build_info``."""
        self._samples = samples
        self._about = dict(about)

    def collect(self) -> Iterator[Metric]:
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
    """Answers scrapes."""

    def __init__(self, samples: Samples, about: Mapping[str, str]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(BrokerCollector(samples, about))
        ProcessCollector(registry=self._registry)

    async def handle(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})


class Health:
    """``/healthz``: the process answers. ``/readyz``: it can serve clients, or why not."""

    def __init__(self, obstacles: Callable[[], list[str]]) -> None:
        """`obstacles`: what keeps the broker from serving clients now."""
        self._obstacles = obstacles

    async def alive(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(self, _request: web.Request) -> web.Response:
        obstacles = self._obstacles()
        if obstacles:
            raise ProblemError(503, "Not ready", "; ".join(obstacles))
        return web.Response(text="ready\n")
