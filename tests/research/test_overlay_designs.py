"""The design algorithms against the papers' words, against brute force, and against what each promises."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from research.overlay_designs.balanced_stars import balanced_stars, star_bound
from research.overlay_designs.greedy_merge import greedy_merge
from research.overlay_designs.greedy_stars import (
    DENSITY,
    DISTRIBUTION,
    DISTRIBUTION_OF_ALL,
    DISTRIBUTION_OF_REMAINING,
    NEIGHBOURS,
    WEIGHT,
    greedy_stars,
)
from research.overlay_designs.interest import Interest
from research.overlay_designs.overlay import DISCONNECTED, Overlay, statistics, topic_diameters
from research.overlay_designs.registry import ALGORITHMS, Algorithm
from research.overlay_designs.two_d_oda import two_d_oda
from tests.research import overlay_references as references

pytestmark = pytest.mark.slow


@st.composite
def interests(draw: st.DrawFn, nodes: int = 9, topics: int = 6) -> Interest:
    """Any small interest matrix: nodes without topics and topics without nodes too."""
    rows = draw(st.lists(st.sets(st.integers(0, topics - 1)), max_size=nodes))
    return Interest.from_sets(rows, topics)


def edges_of(overlay: Overlay) -> references.Edges:
    return {(u, v) for u, v in overlay.edges.tolist()}


def generator(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
@given(interest=interests(nodes=20))
def test_topic_connected_within_the_promised_diameter(algorithm: Algorithm, interest: Interest) -> None:
    overlay = algorithm.design(interest, generator())
    diameters = topic_diameters(interest, overlay).tolist()
    assert diameters == references.diameters(interest, edges_of(overlay))
    assert min(diameters) != DISCONNECTED
    assert algorithm.diameter is None or max(diameters) <= algorithm.diameter
    wants = references.topics_of(interest)
    assert all(wants[u] & wants[v] for u, v in edges_of(overlay))
    assert edges_of(algorithm.design(interest, generator())) == edges_of(overlay)


@given(interests())
def test_gm_adds_the_edge_that_merges_most(interest: Interest) -> None:
    assert edges_of(greedy_merge(interest, generator())) == references.greedy_merge(interest)


@given(interests(nodes=20))
def test_gm_with_random_ties_makes_no_cycle_for_a_topic_it_does_not_need(interest: Interest) -> None:
    overlay = greedy_merge(interest, generator(), random_ties=True)
    assert statistics(interest, overlay).topic_connected
    sizes = np.diff(interest.nodes_at)
    assert len(overlay.edges) <= np.maximum(sizes - 1, 0).sum()


def test_gm_with_random_ties_makes_no_hub() -> None:
    interest = Interest.uniform(5000, 500, 10, np.random.default_rng(1))
    degrees = [greedy_merge(interest, generator(), random_ties=ties).degrees().max() for ties in (False, True)]
    assert degrees[1] < 0.5 * degrees[0]


def _weight(v: int, remaining: set[int], wants: list[set[int]]) -> int:
    return sum(len(wants[u] & wants[v] & remaining) for u in range(len(wants)))


def _neighbours(v: int, remaining: set[int], wants: list[set[int]]) -> int:
    return sum(bool(wants[u] & wants[v] & remaining) for u in range(len(wants)) if u != v)


SCORES: dict[int, Callable[[int, set[int], list[set[int]]], Fraction]] = {
    NEIGHBOURS: lambda v, left, wants: Fraction(_neighbours(v, left, wants)),
    WEIGHT: lambda v, left, wants: Fraction(_weight(v, left, wants)),
    DENSITY: lambda v, left, wants: Fraction(_weight(v, left, wants), 1 + _neighbours(v, left, wants)),
    DISTRIBUTION: lambda v, left, wants: Fraction(-_weight(v, left, wants)),
    DISTRIBUTION_OF_REMAINING: lambda v, left, wants: Fraction(-_weight(v, left, wants), len(wants[v] & left)),
    DISTRIBUTION_OF_ALL: lambda v, left, wants: Fraction(-_weight(v, wants[v], wants)),
}


@pytest.mark.parametrize("score", SCORES)
@given(interest=interests())
def test_greedy_stars_take_the_best_node(score: int, interest: Interest) -> None:
    rank = generator().permutation(interest.nodes).tolist()
    expected = references.greedy_stars(interest, rank, SCORES[score])
    assert edges_of(greedy_stars(interest, generator(), score)) == expected


@pytest.mark.parametrize("as_printed", [False, True])
@given(interest=interests())
def test_2d_oda_takes_the_densest_star(as_printed: bool, interest: Interest) -> None:
    rank = generator().permutation(interest.subscriptions).tolist()
    expected = references.two_d_oda(interest, rank, as_printed=as_printed)
    assert edges_of(two_d_oda(interest, generator(), as_printed=as_printed)) == expected


@given(interests(nodes=6, topics=4))
def test_balanced_stars_are_near_the_best_stars(interest: Interest) -> None:
    found = statistics(interest, balanced_stars(interest, generator())).maximum_degree
    best = references.least_maximum_of_stars(interest)
    assert star_bound(interest) <= best <= found <= best + 1


@pytest.mark.parametrize("name", ALGORITHMS)
def test_without_numba_the_same_overlay(name: str) -> None:
    program = (
        "import sys; sys.modules['numba'] = None\n"
        "import numpy as np\n"
        "from saps.overlay.design.compiled import COMPILED\n"
        "from research.overlay_designs.interest import Interest\n"
        "from research.overlay_designs.registry import ALGORITHMS\n"
        "interest = Interest.uniform(30, 12, 4, np.random.default_rng(3))\n"
        f"overlay = ALGORITHMS[{name!r}].design(interest, np.random.default_rng(4))\n"
        "print(COMPILED, overlay.edges.tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    interest = Interest.uniform(30, 12, 4, np.random.default_rng(3))
    overlay = ALGORITHMS[name].design(interest, np.random.default_rng(4))
    assert done.stdout.strip() == f"False {overlay.edges.tolist()}"
    assert done.stderr == ""


@given(st.integers(0, 12), st.integers(1, 9), st.data())
def test_uniform_interest_has_distinct_topics(nodes: int, topics: int, data: st.DataObject) -> None:
    subscriptions = data.draw(st.integers(0, topics))
    interest = Interest.uniform(nodes, topics, subscriptions, generator())
    assert [len(row) for row in references.topics_of(interest)] == [subscriptions] * nodes
    assert (interest.nodes, interest.topics, interest.subscriptions) == (nodes, topics, nodes * subscriptions)


def test_uniform_interest_is_uniform() -> None:
    interest = Interest.uniform(60_000, 6, 2, generator())
    pairs = interest.topics_of.reshape(-1, 2)
    counts = np.bincount(pairs[:, 0] * 6 + pairs[:, 1])
    assert len(counts[counts > 0]) == 15
    assert counts[counts > 0].min() > 3700  # of 4000 expected, 4.9 standard deviations
    assert counts.max() < 4300


@given(interests())
def test_both_views_of_the_interest_matrix_agree(interest: Interest) -> None:
    wants = references.topics_of(interest)
    for t in range(interest.topics):
        assert interest.nodes_of_topic(t).tolist() == [v for v in range(interest.nodes) if t in wants[v]]
    for v in range(interest.nodes):
        numbers = interest.subscription_of[interest.topics_at[v] : interest.topics_at[v + 1]]
        assert interest.nodes_of[numbers].tolist() == [v] * len(numbers)


@pytest.mark.parametrize("pair", [(3, 0), (0, 2), (-1, 0)])
def test_interest_outside_the_matrix_is_refused(pair: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="outside"):
        Interest.from_pairs(np.array([pair]), nodes=3, topics=2)


def test_more_subscriptions_than_topics_are_refused() -> None:
    with pytest.raises(ValueError, match="5 different topics of 4"):
        Interest.uniform(3, 4, 5, generator())


def test_statistics_of_an_overlay_that_is_not_connected() -> None:
    interest = Interest.from_sets([{0}, {0}, {0, 1}, {1}])
    figures = statistics(interest, Overlay.of(4, np.array([(1, 0), (0, 1), (2, 3), (2, 2)])))
    assert figures == (figures.__class__)(edges=2, average_degree=1.0, maximum_degree=1, diameter=DISCONNECTED)
    assert not figures.topic_connected
