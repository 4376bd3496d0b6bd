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
