"""Recomputes Figures 8 to 10 of the SAPS paper (2016, section 4.1) with the product's keys and multicast trees.

The paper leaves four things open. The readings taken here meet its three numeric statements at once (the reductions by
71.6 % and 87.5 %, and "almost 4 times"). `readings` computes others for the headline.

- Brokers in a cluster: `BROKERS` hosts. A host with any subscriber is a broker with one key for the topic.
- Publisher: any broker with a subscriber; the range is divided from there to both sides.
- Multicast rule: that of the product (`saps.overlay.delivery.tree`), relay-free along Skip Graph neighbours.
- "Maximum" hops: the greatest of all overlays of a point.

A message between clusters counts two on the tree (to the upper switch and from it). On the line it counts one for each
link between their switches. All randomness comes from the seed. Each overlay has its own generator, so a run can be
repeated on any number of cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import sqrt
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np

from research.engine import Progress, Sweep, untold
from research.saps_paper import closed
from research.saps_paper.overlays import (
    Measure,
    Setting,
    generator,
    measure,
    members,
    multicast,
    ofm_on_line,
    ofm_on_tree,
    on_line,
    on_tree,
)
from research.saps_paper.records import (
    ALM,
    ALM_LA,
    ALM_LA_RANDOM,
    AWARE,
    AWARE_RANDOM,
    BROKERS,
    CLUSTER_COUNTS,
    CLUSTERS,
    FEW,
    METHODS,
    OFM,
    QUICK_CLUSTER_COUNTS,
    QUICK_SUBSCRIBERS,
    SUBSCRIBERS,
    Reading,
    Record,
    Series,
)
from saps.overlay.ring.keys import KeyOrder, place

Samples = dict[tuple[str, str], list[Measure]]
"""Measures of a setting's overlays, by topology and method."""

HEADLINE = Setting(CLUSTERS, FEW, BROKERS)
SERIES = 20
"""Further series of overlays in which the headline is computed."""


def settings(*, quick: bool = False) -> list[Setting]:
    """Return the settings of Figures 8 to 10; `quick`: fewer of them."""
    by_subscribers = QUICK_SUBSCRIBERS if quick else SUBSCRIBERS
    by_clusters = QUICK_CLUSTER_COUNTS if quick else CLUSTER_COUNTS
    several = [Setting(CLUSTERS, count, BROKERS) for count in by_subscribers]
    return [*several, *(Setting(count, FEW, BROKERS) for count in by_clusters if count != CLUSTERS)]


def publish_once(setting: Setting, rng: np.random.Generator) -> dict[tuple[str, str], Measure]:
    """Return the cost of one publication in one overlay, by topology and method."""
    everyone = members(setting, rng)
    publisher = everyone[rng.integers(len(everyone))]
    by_position = on_line(range(setting.clusters))
    at_random = on_line(rng.permutation(setting.clusters).tolist())
    alm = multicast(publisher, everyone, KeyOrder.ALM)
    la = multicast(publisher, everyone, KeyOrder.ALM_LA)
    aware = multicast(publisher, everyone, KeyOrder.CLUSTER)
    return {
        ("tree", ALM): measure(alm, on_tree),
        ("tree", ALM_LA): measure(la, on_tree),
        ("tree", OFM): ofm_on_tree(la),
        ("tree", AWARE): measure(aware, on_tree),
        ("line", ALM): measure(alm, by_position),
        ("line", ALM_LA): measure(la, by_position),
        ("line", ALM_LA_RANDOM): measure(la, at_random),
        ("line", OFM): ofm_on_line(la),
        ("line", AWARE): measure(aware, by_position),
        ("line", AWARE_RANDOM): measure(aware, at_random),
    }


class Part(NamedTuple):
    """Some overlays of a setting, by their numbers."""

    setting: Setting
    overlays: range


def sample(part: Part, seed: int) -> Samples:
    """Return the results of `publish_once` in each of the overlays."""
    (setting, overlays), found = part, Samples()
    for overlay in overlays:
        for what, measured in publish_once(setting, generator(setting, overlay, seed)).items():
            found.setdefault(what, []).append(measured)
    return found


