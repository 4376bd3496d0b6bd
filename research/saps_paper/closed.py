"""Closed forms of the SAPS paper's quantities: expectations that check the simulation, and bounds.

S subscribers are placed uniformly on the hosts of C clusters with H hosts each (None: each on a host of its own).
"""

from __future__ import annotations

from math import ceil

from research.saps_paper.overlays import Setting


def occupied(bins: int, balls: int) -> float:
    """Expected number of bins that are not empty."""
    return bins * (1 - (1 - 1 / bins) ** balls)


def keys(setting: Setting) -> float:
    """Expected number of brokers with a subscriber."""
    if setting.brokers is None:
        return setting.subscribers
    return occupied(setting.clusters * setting.brokers, setting.subscribers)


def alm(setting: Setting, topology: str) -> float:
    """Expected traffic of ALM: each broker but the publisher's gets one message, and sender and receiver are any two
    of them, because the order of the keys has nothing to do with the place."""
    c, h = setting.clusters, setting.brokers
    mean = 2 * (1 - 1 / c) if topology == "tree" else (c * c - 1) / (3 * c)
    different = 1.0 if h is None else 1 - 1 / (c * h)  # two brokers are never on one host
    return (keys(setting) - 1) * mean / different


def ofm(setting: Setting, topology: str) -> float:
    """Expected traffic of OFM: on the tree the clusters with subscribers (none if there is but one), on the line the
    links between the outermost of them."""
    c, s = setting.clusters, setting.subscribers
    if topology == "tree":
        return occupied(c, s) - _alone(c, s)
    return sum(1 - (link / c) ** s - (1 - link / c) ** s for link in range(1, c))


def least_copies(setting: Setting) -> float:
    """Expected inter-cluster copies that no scheme without help from the switches can go below: each cluster with
    subscribers, but for the publisher's, gets one."""
    return occupied(setting.clusters, setting.subscribers) - 1


def left_for_ofm(clusters: int) -> float:
    """Share of the least ALM traffic that OFM saves on the tree if all clusters have subscribers: it sends one message
    for each cluster, where the least without it is two for each but the publisher's."""
    return 1 - clusters / (2 * (clusters - 1))


def involved(clusters: int, subscribers: int, topology: str) -> float:
    """Expected share of the switches that are in the OFM tree and need a flow entry (Figure 12, left)."""
    c, s = clusters, subscribers
    if topology == "line":
        return (ofm(Setting(c, s, None), topology) + 1) / c
    return (occupied(c, s) + 1 - _alone(c, s)) / (c + 1)


def buckets(subscribers: int, most: int) -> int:
    """Buckets that rewrite addresses at one edge switch: a host for every `most` subscribers (Figure 12, right)."""
    return ceil(subscribers / most)


def _alone(clusters: int, subscribers: int) -> float:
    """The probability that one cluster has all subscribers."""
    return float(clusters) ** (1 - subscribers)
