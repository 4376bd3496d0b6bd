"""High-water marks: what a quiet topic costs beside its publications, and who is told together."""

from __future__ import annotations

from saps.ofm.datapath.congestion import SMALL
from saps.ofm.datapath.marks import Marks
from saps.ofm.datapath.settings import DatapathSettings
from saps.overlay.frames.base import Frame
from saps.overlay.frames.delivery import HighWater, Part, Publish
from saps.overlay.ring.keys import BrokerRef
from tests.overlay.ports import LonePort

MEMBER, OTHER, ORIGIN = (BrokerRef(name, 1, f"{name}:1", "c") for name in ("member", "other", "origin"))
SETTINGS = DatapathSettings()
NEVER = float("inf")


class Sender(LonePort):
    """The broker that publishes; what it sends is kept, with when it was."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[float, BrokerRef, Frame]] = []

    def send(self, to: BrokerRef, frame: Frame) -> None:
        self.sent.append((self.now, to, frame))

    def wait(self, seconds: float) -> None:
        self.run(self.now + seconds)


def published(seq: int, qos: int = 0) -> Publish:
    return Publish(0, 0, 0, qos, False, [Part("t", seq - 1)], [0], [seq], [b""], [], [])


def test_lone_publications_cost_no_further_datagram() -> None:
    port, told = Sender(), list[float]()
    marks = Marks(port, "t", SETTINGS, set)
    for seq in range(1, 3 * SMALL):
        marks.sent(published(seq), (MEMBER,), 1)
        port.wait(2 * SETTINGS.quiet)
        assert marks.in_pause(lambda: told.append(port.now)) == NEVER
    assert not told


def test_after_a_burst_one_datagram_tells_its_end() -> None:
    port, told = Sender(), list[float]()
    marks = Marks(port, "t", SETTINGS, set)
    marks.sent(published(1), (MEMBER,), SMALL)
    marks.sent(published(2), (MEMBER,), 1)
    due = marks.in_pause(lambda: told.append(port.now))
    assert due == port.now + SETTINGS.quiet
    assert not told
    port.wait(SETTINGS.quiet)
    assert [marks.in_pause(lambda: told.append(port.now)) for _ in range(2)] == [NEVER, NEVER]
    assert told == [due]


def test_members_are_told_of_all_topics_at_once_and_in_time() -> None:
    port = Sender()
    for number, topic in enumerate("abc", 1):
        marks = Marks(port, topic, SETTINGS, set)
        marks.sent(published(number), (MEMBER,), 1)
        marks.sent(published(number + 10), (MEMBER,), 1)
        port.wait(0.01)
    port.wait(SETTINGS.mark)
    assert len({when for when, _, _ in port.sent}) == 1
    assert [frame for _, _, frame in port.sent] == [HighWater(t, n) for t, n in (("a", 11), ("b", 12), ("c", 13))]


def test_of_what_is_acknowledged_only_the_silent_are_told() -> None:
    port, silent = Sender(), {MEMBER}
    marks = Marks(port, "t", SETTINGS, lambda: silent)
    marks.sent(published(1, qos=1), (OTHER, MEMBER), 2 * SMALL)
    assert marks.in_pause(lambda: None) == NEVER
    port.wait(SETTINGS.mark)
    assert [(to, frame) for _, to, frame in port.sent] == [(MEMBER, HighWater("t", 1))]
    silent.clear()
    marks.sent(published(2, qos=1), (OTHER, MEMBER), 1)
    port.wait(SETTINGS.mark)
    assert len(port.sent) == 1


def test_members_of_the_last_relayed_publication_are_told() -> None:
    port = Sender()
    marks = Marks(port, "t", SETTINGS, set)
    marks.relayed(ORIGIN, 4, (MEMBER,))
    marks.relayed(ORIGIN, 5, (MEMBER, OTHER))
    port.wait(SETTINGS.mark)
    assert [(to, frame) for _, to, frame in port.sent] == [(to, HighWater("t", 5, ORIGIN)) for to in (MEMBER, OTHER)]
