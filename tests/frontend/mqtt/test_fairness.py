"""What one client or address takes does not keep others out, and is given back: each attack here once worked."""

from __future__ import annotations

import gc
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import (
    V5,
    V311,
    Connack,
    Connect,
    Disconnect,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
)
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.connection.connection import Connection
from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.session.session import Session
from saps.messages import Message
from saps.routing.batch import Batch
from saps.routing.token_bucket import Buckets, TokenBucket
from tests.frontend.mqtt.bench import Bench, Client

pytestmark = pytest.mark.one_broker("each broker has its budgets")

STAYING = {"clean_start": False, "properties": {Property.SESSION_EXPIRY: 600}}


def at(bench: Bench, address: str, name: str = "", **fields: object) -> Client:
    """A client from an address; connected, if it has a name."""
    client = Client(bench)
    client.connection.peer = f"{address}:1"
    if name:
        client.connect(name, **fields)
    return client


# --- unfinished packets ---------------------------------------------------------------------------------------------


def test_a_connect_that_is_too_large_is_refused_by_its_first_bytes() -> None:
    """400 unfinished ones of 1 MB cost 380 MiB."""
    bench = Bench()
    client = Client(bench)
    packet = encode(Connect("c", V5, username="u", password=bytes(20_000)), V5)
    client.send_bytes(packet[:16])
    assert client.closed
    assert client.expect(Connack).reason == Reason.PACKET_TOO_LARGE
    assert not bench.frontend.fairness.unfinished.used


def test_a_client_that_is_let_in_may_send_larger_packets() -> None:
    client = Bench().client()
    client.send(Publish("a", bytes(100_000)))
    assert not client.closed


def test_unfinished_packets_of_all_clients_have_a_total_and_who_has_most_of_them_goes() -> None:
    bench = Bench(Limits(maximum_unfinished_total=1 << 20))
    start = encode(Publish("a", bytes(500_000)), V5)[:200_000]
    honest = at(bench, "10.0.0.1", "honest")
    honest.send_bytes(start)
    attackers = [at(bench, "10.0.0.2", f"a{number}") for number in range(20)]
    for attacker in attackers:
        attacker.send_bytes(start)
        assert bench.frontend.fairness.unfinished.used <= 1 << 20
    assert not honest.closed
    assert sum(attacker.closed for attacker in attackers) == 16
    gone = next(attacker for attacker in attackers if attacker.closed)
    assert gone.expect(Disconnect).reason == Reason.QUOTA_EXCEEDED
    assert bench.frontend.counts.unfinished == 16
    for client in (honest, *attackers):
        if not client.closed:
            client.lose()
    assert not bench.frontend.fairness.unfinished.used


def test_what_is_complete_does_not_count() -> None:
    bench = Bench()
    client = bench.client()
    packet = encode(Publish("a", bytes(1000)), V5)
    client.send_bytes(packet[:500])
    assert bench.frontend.fairness.unfinished.used == 500
    client.send_bytes(packet[500:])
    assert not bench.frontend.fairness.unfinished.used


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_at_the_limit_of_sessions_who_has_been_away_longest_with_nothing_to_deliver_goes() -> None:
    bench = Bench(Limits(maximum_sessions=3))
    queued = bench.client("queued", **STAYING)
    queued.subscribe("a", qos=1)
    queued.lose()
    publisher = bench.client("publisher")
    publisher.publish("a", b"x", qos=1)
    for name in ("idle", "next", "last"):
        bench.client(name, **STAYING).lose()
    assert set(bench.frontend.sessions) == {"queued", "publisher", "last"}
    assert bench.frontend.counts.evicted == 2


def test_a_clean_start_without_expiry_is_never_refused_for_the_number_of_sessions() -> None:
    """Anybody could fill the table, for a week."""
    bench = Bench(Limits(maximum_sessions=2))
    for name in "ab":
        bench.client(name, **STAYING)
    assert bench.client("clean").connack.reason == Reason.SUCCESS
    late = Client(bench)
    late.send(Connect("late", V5, **STAYING))  # type: ignore[arg-type]
    assert late.expect(Connack).reason == Reason.QUOTA_EXCEEDED


def test_a_client_that_is_back_is_not_taken_for_idle() -> None:
    bench = Bench(Limits(maximum_sessions=2))
    bench.client("back", **STAYING).lose()
    bench.client("away", **STAYING).lose()
    bench.client("back", **STAYING)
    bench.client("new")
    assert set(bench.frontend.sessions) == {"back", "new"}


