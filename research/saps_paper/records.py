"""The axes of the figures in the SAPS paper's section 4, and a record for each kind of point."""

from __future__ import annotations

from typing import NamedTuple

OVERLAYS, QUICK_OVERLAYS = 100, 10
"""Overlays for each point; 100 is the paper's number."""
BROKERS = 8
"""Hosts in a cluster (Figures 8 to 10)."""
CLUSTERS = 16
SUBSCRIBERS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
QUICK_SUBSCRIBERS = (10, 100, 1000)
CLUSTER_COUNTS = (4, 8, 16, 32, 64, 128)
QUICK_CLUSTER_COUNTS = (4, 16, 128)
FEW = 100
"""Subscribers of Figure 10 and of the headline."""

ALM, ALM_LA, ALM_LA_RANDOM, OFM = "ALM", "ALM-LA", "ALM-LA, random numbers", "OFM"
AWARE, AWARE_RANDOM = "cluster-aware ALM", "cluster-aware ALM, random numbers"
METHODS = {"line": (ALM, ALM_LA, ALM_LA_RANDOM, OFM, AWARE, AWARE_RANDOM), "tree": (ALM, ALM_LA, OFM, AWARE)}
"""Methods by topology. On the line clusters are numbered by position or at random; on the tree numbers do not matter.
"""


class Record(NamedTuple):
    """One point of Figures 8 to 10."""

    figure: str
    topology: str
    clusters: int
    subscribers: int
    method: str
    traffic: float
    """Inter-cluster messages of a publication, as the topology counts them; mean of the overlays."""
    traffic_error: float
    """Standard error of `traffic`."""
    hops_mean: float
    """Most inter-cluster hops to any subscriber; mean of the overlays."""
    hops_max: int
    """Most inter-cluster hops to any subscriber in any overlay."""
    copies: float
    """Messages between brokers of different clusters, each counted once on either topology; mean of the overlays."""
    closed_form: float | None
    """Expected traffic, if known. For cluster-aware ALM on the tree it is the least possible without OFM."""


class Reading(NamedTuple):
    """The headline under one reading: shares that OFM saves of ALM-LA's cost (tree, 16 clusters, 100 subscribers)."""

    brokers: int | None
    """Hosts in a cluster; None: each subscriber has a host of its own."""
    publisher: str
    """``any`` broker with a subscriber, or the ``first`` of the range."""
    traffic: float
    """Share of the traffic saved."""
    hops_of_greatest: float
    """Share of the greatest hops of all overlays saved."""
    hops_of_mean: float
    """Share of the mean of the overlays' greatest hops saved."""


class Series(NamedTuple):
    """The paper's three statements in a further series of overlays, different from those of the figures."""

    traffic: float
    """Share of ALM-LA's traffic that OFM saves."""
    hops: float
    """Share of ALM-LA's greatest hops that OFM saves."""
    ratio: float
    """Greatest hops of ALM-LA on the line with random cluster numbers, divided by those with sorted numbers."""


class Example(NamedTuple):
    """Figure 11 for the headline's scenes: sums over all switches, means of the overlays."""

    figure: str
    topology: str
    clusters: int
    subscribers: int
    paper_flow_entries: float
    """Flow entries as the paper counts them: one on each switch of the tree."""
    paper_buckets: float
    """Buckets as the paper counts them: one for each broker, with its address."""
    flow_entries: float
    """The product's flow entries, with one for all tree links of a switch; entries for loopback packets included."""
    flow_entries_per_port: float
    """The product's flow entries by default, with one for each tree link."""
    buckets: float
    """The product's buckets, which include one for each tree link of a switch."""


class Resources(NamedTuple):
    """One point of Figure 12."""

    figure: str
    topology: str
    clusters: int
    subscribers: int
    distribution: str
    method: str
    flow_entries: float
    """Share of the switches that have a flow entry."""
    buckets: float
    """Buckets that rewrite addresses, divided by the number of switches."""
    closed_form: float | None
    """Expected `flow_entries` for uniform subscribers; None for other distributions."""


class Queries(NamedTuple):
    """One point of Figure 13."""

    figure: str
    method: str
    join_rate: float
    leave_rate: float
    queries: float
    """Queries to OFGate a second by Eq. (1) or (2)."""
    counted: float | None
    """Queries a second as counted at the running state machine; None: not counted."""


class Growth(NamedTuple):
    """One multicast by ALM-LA in 16 clusters, with a broker for each subscriber."""

    subscribers: int
    copies: int
    """Inter-cluster messages."""
    crossings: int
    """Most inter-cluster messages on a path from the publisher."""
    depth: int
    """Most messages on a path from the publisher."""
    seconds: float
    """Duration of the simulation with the construction of the overlay."""
