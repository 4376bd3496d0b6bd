"""What brokers tell operators of those that come and go."""

from __future__ import annotations

from collections.abc import Callable

from saps.overlay.membership.members import FORGOTTEN, KEPT, LINES, WINDOW, Members, What
from saps.overlay.ring.keys import BrokerRef
from saps.simulator import Simulation


class Clock:
    """As much of a port as `Members` uses; `to` runs what is due."""

    me = BrokerRef("me", 100, "", "c")

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def after(self, delay: float, action: Callable[[], None]) -> None:
        self.timers.append((self.now + delay, action))

    def to(self, now: float) -> None:
        self.now = now
        due, self.timers = [t for t in self.timers if t[0] <= now], [t for t in self.timers if t[0] > now]
        for _, action in due:
            action()


def members() -> tuple[Clock, Members, list[str]]:
    clock, lines = Clock(), list[str]()
    found = Members(clock, lambda: clock.now, lambda line, warning: lines.append(line))  # type: ignore[arg-type]
    return clock, found, lines


def test_a_broker_that_was_there_before_is_no_news_and_one_that_comes_later_is() -> None:
    _, found, lines = members()
    found.heard(BrokerRef("old", 50, "10.0.0.1:7300", "c"))
    assert lines == []
    found.heard(BrokerRef("new", 150, "10.0.0.2:7300", "c"))
    assert lines == ["broker new (c) joined, at 10.0.0.2:7300"]


def test_all_lost_incarnations_of_a_broker_are_suspected_once() -> None:
    """A broker that restarted asked each of them, and said ten times in a millisecond that it did not reach them."""
    _, found, lines = members()
    for incarnation in (10, 20, 30):
        found.suspected(BrokerRef("b", incarnation, "a:1", "c"))
    assert lines == ["broker b (c) is suspected: the link to it broke, at a:1"]


def test_a_dead_broker_is_away_until_it_is_back_or_forgotten() -> None:
    clock, found, lines = members()
    broker = BrokerRef("b", 50, "a:1", "c")
    found.heard(broker)
    found.suspected(broker)
    clock.to(1.0)
    found.died(broker)
    assert [(event.broker.name, event.at) for event in found.away] == [("b", 1.0)]
    found.heard(broker)
    assert found.away == []
    assert [event.what for event in found.events] == [What.SUSPECTED, What.DEAD, What.BACK]
    found.died(broker)
    assert found.forget("b")
    assert not found.forget("b")
    assert found.away == []
    found.died(broker)
    clock.to(clock.now + FORGOTTEN + 1)
    assert found.away == []
    assert len(lines) == 5


def test_a_broker_that_took_its_leave_is_not_away_and_joins_again() -> None:
    _, found, lines = members()
    found.heard(BrokerRef("b", 50, "a:1", "c"))
    found.left(BrokerRef("b", 50, "a:1", "c"))
    found.left(BrokerRef("b", 50, "a:1", "c"))
    assert found.away == []
    found.heard(BrokerRef("b", 51, "a:1", "c"))
    assert [line.split(" ")[3] for line in lines] == ["left,", "joined,"]


def test_lines_are_limited_and_added_up() -> None:
    clock, found, lines = members()
    for number in range(LINES + 300):
        found.heard(BrokerRef(f"b{number}", 150, "a:1", "c"))
    assert len(lines) == LINES
    clock.to(WINDOW)
    assert lines[LINES:] == ["300 more changes of brokers within 10 s: 300 joined"]
    assert len(found.events) == KEPT
    assert found.counts[What.JOINED] == LINES + 300
    found.heard(BrokerRef("last", 150, "a:1", "c"))
    assert len(lines) == LINES + 2


def test_what_survivors_know_adds_up_to_who_has_crashed_left_and_come_back() -> None:
    simulation = Simulation(seed=5)
    simulation.build(12, clusters=3)
    names = [broker.name for broker in simulation.alive()]
    crashed, left, cut_off = names[3], names[7], names[1]
    simulation.crash(crashed)
    simulation.brokers[left].leave()
    simulation.run(30)

    def away() -> set[str]:
        return {event.broker.name for broker in simulation.alive() for event in broker.node.port.members.away}

    def seen(what: What) -> set[str]:
        members = [broker.node.port.members for broker in simulation.alive()]
        return {event.broker.name for found in members for event in found.events if event.what is what}

    assert away() == {crashed}
    assert seen(What.DEAD) == {crashed}
    assert seen(What.LEFT) == {left}
    simulation.partition([cut_off])
    simulation.run(5)
    assert cut_off in away()
    simulation.heal()
    simulation.run(30)
    assert away() == {crashed}
    assert cut_off in seen(What.BACK)