def run(
    wanted: Sequence[Setting],
    overlays: int,
    seed: int,
    sweep: Sweep,
    done: Progress = untold,
    *,
    more: int = 0,
) -> tuple[dict[Setting, Samples], list[Series]]:
    """Return the samples of all settings, each in `overlays` overlays, and `more` further series of the headline."""
    parts = [Part(setting, range(overlays)) for setting in wanted]
    parts += [Part(HEADLINE, range(i * overlays, (i + 1) * overlays)) for i in range(1, more + 1)]
    found = sweep(partial(sample, seed=seed), parts, done)
    return dict(zip(wanted, found, strict=False)), [_series(series) for series in found[len(wanted) :]]


def records(measured: dict[Setting, Samples]) -> list[Record]:
    """Return the points of Figures 8, 9 and 10."""
    by_subscribers = sorted(setting for setting in measured if setting.clusters == CLUSTERS)
    by_clusters = sorted(setting for setting in measured if setting.subscribers == FEW)
    figures = ("8", "line", by_subscribers), ("9", "tree", by_subscribers), ("10", "tree", by_clusters)
    return [
        _record(figure, topology, setting, method, measured[setting][topology, method])
        for figure, topology, points in figures
        for setting in points
        for method in METHODS[topology]
    ]


def _record(figure: str, topology: str, setting: Setting, method: str, samples: list[Measure]) -> Record:
    traffic = [measured.traffic for measured in samples]
    return Record(
        figure,
        topology,
        setting.clusters,
        setting.subscribers,
        method,
        fmean(traffic),
        stdev(traffic) / sqrt(len(traffic)),
        fmean(measured.hops for measured in samples),
        _greatest(samples),
        fmean(measured.copies for measured in samples),
        _closed_form(topology, setting, method),
    )


def _closed_form(topology: str, setting: Setting, method: str) -> float | None:
    if method == ALM:
        return closed.alm(setting, topology)
    if method == OFM:
        return closed.ofm(setting, topology)
    if method == AWARE and topology == "tree":
        return 2 * closed.least_copies(setting)
    return None


def _greatest(samples: list[Measure]) -> int:
    return max(measured.hops for measured in samples)


def _series(samples: Samples) -> Series:
    alm_la, ofm = samples["tree", ALM_LA], samples["tree", OFM]
    return Series(
        1 - sum(m.traffic for m in ofm) / sum(m.traffic for m in alm_la),
        1 - _greatest(ofm) / _greatest(alm_la),
        _greatest(samples["line", ALM_LA_RANDOM]) / _greatest(samples["line", ALM_LA]),
    )


def readings(overlays: int, seed: int) -> list[Reading]:
    """Return the headline under other readings of the paper: numbers of hosts, and the publisher."""
    return [
        _reading(Setting(CLUSTERS, FEW, brokers), publisher, overlays, seed)
        for brokers in (1, 2, 4, BROKERS, 16, None)
        for publisher in ("any", "first")
    ]


def _reading(setting: Setting, publisher: str, overlays: int, seed: int) -> Reading:
    alm_la, ofm = [], []
    for overlay in range(overlays):
        rng = generator(setting, overlay, seed)
        everyone = members(setting, rng)
        root = everyone[rng.integers(len(everyone))]
        if publisher == "first":
            root = min(everyone, key=lambda broker: (place(broker, KeyOrder.ALM_LA), broker.name))
        tree = multicast(root, everyone, KeyOrder.ALM_LA)
        alm_la.append(measure(tree, on_tree))
        ofm.append(ofm_on_tree(tree))
    return Reading(
        setting.brokers,
        publisher,
        1 - sum(m.traffic for m in ofm) / sum(m.traffic for m in alm_la),
        1 - _greatest(ofm) / _greatest(alm_la),
        1 - sum(m.hops for m in ofm) / sum(m.hops for m in alm_la),
    )
