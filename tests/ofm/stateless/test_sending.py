"""The plane that a topic's publications take."""

from __future__ import annotations

from saps.ofm.stateless.directory import Directory
from saps.ofm.stateless.sending import Sending
from saps.overlay.ring.keys import BrokerRef

MEMBER = BrokerRef("member", 1, "member:1", "c")


def test_silence_about_a_former_plane_is_not_held_against_a_new_directorys_plane() -> None:
    planes = (0, 1, 2)
    sending = Sending("t", Directory((0, 0), {}, planes))
    sending.asked([MEMBER], 1.0)
    left = tuple(plane for plane in planes if plane != sending.plane)
    sending.follow(Directory((0, 0), {}, left), 2.0)
    assert sending.plane in left
    assert not sending.unheard(3.0)


def test_a_topic_begins_with_the_plane_that_it_is_spread_to_and_moves_when_it_is_spread_otherwise() -> None:
    sending = Sending("t", Directory((0, 0), {}, (0, 1, 2), {"t": 2}))
    assert sending.plane == 2
    assert sending.change(1.0)
    given_up_to = sending.plane
    sending.follow(Directory((0, 0), {}, (0, 1, 2), {"t": 2, "u": 1}), 2.0)
    assert sending.plane == given_up_to
    sending.follow(Directory((0, 0), {}, (0, 1, 2), {"t": 1}), 3.0)
    assert (sending.plane, sending.since) == (1, 3.0)
    sending.follow(Directory((0, 0), {}, (0, 2), {"t": 1}), 4.0)
    assert sending.plane in (0, 2)
