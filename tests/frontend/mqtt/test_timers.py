from __future__ import annotations

from saps.frontend.mqtt.timers import Timers


def test_actions_run_in_order_of_time_then_of_entry() -> None:
    ran: list[str] = []
    timers = Timers()
    for when, name in [(2.0, "c"), (1.0, "a"), (1.0, "b"), (3.0, "d")]:
        timers.at(when, lambda now, name=name: ran.append(name))  # type: ignore[misc]
    timers.run(2.5)
    assert ran == ["a", "b", "c"]
    assert timers.next == 3.0


def test_arm_is_called_only_for_an_earlier_deadline() -> None:
    armed: list[float] = []
    timers = Timers(armed.append)
    for when in (5.0, 6.0, 4.0):
        timers.at(when, lambda now: None)
    assert armed == [5.0, 4.0]


def test_an_action_may_set_a_timer_that_is_due_at_once() -> None:
    ran: list[float] = []
    timers = Timers()

    def again(now: float) -> None:
        timers.at(now, ran.append)

    timers.at(1.0, again)
    timers.run(1.0)
    assert ran == [1.0]
    assert timers.next is None


def test_what_is_cancelled_does_not_run_and_is_forgotten() -> None:
    ran: list[float] = []
    timers = Timers()
    made = [timers.at(float(number), ran.append) for number in range(1000)]
    for number, timer in enumerate(made):
        if number % 100:
            timers.cancel(timer)
            timers.cancel(timer)
    assert len(timers._heap) < 200
    timers.run(1000.0)
    assert len(ran) == 10
    timers.cancel(made[0])
    assert timers.next is None
