"""Frames of session migration, of session replicas, and of wills."""

from __future__ import annotations

import msgspec

from saps.messages import Message
from saps.overlay.frames.base import Frame
from saps.overlay.frames.copies import Changes, Heirloom
from saps.overlay.frames.delivery import Publish
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.validation.ranges import Delay, Moment, Number, Stamp


class Will(msgspec.Struct, frozen=True, array_like=True):
    """The will message of a client, to be published when the client is lost."""

    client: str
    serial: Number
    """Number of the will; grows with each will of the broker's clients."""
    delay: Delay
    """Seconds to wait before the will is published, as the client may come back."""
    message: Message


class Guard(Frame, tag=38):
    """Publish these wills if I die."""

    wills: list[Will]
    guardians: list[BrokerRef]
    """The brokers that guard these wills; the first of them that is alive publishes."""
    complete: bool
    """Whether these, and those of the frames that follow, are all my wills; otherwise add them to those that you
    have."""


class Unguard(Frame, tag=39):
    """The wills of this client are void up to this serial."""

    client: str
    serial: Number


class Mourned(Frame, tag=40):
    """Between guardians of a broker that has died: these wills of it are settled. Do not publish them."""

    broker: BrokerRef
    wills: list[tuple[str, Number]]
    """Clients, each with the serial of its will."""


class TakeOver(Frame, tag=60):
    """This client has connected to me: close its connection to you, and hand me its session."""

    serial: Number
    """Names the migration, within my incarnation."""
    client: str
    stamp: Stamp
    """Stamp of my lease."""
    user: str | None
    """The user that has connected."""
    keep: bool
    """Whether I want the session. If not, end it."""
    birth: Number = 0
    """If not 0: I have a session with this name (`SessionCopy.birth`). If yours has the same name, it is a branch of
    mine: hand me what mine lacks. Otherwise end yours."""


class TakeOverAnswer(Frame, tag=61):
    """Answers `TakeOver`: whether I hand the session over."""

    serial: Number
    answer: Number
    """0: I have no such session, or not any more. 1: I have it, pull it. 2: not yet, ask again. 3: it is moving to
    another broker. 4: I have a later lease. 5: it belongs to another user."""
    gone: BrokerRef | None = None
    """If there is no session: the broker to which it moved last from here, as far as known."""
    rest: list[bytes] = []
    """Of a session that has just ended: what its client has not released (`SessionHost.rest`)."""


class Pull(Frame, tag=62):
    """Send me a part of the session."""

    serial: Number
    stage: Number
    """0: its subscriptions; 1: its queue. From the first pull of stage 1 on you queue nothing more for the session."""
    part: Number
    asked: list[tuple[BrokerRef, str]] = []
    """With the first part of stage 1: pairs of publishing broker and topic, to be answered in `Snapshot.passed`."""
    trunk: Number = 0
    """With the first part of stage 1 of a branch: what identifies the session here (`saps.mesh.SessionHost.number`)."""
    brings: list[tuple[str, Number, Number]] = []
    """In the same: brokers (name, incarnation), each with a number. Greater ones that match the session's plain filters
    come here without you. Leave them out, if you have adopted this session and its client has not connected since."""


class Snapshot(Frame, tag=63):
    """Answers `Pull`: a part of the session."""

    serial: Number
    stage: Number
    part: Number
    parts: Number
    """Number of parts of the stage; 0: not ready yet, ask again."""
    data: bytes
    """Bytes in the frontend's own format."""
    passed: list[Number] = []
    """For each pair of `asked`: the number of the last publication that has passed to my subscribers."""
    heritage: list[Heirloom] = []
    """With the first part of stage 0: the former brokers of the session."""
    cut: bool = False
    """With the first part of stage 0: whether I know that brokers of the mesh are cut off."""


class Arrived(Frame, tag=64):
    """I have the whole session, on disk if I store it: forget yours."""

    serial: Number


class Departed(Frame, tag=65):
    """Answers `Arrived`: the session is yours (`granted`), or I keep it. Not granted, it also answers a `Pull` of a
    session that I do not hand over any more. From the target, not granted: I do not take the session that you have
    just offered; keep it."""

    serial: Number
    granted: bool


class Offer(Frame, tag=66):
    """I have a session of this client, and you have the later lease: end mine (`TakeOver`), or release your lease if
    you have no session."""

    client: str


class Append(Frame, tag=70):
    """From an owner to a holder of copies: append these changes to your copy of my log."""

    log: Number
    """Names the log, within my incarnation; the greatest holds."""
    stream: Number
    """Names the stream of frames to this holder; the greatest holds."""
    seq: Number
    """Number of the frame in the stream: from 1 on, without gaps. Until `whole`, frames bring the existing sessions,
    between commits."""
    commit: Number
    """My last commit that the frame contains."""
    whole: bool
    """Whether your copy is complete with this frame."""
    holders: list[BrokerRef]
    """All brokers that hold copies."""
    changes: Changes
    wall: Moment
    """My time of day, in seconds since the epoch, by which the times in `changes` count."""


class Appended(Frame, tag=71):
    """Answers `Append`, and is repeated from time to time: I have all frames of the stream up to `seq`."""

    stream: Number
    seq: Number
    fenced: bool = False
    """I refuse this log: I have adopted its sessions, or did not get it from its beginning."""
    declined: bool = False
    """I have no clients' sessions, and hold no copies of others'."""


class Replaced(Frame, tag=76):
    """From an owner to a broker that still follows a stream: other brokers hold the copies now. Drop yours."""

    stream: Number


class Heir(Frame, tag=72):
    """Between holders: I have declared the owner dead. Answer what you know (`HeirAnswer` or `Inherited`)."""

    owner: BrokerRef
    log: Number


class HeirAnswer(Frame, tag=73):
    """Answers `Heir`: what I know of the owner and its log."""

    owner: BrokerRef
    log: Number
    alive: bool
    """I hear the owner."""
    adopts: bool
    """I adopt its sessions."""
    commit: Number
    """The last commit of its log that I have; 0 if my copy is not complete."""


class Inherited(Frame, tag=74):
    """Between holders: the owner's sessions have been adopted, and copied as the heir's. Forget your copy. It may
    answer `Heir`."""

    owner: BrokerRef
    log: Number


class Bequest(Frame, tag=75):
    """From a publishers' broker to an heir: these are my publications that the owner has missed."""

    serial: Number
    """`Inherit.serial`."""
    turn: Number
    """`Inherit.turn`."""
    body: Publish
    """An unaddressed frame without predecessors, as in `MadeUp`."""
    origin: BrokerRef | None = None
    """My earlier incarnation that has published them; None for this one."""
