"""Frames of the Skip Graph, of the start of brokers, of failure detection, and of Leave."""

from __future__ import annotations

from saps.overlay.frames.base import Frame
from saps.overlay.ring.keys import BrokerRef, Key, Ref
from saps.overlay.validation.ranges import Height, Hops, Number, Seconds, StartStage


class Routed(Frame):
    """Base of the frames that are routed hop by hop to the predecessor of a key."""

    hops: Hops
    via: Key | None
    """The node that this hop is meant for. If that node does not exist any more, the receiver answers `Gone`."""


class Insert(Routed, tag=1):
    """Routed to the predecessor of `ref`: link `ref` at level 0."""

    ref: Ref


class Inserted(Frame, tag=2):
    """Answers `Insert`: the node `ref` is linked at level 0, between `left` and `right` (None: the right one is
    lost)."""

    ref: Ref
    left: Ref
    right: Ref | None
    hops: Hops
    doubt: Seconds
    """Seconds for which the link to `right` is in doubt: a crash has just been repaired there."""
    again: bool = False
    """Whether `ref` was linked already; then `right` is repeated from the first answer."""


class SetLeft(Frame, tag=3):
    """To the node at `at`: your left neighbour is now `left`, as `left` was linked there or `gone` has gone."""

    at: Key
    left: Ref
    gone: Key | None


class Unlink(Routed, tag=4):
    """Routed to the predecessor of `ref`: unlink `ref`, and link `right` in its place."""

    ref: Ref
    right: Ref | None
    doubt: Seconds


class Unlinked(Frame, tag=5):
    """Answers `Unlink`: the node `ref` is not in the overlay any more."""

    ref: Ref
    by: Ref
    """The predecessor that unlinked it."""


class Relink(Frame, tag=6):
    """To the node at `at`: your neighbour `gone` has left the list of `level`; your next neighbour is `ref`."""

    at: Key
    level: Height
    rightward: bool
    gone: Key
    ref: Ref | None


class Seek(Frame, tag=7):
    """Passed along the list of level ``level - 1`` until a node shares `level` bits of its membership vector with
    `origin`; that node answers `Level`."""

    at: Key
    level: Height
    rightward: bool
    origin: Ref
    ttl: Hops


class Level(Frame, tag=8):
    """Answers `Seek`: `found` is the neighbour of the node at `at` in the list of `level`, None at the end of the
    list."""

    at: Key
    level: Height
    rightward: bool
    found: Ref | None


class Find(Routed, tag=9):
    """Routed to the predecessor of `target`: answer `Found` to `origin`."""

    target: Key
    origin: BrokerRef
    token: Number


class Found(Frame, tag=10):
    """Answers `Find`: `target` lies between my node `left` and its right neighbour, or is the key of that neighbour."""

    token: Number
    left: Ref
    right: Ref | None
    hops: Hops


class Check(Frame, tag=27):
    """To the node at `at`: my node `ref` has you as its left neighbour. Answer `RingSplit` unless `ref` is your right
    neighbour."""

    at: Key
    ref: Ref
    doubt: Seconds = 0.0
    """Seconds for which the link behind `ref` is in doubt. The link before `ref` is so, too, if both nodes were put
    into one gap."""


class RingSplit(Frame, tag=28):
    """Insert `ref` again, starting at the broker `at`; None: at me, because its `Check` shows that its left link is
    wrong."""

    ref: Ref
    at: BrokerRef | None = None


class Whois(Frame, tag=29):
    """From a guest: which broker of the mesh has this name? Answer `Known`."""

    name: str


class Known(Frame, tag=30):
    """Answers `Whois`: `broker` has the name; None if no broker has it."""

    broker: BrokerRef | None


class StartProbe(Frame, tag=80):
    """From a guest: I am `broker`, and look for others (`saps.overlay.membership.start`). Answer `There`."""

    broker: BrokerRef
    stage: StartStage
    """My stage: 0 starting, 1 decided, 2 in a mesh."""
    waited: Seconds
    """Seconds since I began to wait for others."""


class There(Frame, tag=81):
    """Answers `StartProbe`: I am `broker`."""

    broker: BrokerRef
    stage: StartStage
    """My stage, as in `StartProbe`."""
    waited: Seconds
    """Seconds since I began to wait for others."""


class Ping(Frame, tag=14):
    """Show that you are alive: answer `Pong`."""

    at: Number = 0
    """Time of my clock in ms since the epoch (`saps.overlay.membership.clocks`); 0 if clocks are not compared."""


class Pong(Frame, tag=15):
    """Answers `Ping`: I am alive."""

    asked: Number = 0
    """`at` of the `Ping`."""
    at: Number = 0
    """Time of my clock in ms since the epoch; 0 if the `Ping` had none."""


class Relay(Frame, tag=82):
    """To a broker that reaches both: hand this on from `origin` to `to` (`saps.overlay.membership.detours`)."""

    to: BrokerRef
    origin: BrokerRef
    path: Number
    """Number of the path, greater than those of all earlier ones of `origin`."""
    frames: list[bytes]
    """Frames from `origin` to `to`, as on a link without their lengths. Empty: answer `Reached`."""


class Reached(Frame, tag=83):
    """Answers an empty `Relay`, in the way that it came: I, `origin`, have got it."""

    to: BrokerRef
    origin: BrokerRef
    path: Number


class Lapsed(Frame, tag=84):
    """To the sender of a `Relay`: what you send to `origin` on this path does not arrive any more."""

    to: BrokerRef
    origin: BrokerRef
    path: Number


class Forgot(Frame, tag=16):
    """I had declared you dead: insert your keys again, and announce your filters."""


class Heal(Frame, tag=17):
    """Flooded after a partition: insert your keys through `contact`, and announce your filters."""

    contact: BrokerRef
    serial: Number


class Leave(Frame, tag=24):
    """I am leaving: answer `LeaveAck`, and send me nothing after it."""

    owed: bool = False
    """Sessions of mine go on elsewhere: keep for their heirs what I miss."""


class LeaveAck(Frame, tag=25):
    """Answers `Leave`: this is the last frame that I send you."""
