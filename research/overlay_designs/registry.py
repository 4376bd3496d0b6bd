"""The table of the design algorithms by name. Each takes an interest matrix and returns an overlay."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from research.overlay_designs.balanced_stars import balanced_stars
from research.overlay_designs.cd_oda import cd_oda, cd_oda_i, cd_oda_ii
from research.overlay_designs.greedy_merge import greedy_merge
from research.overlay_designs.interest import Interest
from research.overlay_designs.overlay import Overlay
from research.overlay_designs.td_cd_oda import td_cd_oda
from research.overlay_designs.two_d_oda import two_d_oda
from research.overlay_designs.two_level_trees import two_centres, two_level_trees


class Design(Protocol):
    """Returns a topic-connected overlay. Equal interest and generator state give equal overlays."""

    def __call__(self, interest: Interest, rng: np.random.Generator, /) -> Overlay: ...


class Algorithm(NamedTuple):
    """A design with its guarantee."""

    name: str
    """Name in the papers, or our own."""
    design: Design
    diameter: int | None
    """Upper bound of the topic diameters; None without a guarantee."""
    ours: bool = False
    """Whether the design is our own."""


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("GM", greedy_merge, None),
        Algorithm("CD-ODA", cd_oda, 2),
        Algorithm("CD-ODA-I", cd_oda_i, 2),
        Algorithm("CD-ODA-II", cd_oda_ii, 2),
        Algorithm("2D-ODA", two_d_oda, 2),
        Algorithm("TD-CD-ODA", td_cd_oda, 2),
        Algorithm("balanced stars", balanced_stars, 2, ours=True),
        Algorithm("two centres", two_centres, 3, ours=True),
        Algorithm("two-level trees", two_level_trees, 4, ours=True),
    )
}
"""All algorithms by name."""
