"""The recorder finds every loss, duplicate, disorder and stray message, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from examples.smart_city.recorder import MAX_FAULTS, Fault, Kind, Path, Recorder
from examples.smart_city.scene import Broker, Publisher, Subscriber, group_of

B1, B2, B3 = Broker("b1", "tokyo/ward1"), Broker("b2", "tokyo/ward1"), Broker("b3", "tokyo/ward2")
TOPIC = "city/ward1/air/s1/no2"
SENSOR = Publisher("sensor", B1, "5.0", 0, (TOPIC,), rate=1)


def subscriber(*filters: str, name: str = "office", broker: Broker = B3) -> Subscriber:
    return Subscriber(name, broker, "3.1.1", 1, filters)


def recorder_with(*subscribers: Subscriber) -> Recorder:
    recorder = Recorder(group_of)
    for device in subscribers:
        recorder.subscribing(device)
        recorder.subscribed(device)
    return recorder


def arrive(recorder: Recorder, device: Subscriber, *sequences: int) -> list[Kind | None]:
    return [recorder.arrived(device, TOPIC, SENSOR.name, sequence, 0.001) for sequence in sequences]


def publish(recorder: Recorder, count: int, topic: str = TOPIC) -> list[int]:
    return [recorder.publishing(SENSOR, topic) for _ in range(count)]


def test_everything_once_and_in_order_is_sound() -> None:
    leadership = subscriber("city/+/air/#")
    recorder = recorder_with(leadership)
    assert publish(recorder, 3) == [1, 2, 3]
    assert not recorder.settled
    assert arrive(recorder, leadership, 1, 2, 3) == [None, None, None]
    assert recorder.settled
    assert recorder.sound
    assert recorder.faults() == []
    assert (recorder.total.published, recorder.total.expected, recorder.total.delivered) == (3, 3, 3)


def test_a_loss_in_the_middle_and_at_the_end_is_found() -> None:
    leadership = subscriber("city/#")
    recorder = recorder_with(leadership)
    publish(recorder, 4)
    arrive(recorder, leadership, 1, 3)
    assert recorder.total.missing == 2
    assert not recorder.sound
    assert recorder.faults() == [Fault(Kind.LOST, "office", "sensor", TOPIC, s) for s in (2, 4)]


def test_one_subscriber_without_anything_is_a_loss() -> None:
    leadership, display = subscriber("city/#"), subscriber(TOPIC, name="display")
    recorder = recorder_with(leadership, display)
    publish(recorder, 2)
    arrive(recorder, leadership, 1, 2)
    assert recorder.subscribers["display"].missing == 2
    assert recorder.subscribers["office"].missing == 0
    assert not recorder.sound


def test_a_duplicate_is_found_and_does_not_hide_a_loss() -> None:
    leadership = subscriber("city/#")
    recorder = recorder_with(leadership)
    publish(recorder, 2)
    assert arrive(recorder, leadership, 1, 1) == [None, Kind.DUPLICATED]
    assert (recorder.total.delivered, recorder.total.duplicated, recorder.total.missing) == (1, 1, 1)


def test_a_late_message_is_out_of_order_and_not_lost() -> None:
    leadership = subscriber("city/#")
    recorder = recorder_with(leadership)
    publish(recorder, 3)
    assert arrive(recorder, leadership, 1, 3, 2) == [None, None, Kind.OUT_OF_ORDER]
    assert (recorder.total.out_of_order, recorder.total.missing) == (1, 0)
    assert not recorder.sound
    assert arrive(recorder, leadership, 2) == [Kind.DUPLICATED]


def test_order_counts_per_topic_and_publisher() -> None:
    leadership = subscriber("city/#")
    recorder = recorder_with(leadership)
    other = Publisher("other", B2, "5.0", 0, (TOPIC,), rate=1)
    publish(recorder, 1)
    publish(recorder, 1, "city/ward1/air/s1/pm25")
    assert recorder.publishing(other, TOPIC) == 1
    recorder.arrived(leadership, TOPIC, "other", 1, 0.001)
    recorder.arrived(leadership, "city/ward1/air/s1/pm25", "sensor", 1, 0.001)
    arrive(recorder, leadership, 1)
    assert recorder.sound


def test_strays_are_found() -> None:
    leadership = subscriber("city/+/air/#")
    recorder = recorder_with(leadership)
    publish(recorder, 1)
    publish(recorder, 1, "city/ward1/alert/fire")
    arrive(recorder, leadership, 1)
    assert recorder.arrived(leadership, TOPIC, "sensor", 2, 0.001) is Kind.STRAY, "never published"
    assert recorder.arrived(leadership, TOPIC, "nobody", 1, 0.001) is Kind.STRAY, "unknown publisher"
    assert recorder.arrived(leadership, "city/ward1/alert/fire", "sensor", 1, 0.001) is Kind.STRAY, "not subscribed"
    recorder.stray(leadership, TOPIC)
    assert recorder.total.stray == recorder.subscribers["office"].stray == 4
    assert not recorder.sound


def test_a_latecomer_is_owed_what_is_published_after_its_suback() -> None:
    late = subscriber("city/+/air/#")
    recorder = recorder_with()
    publish(recorder, 2)
    recorder.subscribing(late)
    publish(recorder, 1)
    arrive(recorder, late, 2)
    recorder.subscribed(late)
    assert recorder.total.expected == 0
    publish(recorder, 2)
    arrive(recorder, late, 3, 4)
    assert (recorder.total.expected, recorder.total.delivered, recorder.total.early) == (2, 1, 2)
    assert [fault.sequence for fault in recorder.faults()] == [5]
    arrive(recorder, late, 5)
    assert recorder.sound


def test_a_latecomer_is_owed_topics_that_begin_later() -> None:
    late = subscriber("city/#")
    recorder = recorder_with()
    recorder.subscribing(late)
    publish(recorder, 1)
    recorder.subscribed(late)
    publish(recorder, 1, "city/ward1/alert/fire")
    assert recorder.total.expected == 1
    assert [fault.topic for fault in recorder.faults()] == ["city/ward1/alert/fire"]


def test_groups_paths_and_brokers_are_counted_apart() -> None:
    near, same, far = (subscriber("city/#", name=f"at-{broker.name}", broker=broker) for broker in (B1, B2, B3))
    recorder = recorder_with(near, same, far)
    publish(recorder, 1)
    for device in (near, same):
        arrive(recorder, device, 1)
    assert recorder.groups["air"].published == 1
    assert recorder.groups["air"].missing == 1
    assert {path: tally.missing for path, tally in recorder.paths.items()} == {
        Path.BROKER: 0,
        Path.CLUSTER: 0,
        Path.FAR: 1,
    }
    assert recorder.received == {"b1": 1}
    assert recorder.sent == {"b1": 1, "b2": 1}


def test_fault_details_are_bounded_and_all_are_counted() -> None:
    leadership = subscriber("city/#")
    recorder = recorder_with(leadership)
    publish(recorder, 3 * MAX_FAULTS)
    assert len(recorder.faults()) == MAX_FAULTS
    assert recorder.total.missing == 3 * MAX_FAULTS


@given(
    arrivals=st.lists(st.integers(1, 12), max_size=30),
    before=st.integers(0, 6),
    between=st.integers(0, 3),
    after=st.integers(0, 6),
)
def test_any_arrivals_are_judged_as_by_the_definition(
    arrivals: list[int], before: int, between: int, after: int
) -> None:
    late = subscriber("city/#")
    recorder = recorder_with()
    publish(recorder, before)
    recorder.subscribing(late)
    publish(recorder, between)
    recorder.subscribed(late)
    publish(recorder, after)
    last = before + between + after
    arrive(recorder, late, *arrivals)

    real = [sequence for sequence in arrivals if sequence <= last]
    owed = set(range(before + between + 1, last + 1))
    firsts = list(dict.fromkeys(real))
    disordered = sum(any(earlier > sequence for earlier in firsts[:i]) for i, sequence in enumerate(firsts))
    assert recorder.total.expected == len(owed)
    assert recorder.total.missing == len(owed - set(real))
    assert recorder.total.early == len(set(real) - owed)
    assert recorder.total.duplicated == len(real) - len(firsts)
    assert recorder.total.out_of_order == disordered
    assert recorder.total.stray == len(arrivals) - len(real)
    lost = [fault.sequence for fault in recorder.faults() if fault.kind is Kind.LOST]
    assert lost == sorted(owed - set(real))[: len(lost)]
