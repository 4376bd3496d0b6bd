"""Mappings: one name on the other side, the same name back, and no topic forwarded twice."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from saps.frontend.upstream.mapping import Mapping, maps_fault, overlap, to_mesh, to_upstream
from saps.topics import filter_fault, matches

TOPICS = ["/".join(levels) for depth in (1, 2, 3, 4) for levels in product("ab", repeat=depth)]
"""All topics of up to four levels: enough for filters of up to three over the same letters."""

levels = st.lists(st.sampled_from(["a", "b", "+", "#"]), min_size=1, max_size=3)
filters = levels.map("/".join).filter(lambda f: filter_fault(f) is None)
prefixes = st.sampled_from(["", "a/", "b/", "a/b/"])
mappings = st.builds(Mapping, filters, st.sampled_from(["in", "out", "both"]), st.just(1), prefixes, prefixes)


@given(filters, filters)
def test_filters_overlap_if_and_only_if_a_topic_matches_both(one: str, other: str) -> None:
    assert overlap(one, other) == any(matches(one, topic) and matches(other, topic) for topic in TOPICS)


@given(st.lists(mappings, min_size=1, max_size=3))
def test_mappings_that_are_taken_never_rename_a_topic_on_its_way_back(maps: list[Mapping]) -> None:
    assume(maps_fault(maps) is None)
    for topic in TOPICS:
        inward, outward = to_mesh(maps, topic), to_upstream(maps, topic)
        if inward is not None:
            back = to_upstream(maps, inward.topic)
            assert back is None or back.topic == topic
        if outward is not None:
            back = to_mesh(maps, outward.topic)
            assert back is None or back.topic == topic


@given(st.lists(mappings, min_size=1, max_size=3))
def test_mappings_that_are_taken_map_a_topic_once_in_each_direction(maps: list[Mapping]) -> None:
    assume(maps_fault(maps) is None)
    for topic in TOPICS:
        assert sum(m.inwards and matches(m.remote, topic) for m in maps) <= 1
        assert sum(m.outwards and matches(m.local, topic) for m in maps) <= 1


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (["# both", "a/# in"], "are both mapped in"),
        (["a/+ out", "+/b out"], "are both mapped out"),
        (["# in 1 site/", "site/# out"], "lead in a circle"),
        (["# in 1 a/", "# out 1 '' b/"], "lead in a circle"),
    ],
)
def test_mappings_that_would_loop_or_double_are_refused(lines: list[str], fault: str) -> None:
    assert fault in str(maps_fault([Mapping.parse(line) for line in lines]))


@pytest.mark.parametrize(
    "lines",
    [
        ["#"],
        ["# in 1 site/", "# out 1 site/"],
        ["a/# in", "a/# out"],
        ["a/# in", "b/# out"],
        ['t/# both 0 "" up/'],
        ["$SYS/# in 0 site/ ''", "cmd/# out"],
    ],
)
def test_usual_mappings_are_taken(lines: list[str]) -> None:
    assert maps_fault([Mapping.parse(line) for line in lines]) is None


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("", "is not PATTERN"),
        ("a b c d e f", "is not PATTERN"),
        ("a/# sideways", "direction 'sideways' must be"),
        ("a/# both 2", "not exactly once"),
        ("a/#/b", "# must stand alone"),
        ("a in 1 x/#/", "must not contain wildcards"),
        ("# in 1 site", "# must stand alone"),
        ("$share/g/a in", "shared subscriptions"),
        ("$SYS/# both", "can only be mapped in"),
        ("$SYS/# in", "nothing can be mapped to them"),
        ("a retain=maybe", "must be retain=keep or retain=drop"),
        ("a 'b", "No closing quotation"),
    ],
)
def test_a_bad_line_is_refused_with_its_fault(line: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault.replace("$", r"\$")):
        Mapping.parse(line)


def test_the_words_are_in_the_order_of_mosquittos_bridges() -> None:
    assert Mapping.parse('t/# in 0 site1/ "" retain=drop') == Mapping("t/#", "in", 0, "site1/", "", False)
    assert Mapping.parse("t/#") == Mapping("t/#", "both", 1, "", "", True)


def test_nobody_can_be_led_to_a_brokers_own_topics() -> None:
    maps = [Mapping.parse("# both 1 site/ plant/")]
    assert to_mesh(maps, "plant/t") == ("site/t", maps[0])
    open_maps = [Mapping.parse("# in 1 '' x/"), Mapping.parse("# out 1 y/ ''")]
    assert to_mesh(open_maps, "x/$SYS/fake") is None
    assert to_upstream(open_maps, "y/$SYS/fake") is None
