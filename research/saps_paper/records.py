"""What is computed of the SAPS paper's section 4: the axes of its figures, and a record for each kind of point."""

from __future__ import annotations

from typing import NamedTuple

OVERLAYS, QUICK_OVERLAYS = 100, 10
"""Overlays of each point; 100 is the paper's number."""
BROKERS = 8
"""Hosts of a cluster (Figures 8 to 10)."""
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
"""On the line clusters are numbered by position, or at random; on the tree their position does not matter."""


class Record(NamedTuple):
    """One point of Figures 8 to 10."""

    figure: str
    topology: str
    clusters: int
    subscribers: int
    method: str
    traffic: float
    """Inter-cluster messages of a publication: mean of the overlays."""
    traffic_error: float
    """Standard error of that mean."""
    hops_mean: float
    """The most inter-cluster hops to a subscriber: mean of the overlays."""
    hops_max: int
    """Of these the greatest."""
    copies: float
    """Messages between brokers of different clusters, each counted once on either topology: mean."""
    closed_form: float | None
    """Expected traffic, if known; of cluster-aware ALM on the tree the least possible without OFM."""


class Reading(NamedTuple):
    """The headline under one reading: what OFM saves of ALM-LA's, tree, 16 clusters, 100 subscribers."""

    brokers: int | None
    publisher: str
    """``any`` broker with a subscriber, or the ``first`` of the range."""
    traffic: float
    hops_of_greatest: float
    hops_of_mean: float


class Series(NamedTuple):
    """The paper's three statements in one more series of overlays, other than those of the figures."""

    traffic: float
    hops: float
    """What OFM saves of ALM-LA's, of the greatest hops."""
    ratio: float
    """Line: greatest hops of ALM-LA with random numbers, against sorted ones."""


class Example(NamedTuple):
    """Figure 11 for the headline's scenes, all switches together; means of the overlays."""

    figure: str
    topology: str
    clusters: int
    subscribers: int
    paper_flow_entries: float
    """One on each switch of the tree."""
    paper_buckets: float
    """One for each broker: its address."""
    flow_entries: float
    """The product's, with one entry for all tree links of a switch; the loopback packets included."""
    flow_entries_per_port: float
    """The product's default: one entry for each tree link."""
    buckets: float
    """The product's: also one for each tree link of a switch."""


class Resources(NamedTuple):
    """One point of Figure 12."""

    figure: str
    topology: str
    clusters: int
    subscribers: int
    distribution: str
    method: str
    flow_entries: float
    """Switches with a flow entry, as a share of all."""
    buckets: float
    """Buckets that rewrite addresses, divided by the number of switches."""
    closed_form: float | None
    """Expected `flow_entries`, subscribers uniform."""


class Queries(NamedTuple):
    """One point of Figure 13."""

    figure: str
    method: str
    join_rate: float
    leave_rate: float
    queries: float
    """To OFGate per second, from Eq. (1) or (2)."""
    counted: float | None
    """The same as the running machine counts it; None: not measured."""


class Growth(NamedTuple):
    """One multicast by ALM-LA in 16 clusters, each subscriber a broker of its own."""

    subscribers: int
    copies: int
    """Inter-cluster messages."""
    crossings: int
    """The most of these in a row."""
    depth: int
    """The most messages in a row."""
    seconds: float
    """Of the simulation, the building of the overlay included."""
