"""What one broker remembers of the messages that it hands to members elsewhere, and takes for its own members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from saps.messages import Message
from saps.overlay import groups
from saps.overlay.frames.delivery import GroupDelivery, Handed, Settled
from saps.overlay.groups import Sharing
from saps.overlay.ring.keys import BrokerRef
from tests.overlay.ports import LonePort

OTHER = BrokerRef("b2", 1, "", "c")


class Sending(LonePort):
    """A port that keeps the frames."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Any] = []

    def send(self, to: BrokerRef, frame: object) -> None:
        self.sent.append(frame)


class Members:
    """Members that take everything; what has a QoS above 0 stays open."""

    def __init__(self) -> None:
        self.open: list[Callable[[], None]] = []

    def take(self, topic_filter: str, message: Message, forced: bool, settled: Callable[[], None]) -> bool:
        if message.qos:
            self.open.append(settled)
        else:
            settled()
        return True


def scene() -> tuple[Sharing, Sending, Members]:
    port, members = Sending(), Members()
    return Sharing(port, None, members), port, members  # type: ignore[arg-type]


def deliver(sharing: Sharing, serial: int, qos: int, sender: BrokerRef = OTHER) -> None:
    sharing.handlers[GroupDelivery](sender, GroupDelivery(serial, "$share/g/t", "t", b"", qos, False, None))


def test_what_is_not_settled_is_taken_once_however_much_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of more open messages than are remembered was delivered twice, and the bound was passed."""
    monkeypatch.setattr(groups, "REMEMBERED", 4)
    sharing, port, members = scene()
    for serial in (*range(10), 0):
        deliver(sharing, serial, qos=2)
    assert len(members.open) == 10
    for settled in (*members.open, *members.open):
        settled()
    assert [frame.serial for frame in port.sent if isinstance(frame, Settled)] == [*range(10)]
    assert len(sharing._closed) == 4
    assert not sharing._open


def test_a_message_of_qos_0_has_one_answer() -> None:
    sharing, port, _ = scene()
    deliver(sharing, 1, qos=0)
    assert port.sent == [Settled(1)]


def test_groups_and_brokers_that_have_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "GROUPS", 4)
    sharing, port, _ = scene()
    for number in range(10):
        broker = BrokerRef(f"n{number}", 1, "", "c")
        for topic_filter in ("$share/all/t", f"$share/g{number}/t"):
            sharing.publish({topic_filter: [broker]}, Message("t", b""), None)
            sharing.handlers[Handed](broker, Handed(port.sent[-1].serial, True))
        sharing.forget(broker)
    assert len(sharing._counts) == 4
    assert not any(sharing._counts.values())
