"""Applies a policy to the network: removes the switches of clusters that must not carry a topic.

SDNPS 2016, 3.3: "the routing path should not include clusters constrained by" the strategy. Since planners see only the
rest of the network, every planner obeys. As in the paper, brokers that a policy names stay in the trees; they give the
topic to nobody.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from saps.ofm.network.topology import BrokerAddress, Topology
from saps.ofm.trees.growth import reachable
from saps.policy.model import Policy


class BarredError(ValueError):
    """A policy and an intent for an OFM that contradict each other; the text says why."""


class _View(NamedTuple):
    whole: Topology
    version: int
    rest: Topology


class Barriers:
    """The network behind the barriers of `policy`. A topic to which nothing is forbidden costs nothing."""

    def __init__(self) -> None:
        self.policy: Policy | None = None
        self._views: dict[frozenset[int], _View] = {}

    def around(self, topic: str, topology: Topology) -> Topology:
        """Return the part of the network that may carry a topic: `topology` itself if nothing is forbidden. The caller
        must not change it. Raises `UnknownSwitchesError` (a `ValueError`)."""
        if self.policy is None:
            return topology
        verdict = self.policy.verdict(topic)
        if not verdict.clusters:
            return topology
        barred = self.policy.barred(verdict).intersection(topology.switches)
        view = self._views.get(barred)
        if view is None or view.whole is not topology or view.version != topology.version:
            rest = topology.copy()
            for dpid in barred:
                rest.switch_down(dpid)
            view = self._views[barred] = _View(topology, topology.version, rest)
        return view.rest

    def check(self, topic: str, topology: Topology, brokers: Collection[BrokerAddress]) -> None:
        """Check that the barriers cut off no broker that the network can reach. Raises `BarredError` if such a broker
        is in a barred cluster or behind one."""
        rest = self.around(topic, topology)
        if self.policy is None or rest is topology:
            return
        cut = reachable(topology, brokers) - reachable(rest, brokers)
        if cut:
            raise BarredError(f"{_reason(self.policy, topic)}, and no other path leads to {_macs(cut)}")


def _reason(policy: Policy, topic: str) -> str:
    clusters = ", ".join(sorted(policy.verdict(topic).clusters))
    return f"policy {policy.version} forbids {clusters} to carry {topic!r}"


def _macs(brokers: Collection[BrokerAddress]) -> str:
    return ", ".join(sorted({broker.mac for broker in brokers}))
