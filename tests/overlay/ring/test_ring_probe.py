"""Ring probes find the other part of a ring that a death has cut in two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from saps.overlay.frames.ring import Found
from saps.overlay.ring.keys import BrokerRef, Key, Ref
from saps.overlay.ring.ring_probe import ASKED, RingProbe
from tests.overlay.ports import LonePort

OWN = Key(b"own")
OTHERS = [BrokerRef(f"b{number}", 1, "", "c") for number in range(2, 8)]


class Ring:
    """The graph and the failure detector of b1; some brokers are in another part of the ring, some are silent."""

    settled, suspects = True, frozenset[str]()

    def __init__(self, port: LonePort, apart: set[str], silent: set[str]) -> None:
        self.order, self.nodes = [OWN], {OWN: None}
        self.asked: list[str] = []
        self._port, self._apart, self._silent = port, apart, silent

    def find(self, target: Key, found: Callable[[Found], None], start: BrokerRef) -> None:
        self.asked.append(start.name)
        right = Ref(Key(b"p") if start.name in self._apart else target, start, 1)
        if start.name not in self._silent:
            self._port.after(0.01, lambda: found(Found(1, right, right, 0)))

    def linked_brokers(self) -> list[BrokerRef]:
        return []

    def neighbours(self) -> dict[str, BrokerRef]:
        return {}


def probe(apart: set[str], silent: set[str] = frozenset()) -> tuple[LonePort, Ring, RingProbe, list[str]]:  # type: ignore[assignment]
    port = LonePort()
    ring, merged = Ring(port, apart, silent), list[str]()

    def rejoin(broker: BrokerRef) -> None:
        merged.append(broker.name)
        apart.clear()

    machine: Any = ring
    found = RingProbe(port, machine, machine, rejoin)  # type: ignore[arg-type]
    for broker in OTHERS:
        found.know(broker)
    return port, ring, found, merged


def test_without_a_death_one_broker_is_asked_in_turn() -> None:
    port, ring, probing, merged = probe(set())
    probing.call()
    probing.call()
    port.run()
    assert (ring.asked, merged, probing.calm()) == (["b2", "b3"], [], True)


@pytest.mark.parametrize("other", [broker.name for broker in OTHERS[:ASKED]])
def test_after_a_death_the_other_part_is_found_wherever_it_is(other: str) -> None:
    """The first one asked was in the same part: the ring counted as whole, and range calls as complete."""
    port, _, probing, merged = probe({other})
    probing.neighbour_died()
    assert not probing.calm()
    port.run(0.1)
    assert merged == [other]
    assert not probing.calm()
    port.run()
    assert probing.calm()


def test_one_that_is_silent_holds_up_nobody_for_long() -> None:
    port, _, probing, _ = probe(set(), {"b3"})
    probing.neighbour_died()
    port.run(0.1)
    assert not probing.calm()
    port.run()
    assert probing.calm()