@pytest.mark.parametrize("version", [V311, V5])
def test_sessions_without_a_user_are_kept_for_an_hour(version: int) -> None:
    bench = Bench()
    properties = {Property.SESSION_EXPIRY: 86_400} if version == V5 else {}
    client = bench.client("c", version=version, clean_start=False, properties=properties)
    if version == V5:
        assert client.connack.properties[Property.SESSION_EXPIRY] == 3600
    client.lose()
    bench.advance(3599)
    assert "c" in bench.frontend.sessions
    bench.advance(2)
    assert "c" not in bench.frontend.sessions


# --- work -------------------------------------------------------------------------------------------------------------


def test_an_address_subscribes_no_faster_than_the_rate_and_others_do_not_wait() -> None:
    bench = Bench(Limits(subscribe_rate=100))
    attackers = [at(bench, "10.0.0.2", f"a{number}") for number in range(3)]
    for attacker in attackers:
        attacker.send(Subscribe(1, [SubscribeEntry(f"{number}/+") for number in range(300)]))
    bench.advance(1.0)
    assert len(bench.hub.index) <= 2 * 100 + 3 * 64
    assert at(bench, "10.0.0.1", "honest").subscribe("calm") == [0]
    bench.advance(10.0)
    for attacker in attackers:
        assert attacker.expect(Suback).reasons == [0] * 300


# --- the log ----------------------------------------------------------------------------------------------------------


def test_log_lines_about_one_address_are_few_and_the_others_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    with caplog.at_level(logging.WARNING):
        for _ in range(200):
            at(bench, "10.0.0.2").send_bytes(b"\0\0")
        assert len(caplog.records) == 10
        at(bench, "10.0.0.1").send_bytes(b"\0\0")
        assert len(caplog.records) == 11
        assert bench.frontend.counts.unlogged == 190
        bench.advance(10)
        at(bench, "10.0.0.2").send_bytes(b"\0\0")
    assert len(caplog.records) == 12


# --- buckets ----------------------------------------------------------------------------------------------------------


@given(st.floats(0.1, 1000), st.floats(1, 50), st.lists(st.tuples(st.floats(0, 3), st.integers(1, 20)), max_size=30))
def test_a_bucket_lets_no_more_through_than_it_says(
    rate: float, burst: float, arrivals: list[tuple[float, int]]
) -> None:
    """Also to whoever waits as told, and then takes whether it is there or not."""
    bucket, now, taken = TokenBucket(rate, burst), 100.0, 0
    for pause, count in arrivals:
        now += pause
        taken += sum(bucket.take(now) for _ in range(count))
        now += bucket.wait(now)
        bucket.spend(1, now)
        taken += 1
    assert taken <= (now - 100) * rate + burst + 1e-6 * (taken + 1)


def test_buckets_of_many_names_take_bounded_room() -> None:
    buckets = Buckets(1.0, 5.0, most=10)
    for number in range(100):
        buckets.of(f"n{number}", number / 1000).spend(3, number / 1000)
        assert len(buckets) <= 10
    held = buckets.of("n99", 0.1)
    buckets.of("late", 50.0).spend(1, 50.0)
    assert buckets.of("n99", 0.1) is not held or len(buckets) <= 10


# --- clients that come and go -----------------------------------------------------------------------------------------


def live(kind: type) -> int:
    gc.collect()
    return sum(isinstance(each, kind) for each in gc.get_objects())


def test_clients_that_come_and_go_leave_no_objects_behind() -> None:
    bench = Bench()

    def round_of(number: int) -> None:
        for each in range(50):
            client = at(bench, f"10.0.{number % 200}.{each}", f"c{each}")
            client.subscribe(f"a/{each}", "b/+")
            client.publish("a/1", b"x")
            client.lose()
        bench.advance(20)  # past the timers that look for CONNECT

    round_of(0)
    before = live(Connection), live(Session)
    for number in range(1, 10):
        round_of(number)
    assert (live(Connection), live(Session)) == before
    assert not bench.hub.index
    assert not bench.frontend.sessions._idle


def test_a_fault_while_output_is_written_ends_that_client_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output after it was never written any more."""
    bench = Bench()
    faulty, other = bench.client("f"), bench.client("o")
    for client in (faulty, other):
        client.subscribe("a")

    def fault() -> None:
        raise RuntimeError

    monkeypatch.setattr(faulty, "flush", fault)
    bench.hub.publish(Batch.of(Message("a", b"x")))
    bench.flush()
    assert other.payloads() == [b"x"]
    assert faulty.connection.closing
    assert not bench.frontend.turn.dirty
