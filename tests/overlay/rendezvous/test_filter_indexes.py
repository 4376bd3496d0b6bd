"""What a broker keeps of filters is found by trie: the answers are those of a look at every filter."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.overlay.rendezvous.remote_filters import TOMBSTONE
from saps.overlay.rendezvous.streams import Phase
from saps.overlay.rendezvous.subscriber_registry import Baselines
from saps.simulator import SimBroker, Simulation
from saps.topics import matches, shared
from tests.drawn import schedules
from tests.overlay.scenes import FILTERS, TOPICS, Recorder, random_step

pytestmark = pytest.mark.simulation

ORIGINS = [("b0", 1), ("b0", 2), ("b1", 1)]
acts = st.lists(
    st.tuples(st.sampled_from(["set", "drop", "forget"]), st.sampled_from(FILTERS[:4]), st.sampled_from(ORIGINS))
)


@given(acts)
def test_shorthand_are_dropped_by_filter_and_by_broker(acts: list[tuple[str, str, tuple[str, int]]]) -> None:
    kept, model = Baselines(), dict[tuple[str, tuple[str, int]], int]()
    for number, (what, topic_filter, origin) in enumerate(acts):
        if what == "set":
            kept.set(topic_filter, origin, number)
            model[topic_filter, origin] = number
        elif what == "drop":
            kept.drop(topic_filter)
            model = {key: seq for key, seq in model.items() if key[0] != topic_filter}
        else:
            kept.forget(origin)
            model = {key: seq for key, seq in model.items() if key[1] != origin}
        assert all(kept.get(f, o) == model.get((f, o)) for f in FILTERS[:4] for o in ORIGINS)


def judge(broker: SimBroker) -> None:
    """Raise AssertionError if an index of this broker answers otherwise than a look at every filter."""
    own, publishers = broker.node.rendezvous.subscriptions, broker.node.rendezvous.publishers
    for topic in TOPICS:
        assert own.wants(topic) == any(matches(f, topic) for f in own.registrations)
        ready = any(matches(f, topic) for f, registration in own.registrations.items() if registration.ready)
        assert (own.baseline(topic, ("b0", 1)) is not None) == ready
    for stream in publishers.streams.values():
        if stream.phase is Phase.OPEN:
            publishers.route(stream)
            wanting = {
                entry.broker
                for topic_filter, entries in publishers.filters.of.items()
                if shared(topic_filter) is None and matches(topic_filter, stream.topic)
                for entry in entries.values()
                if entry.present
            }
            assert {*(stream.members or ()), *stream.behind} == wanting, stream.topic


@schedules(2)
@given(st.integers(0, 2**32 - 1))
def test_indexes_answer_as_a_look_at_every_filter(seed: int) -> None:
    rng = random.Random(seed)
    simulation = Simulation(seed)
    simulation.build(4, 2)
    recorder = Recorder(simulation)
    for _ in range(60):
        random_step(rng, recorder, churn=True)
        simulation.run(rng.choice([0, 0.01, 0.05]))
        for broker in simulation.alive():
            judge(broker)
    simulation.crash(rng.choice(simulation.alive()).name)
    simulation.run(TOMBSTONE + 25)
    for broker in simulation.alive():
        judge(broker)
        publishers = broker.node.rendezvous.publishers
        held = {name for entries in publishers.filters.of.values() for name in entries}
        assert held <= {other.name for other in simulation.alive()}
        assert held == set(publishers.filters.of_broker)
