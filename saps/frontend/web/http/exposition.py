"""Samples in the formats of Prometheus and OpenMetrics, by the Prometheus client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from saps.frontend.web.http.metrics import Histogram, Sample, Samples


def registry(samples: Samples, about: Mapping[str, str]) -> CollectorRegistry:
    """Return a registry of these samples, ``saps_build_info`` and the metrics of the process."""
    made = CollectorRegistry()
    made.register(BrokerCollector(samples, about))
    ProcessCollector(registry=made)
    return made


def encoded(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Return all metrics in the format that the header Accept asks for, and its content type."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


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
