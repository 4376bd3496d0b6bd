"""Frames of sessions that move, of their copies, and of wills."""

from __future__ import annotations

import msgspec

from saps.messages import Message
from saps.overlay.frames.base import Frame
from saps.overlay.frames.copies import Changes
from saps.overlay.frames.delivery import Publish
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.validation.ranges import Delay, Number, Stamp


class Will(msgspec.Struct, frozen=True, array_like=True):
    """What is to be published when a client is lost."""

    client: str
    serial: Number
    """Grows with each will of the broker's clients."""
    delay: Delay
    """Seconds to wait: the client may come back."""
    message: Message


class Guard(Frame, tag=38):
    """Publish these wills if I die."""

    wills: list[Will]
    guardians: list[BrokerRef]
    """Who guards them, in the order in which they are to publish."""
    complete: bool
    """These are all; else they come beside those you have."""


class Unguard(Frame, tag=39):
    """The will of this client is void, up to this one."""

    client: str
    serial: Number


class Mourned(Frame, tag=40):
    """Between guardians of a broker that has died: these wills have been seen to."""

    broker: BrokerRef
    wills: list[tuple[str, Number]]
    """Clients and serials."""


class TakeOver(Frame, tag=60):
    """This client has connected to me: close its connection to you, and hand me its session."""

    serial: Number
    """Names the migration, within this life of the sender."""
    client: str
    stamp: Stamp
    """Of my lease."""
    user: str | None
    """Who has connected."""
    keep: bool
    """False: the session is not wanted any more, end it."""
    birth: Number = 0
    """Not 0: I have this session, with this name of its own. If yours has the same it is a branch of mine: hand me what
    mine does not have; else end it."""


class TakeOverAnswer(Frame, tag=61):
    """Answers `TakeOver`."""

    serial: Number
    answer: Number
    """0: there is no session here (any more). 1: here it is, pull it. 2: not yet, ask again. 3: it is moving to another
    broker. 4: I have a later lease. 5: it is another user's."""


class Pull(Frame, tag=62):
    """Send a part of the session."""

    serial: Number
    stage: Number
    """0: what it subscribes to; 1: what it has to deliver. The first pull of stage 1 ends what you take in for it."""
    part: Number
    asked: list[tuple[BrokerRef, str]] = []
    """Publishing brokers and topics, with the first part of stage 1."""


class Snapshot(Frame, tag=63):
    """Answers `Pull`."""

    serial: Number
    stage: Number
    part: Number
    parts: Number
    """How many the stage has; 0: not yet, ask again."""
    data: bytes
    """In the frontend's own terms."""
    passed: list[Number] = []
    """For each of `asked`: the number of the last publication that has passed here."""


class Arrived(Frame, tag=64):
    """I have all of the session, stored if I store it: forget it."""

    serial: Number


class Departed(Frame, tag=65):
    """Answers `Arrived`: it is yours; or (not `granted`) it is not, I go on with it. Also answers a `Pull` of a session
    that is not handed over any more."""

    serial: Number
    granted: bool


class Offer(Frame, tag=66):
    """I have a session of this client, and you the later lease: end mine, or say nothing if you have none."""

    client: str


class Append(Frame, tag=70):
    """From an owner to a holder of copies: what follows in my log."""

    log: Number
    """Names the log, within this life of the owner; the greatest holds."""
    stream: Number
    """Names the way to this holder; the greatest holds."""
    seq: Number
    """Of the frame on that way: from 1 on, without gaps. The first ones bring all there is."""
    commit: Number
    """The owner's last commit that is in it."""
    whole: bool
    """You have all there is, now."""
    holders: list[BrokerRef]
    """Who has copies."""
    changes: Changes


class Appended(Frame, tag=71):
    """Answers `Append`: I have everything up to `seq`."""

    stream: Number
    seq: Number
    fenced: bool = False
    """I take no more of this log: I have adopted its sessions, or have not had it from its beginning."""


class Heir(Frame, tag=72):
    """Between holders: the owner is dead to me. What about you?"""

    owner: BrokerRef
    log: Number


class HeirAnswer(Frame, tag=73):
    """Answers `Heir`."""

    owner: BrokerRef
    log: Number
    alive: bool
    """I hear the owner."""
    adopts: bool
    """I adopt its sessions, or have done so."""
    commit: Number
    """I have its log up to here; 0: not all of it."""


class Inherited(Frame, tag=74):
    """Between holders: I have adopted the owner's sessions, and others have copies. Forget yours."""

    owner: BrokerRef
    log: Number


class Bequest(Frame, tag=75):
    """From a publishers' broker to an heir: publications of mine that the owner has missed."""

    serial: Number
    """Of the `Inherit`."""
    turn: Number
    """Of the `Inherit`."""
    body: Publish
    origin: BrokerRef | None = None
    """As in `MadeUp`."""
