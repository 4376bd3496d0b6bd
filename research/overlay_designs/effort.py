"""Computes the order of the topics and the number of rounds, for the designs that improve themselves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from research.overlay_designs.interest import Interest


def largest_first(interest: Interest, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the topics that have nodes, the largest first; equally large topics are in random order."""
    sizes = np.diff(interest.nodes_at)
    shuffled = rng.permutation(interest.topics)
    order = shuffled[np.argsort(-sizes[shuffled], kind="stable")]
    return order[sizes[order] > 0]


def rounds_within(interest: Interest, work: float, most: int) -> int:
    """Return the number of rounds of sum(|V_t| ** 2) steps that fit into `work` steps, at most `most`."""
    steps = float((np.diff(interest.nodes_at).astype(float) ** 2).sum())
    return int(min(most, work // max(steps, 1.0)))
