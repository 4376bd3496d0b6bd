"""Kill the broker between any two steps, fail any transaction: nothing acknowledged is lost, QoS 2 comes once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.durable_clients import DurableClient, Publisher, Subscriber
from saps.storage.driver import log
from saps.storage.driver.database import Database
from tests.storage.conftest import Place
from tests.storage.crashes import Life, Wire

pytestmark = pytest.mark.slow

USUAL = ["rise"] * 20 + ["fall"] * 20 + ["later"] * 8 + ["finish"] * 12
FAULTS = ["fail", "drop", "drop", "kill", "kill, sent"]

steps = st.lists(st.sampled_from([*USUAL, *FAULTS]), min_size=100, max_size=400)


class World:
    """Two publishers, two subscribers, one broker with many lives."""

    def __init__(self, place: Place) -> None:
        self.place = place
        Database(place, "off").close()
        self.publishers = [Publisher(0, f"p{number}", window=5) for number in range(2)]
        self.subscribers = [Subscriber(0, f"s{number}") for number in range(2)]
        self.clients: list[DurableClient] = [*self.subscribers, *self.publishers]
        self.life = Life(place, 1000.0)
        self.wires: dict[DurableClient, Wire] = {}
        self.go_on(20)

    def step(self, what: str, number: int) -> None:
        client = self.clients[number % len(self.clients)]
        wire = self.wires.get(client)
        if what == "later":
            self.life.disk.go_on()
        elif what in ("finish", "fail"):
            self.life.disk.finish(what == "finish")
        elif what.startswith("kill"):
            for other, wire in self.wires.items():
                if what == "kill, sent":  # the kernel delivers what was written
                    wire.fall()
                other.gone()
            self.wires.clear()
            self.life.disk.database.close()
            self.life = Life(self.place, self.life.now + 1)
        elif wire is None or not wire.open:
            self.connect(client)
        elif what == "rise":
            wire.rise()
        elif what == "fall":
            wire.fall()
        elif what == "drop":
            wire.end()

    def connect(self, client: DurableClient) -> None:
        if (wire := self.wires.pop(client, None)) is not None:
            wire.fall()
            wire.end()
        if isinstance(client, Publisher) and not all(s.subscribed.is_set() for s in self.subscribers):
            return
        self.wires[client] = Wire(self.life, client)

    def settle(self) -> None:
        """Let everything happen that can."""
        for publisher in self.publishers:
            publisher.stop()
        self.go_on(400)

    def go_on(self, rounds: int) -> None:
        """Everything happens, in order."""
        for _ in range(rounds):
            for number, _client in enumerate(self.clients):
                self.step("rise", number)
                self.step("fall", number)
            self.life.disk.go_on()
            self.life.disk.finish()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps, order=st.randoms(use_true_random=False), length=st.sampled_from([0, 1000, log.LOG]))
def test_no_step_at_which_the_broker_dies_costs_a_message(
    steps: list[str], order: Random, length: int, new_place: Callable[[], Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "LOG", length)
    world = World(new_place())
    for step in steps:
        world.step(step, order.randrange(4))
    world.settle()
    assert all(publisher.finished for publisher in world.publishers), "an answer never came"
    assert not any(client.sessions_lost for client in world.clients)
    for publisher in world.publishers:
        for subscriber in world.subscribers:
            received: Counter[int] = subscriber.received.get(publisher.client_id, Counter())
            assert not publisher.acknowledged - received.keys(), "lost"
            assert not [n for n, times in received.items() if times > 1 and n % 2 == 0], "QoS 2 came again"
    assert world.life.journal.payload >= 0
    assert not world.life.commits.pending
    world.life.disk.database.close()
