"""What the designs that improve themselves share: in which order topics are treated, and how often again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from research.overlay_designs.interest import Interest


def largest_first(interest: Interest, rng: np.random.Generator) -> NDArray[np.int64]:
    """The topics that have nodes, the one with most first; equally large ones in random order."""
    sizes = np.diff(interest.nodes_at)
    shuffled = rng.permutation(interest.topics)
    order = shuffled[np.argsort(-sizes[shuffled], kind="stable")]
    return order[sizes[order] > 0]


def rounds_within(interest: Interest, work: float, most: int) -> int:
    """How many rounds of sum(|V_t| ** 2) steps fit into `work` steps: at most `most`."""
    steps = float((np.diff(interest.nodes_at).astype(float) ** 2).sum())
    return int(min(most, work // max(steps, 1.0)))
