"""At least once, in order, within bounds: the queue for the upstream and the acknowledgements to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.upstream.outbox import MAX_FRUITLESS, Item, Outbox, Receipts
from saps.messages import Message


def item(number: int, qos: int = 1, size: int = 1, expires: float | None = None) -> Item:
    return Item(Message(str(number), bytes(size), qos), expires)


steps = st.lists(st.sampled_from(["put", "put", "take", "ack", "break"]), max_size=80)


@given(steps)
def test_below_its_bounds_the_outbox_loses_no_qos_1_and_repeats_in_order(steps: list[str]) -> None:
    outbox = Outbox(1000, 1000)
    put, taken, in_flight, acknowledged, breaks = 0, [], [], set(), 0
    for step in steps:
        if step == "put":
            outbox.put(item(put))
            put += 1
        elif step == "take" and (found := outbox.take(0.0)) is not None:
            in_flight.append(found)
            taken.append(int(found[1].message.topic))
        elif step == "ack" and in_flight:
            ticket, done = in_flight.pop(0)
            outbox.settled(ticket)
            acknowledged.add(int(done.message.topic))
            breaks = 0
        elif step == "break" and (not in_flight or breaks < MAX_FRUITLESS - 1):
            breaks += bool(in_flight)
            outbox.disconnected()
            in_flight = []
            taken = []
        assert taken == sorted(taken), "between two connections the order is that of the queue"
        assert len(outbox) == put - len(acknowledged)
    rest = [int(found[1].message.topic) for found in iter(lambda: outbox.take(0.0), None)]
    flying = [int(found.message.topic) for _, found in in_flight]
    assert sorted({*acknowledged, *flying, *rest}) == list(range(put))
    assert outbox.dropped == 0


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.booleans())))
def test_the_outbox_keeps_to_its_bounds_and_counts_what_it_drops(puts: list[tuple[int, int, bool]]) -> None:
    outbox = Outbox(5, 50)
    outbox.connected = True
    out = 0
    for number, (qos, size, take) in enumerate(puts):
        outbox.put(item(number, qos, size))
        if take and (found := outbox.take(0.0)) is not None:
            outbox.settled(found[0])
            out += 1
        assert len(outbox) <= 5
        assert outbox.fill <= 1
    assert len(outbox) + outbox.dropped + out == len(puts)


def test_qos_0_is_not_kept_while_the_upstream_is_away() -> None:
    outbox = Outbox(5, 50)
    outbox.put(item(0, qos=0))
    outbox.put(item(1, qos=1))
    assert (len(outbox), outbox.dropped) == (1, 1)


def test_the_newest_qos_1_message_takes_the_place_of_the_oldest() -> None:
    outbox = Outbox(2, 50)
    for number in range(3):
        outbox.put(item(number))
    assert [found[1].message.topic for found in iter(lambda: outbox.take(0.0), None)] == ["1", "2"]


def test_what_has_expired_is_not_sent() -> None:
    outbox = Outbox(5, 50)
    outbox.put(item(0, expires=1.0))
    outbox.put(item(1, expires=3.0))
    found = outbox.take(2.0)
    assert found is not None
    assert found[1].message.topic == "1"
    assert outbox.dropped == 1


def test_a_message_at_which_the_upstream_hangs_up_each_time_does_not_block_the_others() -> None:
    outbox = Outbox(5, 50)
    outbox.put(item(0))
    outbox.put(item(1))
    for _ in range(MAX_FRUITLESS):
        assert outbox.take(0.0) is not None
        outbox.disconnected()
    found = outbox.take(0.0)
    assert found is not None
    assert found[1].message.topic == "1"


@given(st.permutations(list(range(8))))
def test_receipts_go_out_in_the_order_of_the_messages_whatever_the_mesh_confirms_first(order: list[int]) -> None:
    receipts = Receipts()
    tickets = [receipts.received(packet_id) for packet_id in range(100, 108)]
    sent: list[int] = []
    for n, place in enumerate(order):
        sent += receipts.confirmed(tickets[place])
        unconfirmed = set(range(8)) - set(order[: n + 1])
        assert sent == list(range(100, 100 + min(unconfirmed, default=8)))
    assert len(receipts) == 0
