"""Closed forms of the SAPS paper's quantities: expected values that check the simulation, and bounds.

S subscribers are placed uniformly on the hosts of C clusters with H hosts each; for H None each has its own host.
"""

from __future__ import annotations

from math import ceil

from research.saps_paper.overlays import Setting


def occupied(bins: int, balls: int) -> float:
    """Return the expected number of bins that are not empty after `balls` are thrown uniformly."""
    return bins * (1 - (1 - 1 / bins) ** balls)


def keys(setting: Setting) -> float:
    """Return the expected number of brokers with a subscriber."""
    if setting.brokers is None:
        return setting.subscribers
    return occupied(setting.clusters * setting.brokers, setting.subscribers)


def alm(setting: Setting, topology: str) -> float:
    """Return the expected traffic of ALM on the topology ``tree`` or ``line``.

    Each broker but the publisher's gets one message. Sender and receiver are any two of the brokers, because the order
    of the keys does not depend on the place."""
    c, h = setting.clusters, setting.brokers
    mean = 2 * (1 - 1 / c) if topology == "tree" else (c * c - 1) / (3 * c)
    different = 1.0 if h is None else 1 - 1 / (c * h)  # two brokers are never on one host
    return (keys(setting) - 1) * mean / different


def ofm(setting: Setting, topology: str) -> float:
    """Return the expected traffic of OFM on the topology ``tree`` or ``line``.

    On the tree it is the number of clusters with subscribers, or 0 if there is only one. On the line it is the number
    of links between the outermost of them."""
    c, s = setting.clusters, setting.subscribers
    if topology == "tree":
        return occupied(c, s) - _alone(c, s)
    return sum(1 - (link / c) ** s - (1 - link / c) ** s for link in range(1, c))


def least_copies(setting: Setting) -> float:
    """Return the expected lower bound on the inter-cluster copies of any scheme without help from the switches.

    Each cluster with subscribers, except the publisher's, gets one copy."""
    return occupied(setting.clusters, setting.subscribers) - 1


def left_for_ofm(clusters: int) -> float:
    """Return the share of the least ALM traffic that OFM saves on the tree if all clusters have subscribers.

    OFM sends one message for each cluster; the least without OFM is two for each except the publisher's."""
    return 1 - clusters / (2 * (clusters - 1))


def involved(clusters: int, subscribers: int, topology: str) -> float:
    """Return the expected share of the switches that are in the OFM tree and need a flow entry (Figure 12, left)."""
    c, s = clusters, subscribers
    if topology == "line":
        return (ofm(Setting(c, s, None), topology) + 1) / c
    return (occupied(c, s) + 1 - _alone(c, s)) / (c + 1)


def buckets(subscribers: int, most: int) -> int:
    """Return the buckets that rewrite addresses at one edge switch: one for each host (Figure 12, right).

    A host has at most `most` subscribers."""
    return ceil(subscribers / most)


def _alone(clusters: int, subscribers: int) -> float:
    """Return the probability that one cluster has all subscribers."""
    return float(clusters) ** (1 - subscribers)
