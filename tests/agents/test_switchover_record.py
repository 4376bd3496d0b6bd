"""The account that the measurements of the switch-over keep: it sees every loss, repetition and overtaking."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.switchover.record import Flow, Tally


@st.composite
def receiver(draw: st.DrawFn) -> tuple[int, int, list[int]]:
    """The first number owed, the last published, and what came: from some number on, with losses and repetitions."""
    owed = draw(st.integers(1, 5))
    last = draw(st.integers(owed, 40))
    first = draw(st.integers(1, owed))
    numbers = [number for number in range(first, last + 1) if draw(st.integers(0, 9))]
    for _ in range(draw(st.integers(0, 3))):
        if numbers:
            numbers.insert(draw(st.integers(0, len(numbers))), draw(st.sampled_from(numbers)))
    return owed, last, numbers


@given(receiver(), st.data())
def test_each_fault_is_counted_once_however_the_arrivals_are_divided(
    case: tuple[int, int, list[int]], data: st.DataObject
) -> None:
    owed, last, numbers = case
    flow = Flow(owed)
    rest = numbers
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        flow.take(rest[:size], 1.0)
        rest = rest[size:]
    found = flow.tally(last)
    assert found.delivered + found.duplicated == len(numbers)
    assert found.lost == len(set(range(owed, last + 1)) - set(numbers))
    in_order_once = numbers == sorted(set(numbers))
    assert (found.wrong == 0) == (in_order_once and found.lost == 0)


def test_the_longest_gap_is_from_arrival_to_arrival() -> None:
    flow = Flow(1)
    for number, at in enumerate([1.0, 1.5, 4.0, 4.25], 1):
        flow.take([number], at)
    assert (flow.gap, flow.gap_end) == (2.5, 4.0)
    flow.since(5.0)
    flow.take([5], 5.75)
    assert flow.gap == 0.75
    assert flow.tally(6) == Tally(delivered=5, lost=1)
