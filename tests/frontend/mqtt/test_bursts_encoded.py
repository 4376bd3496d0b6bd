"""A burst is encoded as a whole, and is to the client what its publications are one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from saps.agents.user import SubscriberAgent
from saps.frontend.mqtt.outgoing import copy, form_for, form_for_burst, numbered_burst, plain, plain_burst
from saps.frontend.mqtt.packets import V5, V311
from saps.hub import Burst, Hub, Publication
from saps.messages import MessageRun
from saps.subscriptions import Subscription, Target

payloads = st.lists(
    st.one_of(st.binary(max_size=3), st.sampled_from([b"x" * 120, b"y" * 16_380])), min_size=1, max_size=4
)
topics = st.sampled_from(["a", "a/b", "é" * 70])
subscriptions = st.builds(
    Subscription,
    st.just("#"),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
    identifier=st.sampled_from([None, 7, 300]),
)


@given(
    runs=st.lists(st.tuples(topics, payloads), min_size=1, max_size=3),
    qos=st.integers(0, 2),
    subscription=subscriptions,
    version=st.sampled_from([V311, V5]),
    packet_id=st.integers(1, 60_000),
)
def test_a_burst_is_its_publications(
    runs: list[tuple[str, list[bytes]]], qos: int, subscription: Subscription, version: int, packet_id: int
) -> None:
    burst = Burst([MessageRun(topic, qos, list(each)) for topic, each in runs])
    target = Target(SubscriberAgent(Hub(), "c"), (subscription,))
    form = form_for_burst(burst, target)
    singles = [Publication(message) for run in burst.runs for message in run.messages]
    assert len(burst) == len(singles)
    assert {form_for(single, target) for single in singles} == {form}
    if not form.qos:
        assert plain_burst(burst, form, version) == b"".join(plain(single, form, version, 0.0) for single in singles)
        return
    encoded, copies = numbered_burst(burst, form, version, packet_id)
    alone = [copy(single, form, version, 0.0) for single in singles]
    assert encoded == b"".join(each.with_id(number) for number, each in enumerate(alone, packet_id))
    assert [each.publication.message for each in copies] == [single.message for single in singles]
    assert [each.duplicate(1) for each in copies] == [each.duplicate(1) for each in alone]
    assert [(each.form, each.size) for each in copies] == [(each.form, each.size) for each in alone]
