"""Lists the planners by name, with one interface: network and demands in, trees out."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Protocol

from saps.ofm.planner.balanced import THOROUGH, balanced
from saps.ofm.planner.frugal import frugal
from saps.ofm.planner.graph import Demands, Graph
from saps.ofm.planner.sdnps import sdnps
from saps.ofm.planner.shortest import mehlhorn, shortest_paths, takahashi_matsuyama
from saps.ofm.planner.trees import Trees


class Design(Protocol):
    """Returns a tree for each topic. Equal arguments give equal trees."""

    def __call__(self, graph: Graph, demands: Demands, /) -> Trees: ...


class Algorithm(NamedTuple):
    """A planner of many topics at once."""

    name: str
    design: Design
    by_load: bool
    """Whether the planner considers the load of other topics."""
    topic_tree: bool = False
    """Whether the planner uses the topic tree."""
    ours: bool = False


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("shortest paths", shortest_paths, False),
        Algorithm("Takahashi-Matsuyama", takahashi_matsuyama, False),
        Algorithm("Mehlhorn", mehlhorn, False),
        Algorithm("SDNPS", partial(sdnps, as_printed=True), True, True),
        Algorithm("SDNPS, mended", sdnps, True, True),
        Algorithm("cost first", frugal, False, ours=True),
        Algorithm("balanced", balanced, True, ours=True),
        Algorithm("balanced, thorough", partial(balanced, passes=THOROUGH), True, ours=True),
    )
}
"""All planners by name."""
