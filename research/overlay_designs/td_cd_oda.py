"""TD-CD-ODA (Layazali, Oztoprak, Dogdu 2017, Algorithm 1): the node with the least topic distribution first.

The topic distribution of a node is the sum of its remaining topics' numbers of nodes, divided by the subscription size.
So the first stars are as small as a star for all topics of a node can be, and the first star has the maximum degree.
"""

from __future__ import annotations

import numpy as np

from research.overlay_designs.greedy_stars import DISTRIBUTION, greedy_stars
from research.overlay_designs.interest import Interest
from research.overlay_designs.overlay import Overlay


def td_cd_oda(interest: Interest, rng: np.random.Generator) -> Overlay:
    """Return the overlay by TD-CD-ODA, with one constant subscription size for all nodes; `rng` breaks ties."""
    return greedy_stars(interest, rng, DISTRIBUTION)
