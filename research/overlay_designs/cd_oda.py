"""CD-ODA, CD-ODA-I and CD-ODA-II (Onus, Richa 2010, 2011; TD-CD-ODA 2017, Eq. 1 to 3): constant diameter, few edges.

All three make nodes the centres of their topics' stars (`greedy_stars`), and differ in the score of a node.
"""

from __future__ import annotations

import numpy as np

from research.overlay_designs.greedy_stars import DENSITY, NEIGHBOURS, WEIGHT, greedy_stars
from research.overlay_designs.interest import Interest
from research.overlay_designs.overlay import Overlay


def cd_oda(interest: Interest, rng: np.random.Generator) -> Overlay:
    """Return the overlay by CD-ODA: the node with most neighbours (nodes that share a remaining topic) comes first.

    `rng` breaks ties."""
    return greedy_stars(interest, rng, NEIGHBOURS)


def cd_oda_i(interest: Interest, rng: np.random.Generator) -> Overlay:
    """Return the overlay by CD-ODA-I: the node of the greatest weight comes first.

    In the weight a neighbour counts once for each shared topic. `rng` breaks ties."""
    return greedy_stars(interest, rng, WEIGHT)


def cd_oda_ii(interest: Interest, rng: np.random.Generator) -> Overlay:
    """Return the overlay by CD-ODA-II: the node of the greatest density (weight divided by neighbours) comes first.

    `rng` breaks ties."""
    return greedy_stars(interest, rng, DENSITY)
