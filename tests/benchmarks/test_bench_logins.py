"""The benchmark of logins runs, and what is known costs less than its goal."""

from __future__ import annotations

from benchmarks.logins import GOAL, Broker, connect, measured


def test_a_login_that_is_known_is_cheap() -> None:
    broker = Broker()
    for user, password in ((None, broker.token("ec", 1)), ("bob", b"word")):
        packet = connect(1, user, password)
        measured(broker, [packet])
        assert min(measured(broker, [packet] * 100) for _ in range(5)) < GOAL
