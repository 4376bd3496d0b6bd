"""Frames of the Skip Graph, of brokers that start, watch each other and leave."""

from __future__ import annotations

from saps.overlay.frames.base import Frame
from saps.overlay.ring.keys import BrokerRef, Key, Ref
from saps.overlay.validation.ranges import Height, Hops, Number, Seconds, StartStage


class Routed(Frame):
    """Base of the frames that go, hop by hop, to the predecessor of a key."""

    hops: Hops
    via: Key | None
    """The node this hop was meant for; if it is not there any more the sender is told by `Gone`."""


class Insert(Routed, tag=1):
    """Routed to the predecessor of `ref`, which links it at level 0."""

    ref: Ref


class Inserted(Frame, tag=2):
    """The node `ref` is linked at level 0, between `left` and `right` (None: the right one is lost)."""

    ref: Ref
    left: Ref
    right: Ref | None
    hops: Hops
    doubt: Seconds
    """Seconds for which the link to `right` is in doubt: a crash has just been repaired there."""
    again: bool = False
    """It was linked already; `right` is what it was told then."""


class SetLeft(Frame, tag=3):
    """To the node at `at`: `left` was linked to the left of you, or stands there now that `gone` has gone."""

    at: Key
    left: Ref
    gone: Key | None


class Unlink(Routed, tag=4):
    """Routed to the predecessor of `ref`, which replaces it by `right`."""

    ref: Ref
    right: Ref | None
    doubt: Seconds


class Unlinked(Frame, tag=5):
    """The node `ref` is not in the overlay any more."""

    ref: Ref
    by: Ref
    """The predecessor that unlinked it."""


class Relink(Frame, tag=6):
    """To the node at `at`: your neighbour `gone` has left the list of `level`; `ref` stands behind it."""

    at: Key
    level: Height
    rightward: bool
    gone: Key
    ref: Ref | None


class Seek(Frame, tag=7):
    """Walks the list of level ``level - 1`` until a node shares `level` bits of its membership vector with `origin`."""

    at: Key
    level: Height
    rightward: bool
    origin: Ref
    ttl: Hops


class Level(Frame, tag=8):
    """Answers `Seek`: the neighbour of the node at `at` in the list of `level`, None at the end of the list."""

    at: Key
    level: Height
    rightward: bool
    found: Ref | None


class Find(Routed, tag=9):
    """Routed to the predecessor of `target`, which answers `Found` to `origin`."""

    target: Key
    origin: BrokerRef
    token: Number


class Found(Frame, tag=10):
    token: Number
    left: Ref
    right: Ref | None
    hops: Hops


class Check(Frame, tag=27):
    """To the node at `at`: do you point at `ref`, which takes you for its left neighbour? Needs no answer if so."""

    at: Key
    ref: Ref
    doubt: Seconds = 0.0
    """Seconds for which it is in doubt what is behind `ref`; before `ref` too if both were put into one gap."""


class RingSplit(Frame, tag=28):
    """Insert `ref` again, at the broker `at`; None: here, because a `Check` says that its left link is wrong."""

    ref: Ref
    at: BrokerRef | None = None


class Whois(Frame, tag=29):
    """From a guest: which broker of the mesh has this name?"""

    name: str


class Known(Frame, tag=30):
    """Answers `Whois`: this one, or none."""

    broker: BrokerRef | None


class StartProbe(Frame, tag=80):
    """From a guest: `broker` asks who is there (`saps.overlay.membership.start`)."""

    broker: BrokerRef
    stage: StartStage
    """How far it is: 0 starting, 1 decided, 2 in a mesh."""
    waited: Seconds


class There(Frame, tag=81):
    """Answers `StartProbe`: `broker` is here."""

    broker: BrokerRef
    stage: StartStage
    waited: Seconds
    """Since it began to wait for others."""


class Ping(Frame, tag=14):
    at: Number = 0
    """What the sender's clock shows, ms since the epoch (`saps.overlay.membership.clocks`); 0: it does not matter."""


class Pong(Frame, tag=15):
    asked: Number = 0
    """`at` of the `Ping`."""
    at: Number = 0
    """What the sender's clock shows."""


class Forgot(Frame, tag=16):
    """I had taken you for dead: insert your keys again, and announce your filters."""


class Heal(Frame, tag=17):
    """Flooded after a partition: insert your keys by way of `contact`, and announce your filters."""

    contact: BrokerRef
    serial: Number


class Leave(Frame, tag=24):
    """I am leaving: after your `LeaveAck` send me nothing more."""


class LeaveAck(Frame, tag=25):
    """All I ever sent you was sent before this."""
