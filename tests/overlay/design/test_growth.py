"""Trees for all topics in plain Python, against the compiled designs and the bound."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.overlay.design.growth import WORN, Load, fresh, grow, load, overlay_of, trees_of
from saps.overlay.design.live import LiveOverlay

pytestmark = pytest.mark.slow

NODES = [f"n{number}" for number in range(9)]
TOPICS = st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from(NODES), unique=True))


@given(TOPICS, st.sampled_from([1, 2]))
def test_each_topic_has_a_tree_over_exactly_its_nodes(nodes_of: dict[str, list[str]], levels: int) -> None:
    overlay = grow(nodes_of, levels)
    assert {topic: sorted(tree.children) for topic, tree in overlay.trees.items()} == {
        topic: sorted(nodes) for topic, nodes in nodes_of.items() if nodes
    }
    assert all(tree.depth(node) <= levels for tree in overlay.trees.values() for node in tree.children)


@given(TOPICS, st.sampled_from([1, 2]))
def test_an_overlay_made_of_trees_lives_on(nodes_of: dict[str, list[str]], levels: int) -> None:
    overlay = grow(nodes_of, levels)
    again = overlay_of(trees_of(overlay), levels)
    assert trees_of(again) == trees_of(overlay)
    assert again.uses == {node: uses for node, uses in overlay.uses.items() if overlay.topics[node]}
    for node in list(again.topics):
        again.leave(node)
    assert not again.trees
    assert not any(again.uses.values())


def test_trees_that_are_too_deep_are_refused() -> None:
    with pytest.raises(ValueError, match="deeper than 1"):
        overlay_of({"t": ("a", {"b": "a", "c": "b"})}, 1)


@pytest.mark.parametrize(("levels", "at_most"), [(1, 1.1), (2, 1.4)])
def test_the_greatest_degree_is_near_that_of_the_compiled_designs(levels: int, at_most: float) -> None:
    np = pytest.importorskip("numpy")
    from research.overlay_designs.balanced_stars import balanced_stars
    from research.overlay_designs.interest import Interest
    from research.overlay_designs.two_level_trees import two_level_trees

    rng = random.Random(5)
    wanted = [sorted(rng.sample(range(60), 8)) for _ in range(80)]
    nodes_of = {topic: [node for node, topics in enumerate(wanted) if topic in topics] for topic in range(60)}
    design = {1: balanced_stars, 2: two_level_trees}[levels]
    compiled = design(Interest.from_sets(wanted, 60), np.random.default_rng(5)).degrees().max()
    assert load(grow(nodes_of, levels)).maximum_degree <= at_most * compiled


def test_mending_alone_is_worse_than_growing() -> None:
    """So a mesh grows its trees anew now and then."""
    rng = random.Random(6)
    nodes_of = {topic: [node for node in range(60) if rng.random() < 0.2] for topic in range(50)}
    mended: LiveOverlay[int, int] = LiveOverlay(1)
    for node in range(60):
        mended.join(node, [topic for topic, nodes in nodes_of.items() if node in nodes])
    assert load(grow(nodes_of, 1)) < load(mended)


@pytest.mark.parametrize("levels", [1, 2])
def test_a_design_that_lives_on_through_1000_replacements_stays_near_a_fresh_one(levels: int) -> None:
    """A node leaves, and another comes with topics of its own. Left alone, a design wears."""
    rng = random.Random(8)
    wanted = {node: rng.sample(range(60), 10) for node in range(60)}
    living, left_alone = grow(by_topic(wanted), levels), grow(by_topic(wanted), levels)
    before, worst = fresh(living), 0.0
    for number in range(60, 1060):
        gone = rng.choice(list(wanted))
        del wanted[gone]
        wanted[number] = rng.sample(range(60), 10)
        for overlay in (living, left_alone):
            overlay.leave(gone)
            overlay.join(number, wanted[number])
        if before.worn(living):
            living = grow(by_topic(wanted), levels)
            before = fresh(living)
        if number % 200 == 0:
            best = load(grow(by_topic(wanted), levels))  # of these nodes, not of those when it was grown
            assert times(load(living), best) <= 1.1 * WORN
            worst = max(worst, times(load(left_alone), best))
    assert worst > 1.15 * WORN


def by_topic(wanted: dict[int, list[int]]) -> dict[int, list[int]]:
    """Topic -> its nodes."""
    return {topic: [node for node, topics in wanted.items() if topic in topics] for topic in range(60)}


def times(load: Load, best: Load) -> float:
    """How much worse the degree or the links are."""
    return max(load.maximum_degree / best.maximum_degree, load.links / best.links)


def test_a_mesh_with_a_designed_overlay_needs_no_numpy() -> None:
    program = "import sys; sys.modules['numpy'] = None; import saps.overlay.node"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
