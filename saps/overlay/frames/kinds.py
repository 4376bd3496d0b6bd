"""What brokers say to each other: one struct a frame, tagged with a number. docs/wire-protocol.md is the specification.

Frames of one link session arrive in the order sent, without gaps, until the link goes down.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from saps.local.batch import MOST
from saps.messages import Message, Properties
from saps.overlay.frames.copies import Changes
from saps.overlay.ring.keys import BrokerRef, Key, Ref
from saps.overlay.validation.ranges import (
    Count,
    Delay,
    Given,
    Height,
    Hops,
    Meant,
    Number,
    Quality,
    Seconds,
    Stamp,
    StartStage,
)

LARGEST_SLICE = 1 << 16
"""Brokers."""
MOST_ANNOUNCED = 1024
"""Filters in one call."""


class ProtocolError(ValueError):
    """A peer broke the protocol; its link must be closed."""


class Frame(msgspec.Struct, array_like=True):
    """Base of all frames."""


# --- Skip Graph: list maintenance -----------------------------------------------------------------


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


# --- range calls ------------------------------------------------------------------------------------


class Announced(NamedTuple):
    """A filter, and which of its broker's changes this is."""

    topic_filter: str
    version: Number


class Announce(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """To publishers: `broker` has (or no longer has) subscribers for these filters."""

    filters: Annotated[list[Announced], Meta(max_length=MOST_ANNOUNCED)]
    broker: BrokerRef
    present: bool


class Collect(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """To subscribers: tell your filters at these keys. After `seq` you get all I publish that matches."""

    broker: str = ""
    incarnation: Number = 0
    seq: Number = 0


class AgentCall(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """To agents with an attribute: run a method. `args` is anything MessagePack can hold."""

    attribute: str
    method: str
    args: tuple[Any, ...]
    serial: Number
    """With `origin`, names the call: an agent runs it once however often it is repeated."""
    origin: BrokerRef


class AnnounceTree(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """To publishers: `broker` takes the topic from the OpenFlow tree (address "": from none any more)."""

    topic: str
    broker: BrokerRef
    version: Number
    address: str
    epoch: int


class Survey(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """To all brokers, from the one that designs the overlay: tell your filters, and the topics you publish to."""


class TopicTree(msgspec.Struct, frozen=True, array_like=True):
    """The designed tree of one topic."""

    topic: str
    nodes: list[Number]
    """Numbers of brokers, the root first, a parent before its children; empty: the topic has no tree any more."""
    parents: list[Number]
    """Of each node but the root, where its parent stands in `nodes`."""


class DesignPart(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """To brokers: a part of the design of the overlay."""

    designer: str
    epoch: int
    """With `designer`, names a run of designs: the greater (epoch, designer) holds."""
    base: int
    """The part that this one follows; 0: none, it begins a design sent as a whole."""
    serial: int
    """Number of this part."""
    names: list[str]
    """The brokers that the trees number."""
    trees: list[TopicTree]


class Record(msgspec.Struct, frozen=True, array_like=True):
    """A retained message; one without payload says that there is none any more."""

    message: Message
    expires: Number
    """Milliseconds since the epoch; 0 for never."""
    origin: BrokerRef
    """The publisher's broker."""
    seq: Number
    """The number it gave to the publication."""


class Keep(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """To holders of a bucket of retained messages: keep these, unless you have later ones."""

    records: list[Record]


class Absent(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """To all brokers: which of these clients are connected to you?"""

    clients: list[str]


class Recall(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """To holders: tell the retained messages that match one of these filters (None: all in these buckets)."""

    topic_filters: Annotated[list[str], Meta(max_length=MOST_ANNOUNCED)] | None
    limit: Number = 0
    """If there are more than so many, say only that; 0: there is no limit."""


class SessionLease(msgspec.Struct, frozen=True, array_like=True):
    """A broker has, or is about to have, the session of a client."""

    client: str
    broker: BrokerRef
    stamp: Stamp
    """Of the client's CONNECT there: the greatest one of a client is where it is. 0: nobody else was in the mesh."""
    kept: bool = False
    """The session outlives its connection, and so its broker: other brokers have copies."""


class Claim(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """To holders of a bucket of clients: these tenures begin, those have ended."""

    partition: Number
    broker: BrokerRef
    claimed: list[tuple[str, Stamp]]
    """Clients and stamps."""
    released: list[tuple[str, Stamp]]
    """The same: tenures up to these stamps have ended."""
    serial: int = 0
    """If not 0: `broker` has begun to hold the bucket itself, or, if not `holds`, has ended. The greatest counts."""
    holds: bool = False
    kept: list[str] = []
    """Those of the clients claimed whose sessions outlive their connections."""


class Roster(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """To all brokers, from one that begins to hold a bucket of clients: tell your tenures in it."""

    partition: Number


class Unsettled(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """To publishers: have all members got what you have published so far and these filters match?"""

    topic_filters: list[str]


class Inherit(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """To all brokers: I have adopted the sessions of a dead broker. Send me (`Bequest`) what it has missed."""

    owner: BrokerRef
    heir: BrokerRef
    serial: Number
    """Names the adoption, within this life of the heir."""
    turn: Number
    """Of asking, in this adoption."""
    topic_filters: list[str]
    """What is wanted: the sessions' subscriptions."""


class Missing(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """To all brokers, after a cut: I keep what some have missed of my publications. Say what you want (`Wishes`)."""

    broker: BrokerRef
    round: Number
    start: Number
    """As in `Missed`."""


Body = (
    Announce
    | Collect
    | AgentCall
    | AnnounceTree
    | Survey
    | DesignPart
    | Keep
    | Recall
    | Absent
    | Claim
    | Roster
    | Unsettled
    | Inherit
    | Missing
)


class Baseline(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Answer to `Announce`: from which number on, exclusively, the broker gets all I publish that matches each of the
    filters; None for those that do not concern me."""

    broker: str
    incarnation: Number
    seqs: Annotated[list[Number | None], Meta(max_length=MOST_ANNOUNCED)]


class Interest(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Answer to `Collect`: a filter of mine."""

    topic_filter: str
    broker: BrokerRef
    version: Number


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Answer of one agent to `AgentCall`."""

    agent: str
    value: Any
    error: str | None = None


class TreeMember(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Answer to `Collect`: I take the topic from this OpenFlow tree."""

    topic: str
    broker: BrokerRef
    version: Number
    address: str
    epoch: int


class Surveyed(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Answer to `Survey`, with the last part of a design that the broker has."""

    broker: BrokerRef
    filters: list[str]
    topics: list[str]
    designer: str
    epoch: int
    serial: int


class Kept(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Answer to `Keep`: I hold this bucket."""

    broker: BrokerRef
    partition: Number
    ready: bool
    """I have all that was kept in it before, and am not leaving."""


class Stored(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Answer to `Recall`, and to `Announce`: retained messages that I hold, or have just published."""

    records: list[Record]
    more: bool = False
    """There are more than the limit: ask for each bucket by itself."""


class Here(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Answer to `Absent`: these."""

    clients: list[str]


class SessionLeases(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Answer to `Claim`: the tenures that other brokers have of these clients; and to `Roster`: mine."""

    broker: BrokerRef
    ready: bool
    """I know all tenures of the bucket."""
    leases: list[SessionLease]
    holders: list[BrokerRef] = []
    """With the answer to `Claim`: who holds the bucket beside me."""


class Outstanding(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Answer to `Unsettled`."""

    broker: str
    incarnation: Number
    seq: Number
    """My last publication."""
    lowest: Number
    """The first one that matches and not all members have acknowledged; 0: there is none."""


class Bequeathed(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """Answer to `Inherit`: so many frames with publications are on their way to the heir."""

    broker: str
    frames: Number


Result = (
    Baseline | Interest | Answer | TreeMember | Surveyed | Kept | Stored | Here | SessionLeases | Outstanding | Bequeathed
)
Segment = tuple[Key, Key]
"""``[key of a node, end)``: the part of a range that the node answers for."""


class Locate(Routed, tag=11):
    """Routed to the predecessor of `low`, which spreads the call over ``[low, high)``."""

    origin: BrokerRef
    part: Number
    low: Key
    high: Key
    body: Body


class Broadcast(Frame, tag=12):
    """Runs the call at the nodes of the segments."""

    origin: BrokerRef
    part: Number
    segments: list[Segment]
    body: Body
    depth: Hops


class Gathered(Frame, tag=13):
    """The aggregated reply to `Broadcast` (or, from the first node, to `Locate`) number `part`."""

    part: Number
    results: list[Result]
    complete: bool
    depth: Hops
    """Hops of the longest branch, counted from the caller."""
    outdated: bool = False
    """A part is with brokers of an older version, that cannot answer: to ask again is of no use."""


class Gone(Frame, tag=26):
    """You sent me something for the node at `key`, but there is none."""

    key: Key


# --- before joining -----------------------------------------------------------------------------------


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


# --- failure detection --------------------------------------------------------------------------------


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


# --- multicast -------------------------------------------------------------------------------------------


class DefineBroker(Frame, tag=18):
    """On this link, in this direction, `number` stands for `ref` from now on."""

    number: Given
    ref: BrokerRef


class DefineSlice(Frame, tag=19):
    """On this link, in this direction, `number` stands for these brokers from now on."""

    number: Given
    brokers: Annotated[list[Given], Meta(max_length=LARGEST_SLICE)]


class Part(msgspec.Struct, array_like=True, frozen=True):
    """A topic of a `Publish`."""

    topic: str
    prev: Number
    """Sequence number of the origin's previous publication to the topic before the first one here, 0 if there is none
    to wait for. Of each later one here it is the one before it here."""


class Publish(Frame, tag=20):
    """Publications of one broker with one quality of service, for the receiver and for the brokers of the slice."""

    origin: Meant
    """Number of the publishers' broker."""
    slice: Meant
    """Number of the slice, 0 for the empty one."""
    token: Number
    """Number of the acknowledgement asked for, 0 for none."""
    qos: Quality
    retain: bool
    parts: Annotated[list[Part], Meta(min_length=1, max_length=MOST)]
    """Each to another topic."""
    which: Annotated[list[Annotated[int, Meta(ge=0, lt=MOST)]], Meta(min_length=1, max_length=MOST)]
    """Of each publication the place of its topic in `parts`."""
    seqs: Annotated[list[Number], Meta(max_length=MOST)]
    """Of each publication its sequence number at the origin; ascending for each topic."""
    payloads: Annotated[list[bytes], Meta(max_length=MOST)]
    properties: Annotated[list[Properties], Meta(max_length=MOST)] = []
    """Those that its publications have, each once as a rule."""
    given: Annotated[list[Annotated[int, Meta(ge=0, le=MOST)]], Meta(max_length=MOST)] = []
    """Of each publication the place of its properties, from 1 on, 0 if it has none; empty if none has any."""


class Ack(Frame, tag=21):
    """The aggregated reply to `Publish`: everyone has it except `missing`."""

    token: Number
    reached: Annotated[list[tuple[Count, Count]], Meta(min_length=1, max_length=MOST)]
    """Of each part: the brokers and the subscribers that have it."""
    missing: list[BrokerRef]


class Nack(Frame, tag=22):
    """To the origin: its publication `seq` to `topic` has not come."""

    topic: str
    seq: Number
    after: Number | None = None
    """The last one that has come; None if that says nothing about those between."""


class Skip(Frame, tag=23):
    """From the origin: do not wait for `seq`; it was sent with QoS 0, or not to you, or by somebody else."""

    topic: str
    seq: Number
    given: Number | None = None
    """If `seq` is none of its own: the last number that is."""


class OfmAck(Frame, tag=31):
    """To the origin: of what you sent by the topic's OpenFlow tree I have delivered everything up to `seq`."""

    topic: str
    seq: Number
    subscribers: Count
    """How many subscribers the last message reached."""
    origin: BrokerRef | None = None
    """Whose publications, if the receiver has sent them along the tree for somebody in another domain."""


class HighWater(Frame, tag=32):
    """From the origin: my last publication to `topic` was `seq`. Have you got it?"""

    topic: str
    seq: Number
    origin: BrokerRef | None = None
    """Whose publication it was, if the sender stands for somebody in another domain."""


# --- retained messages ---------------------------------------------------------------------------------------


class Enlist(Frame, tag=33):
    """Hold this bucket of retained messages, too."""

    partition: Number
    serial: Number


class Enlisted(Frame, tag=34):
    """Answers `Enlist`: I hold it, and have all that was kept in it; or I cannot, as I am leaving."""

    serial: Number
    taken: bool


# --- shared subscriptions -------------------------------------------------------------------------------------


class GroupDelivery(Frame, tag=35):
    """A publication for one member of a shared subscription, if you have one that is ready."""

    serial: Number
    """Names it, within this life of the sender."""
    topic_filter: str
    """``$share/group/filter``."""
    topic: str
    payload: bytes
    qos: Quality
    forced: bool
    """For a member that is away, too."""
    properties: Properties | None = None


class Handed(Frame, tag=36):
    """Answers `GroupDelivery`: a member has been given it, or none was ready."""

    serial: Number
    taken: bool


class Settled(Frame, tag=37):
    """After `Handed`, with QoS 1 and 2: the member has it."""

    serial: Number


# --- wills --------------------------------------------------------------------------------------------------------


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


# --- group keys of OFM ------------------------------------------------------------------------------------------


class GroupKeys(msgspec.Struct, frozen=True, array_like=True):
    """From the key server of a topic's OFM to its brokers (`saps.ofm.keys`)."""

    topic: str
    group: bytes
    """Names the hierarchy of keys."""
    root: int
    """Which of its keys is the group's secret now; 0: there is none for you any more."""
    wraps: list[tuple[int, int, bytes]]
    """(key, the key under which it is wrapped, the wrapped key), lower ones first."""
    overlap: Seconds
    """Seconds for which what was sealed before is still accepted."""
    leaf: tuple[int, bytes] | None = None
    """The receiver's own key, and its name: this frame must not pass through another broker."""


class Tell(Frame, tag=50):
    """Keys for the receiver and for the brokers of the slice, to be passed on."""

    token: Number
    patience: Seconds
    """Seconds within which the sender wants to know who has not got them."""
    slice: list[BrokerRef]
    body: GroupKeys


class Told(Frame, tag=51):
    """The aggregated reply to `Tell`: everyone holds the group's key except `missing`."""

    token: Number
    missing: list[BrokerRef]


# --- sessions that move ---------------------------------------------------------------------------------------------


class TakeOver(Frame, tag=60):
    """This client has connected to me: close its connection to you, and hand me its session."""

    serial: Number
    """Names the hand-over, within this life of the sender."""
    client: str
    stamp: Stamp
    """Of my tenure."""
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
    broker. 4: I have a later tenure. 5: it is another user's."""


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
    """I have a session of this client, and you the later tenure: end mine, or say nothing if you have none."""

    client: str


# --- copies of sessions -----------------------------------------------------------------------------------------------


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


# --- cuts ---------------------------------------------------------------------------------------------------


class Missed(Frame, tag=90):
    """To a broker that was taken for dead and is heard again: you have missed something. Say what you want."""

    round: Number
    """Of making up, at this broker; the greatest holds."""
    start: Number
    """The number of my last publication before: of those up to it I owe you only what I make up."""


class Intent(msgspec.Struct, frozen=True, array_like=True):
    """A filter that a broker has subscribers for."""

    topic_filter: str
    version: Number
    """As in `Announced`."""
    age: Delay
    """Seconds for which it has had some."""


class Wishes(Frame, tag=91):
    """Answers `Missed`, and `Missing`: all my filters, in parts."""

    round: Number
    number: Number
    """Of the part, from 0 on."""
    last: bool
    intents: Annotated[list[Intent], Meta(max_length=MOST_ANNOUNCED)]


class MadeUp(Frame, tag=92):
    """What the receiver has missed of the sender's publications and wants, in their order."""

    round: Number
    serial: Number
    """Of the frame in this round: from 1 on, without gaps."""
    bodies: Annotated[list[Publish], Meta(max_length=MOST)]
    """Without addresses. No part of them waits for a predecessor."""


class Caught(Frame, tag=93):
    """Answers `MadeUp`: I have everything up to `serial`."""

    round: Number
    serial: Number


# --- leaving ------------------------------------------------------------------------------------------------


class Leave(Frame, tag=24):
    """I am leaving: after your `LeaveAck` send me nothing more."""


class LeaveAck(Frame, tag=25):
    """All I ever sent you was sent before this."""


AnyFrame = (
    Insert
    | Inserted
    | SetLeft
    | Unlink
    | Unlinked
    | Relink
    | Seek
    | Level
    | Find
    | Found
    | Locate
    | Broadcast
    | Gathered
    | Ping
    | Pong
    | Forgot
    | Heal
    | DefineBroker
    | DefineSlice
    | Publish
    | Ack
    | Nack
    | Skip
    | Leave
    | LeaveAck
    | Gone
    | Check
    | RingSplit
    | Whois
    | Known
    | StartProbe
    | There
    | OfmAck
    | HighWater
    | Enlist
    | Enlisted
    | GroupDelivery
    | Handed
    | Settled
    | Guard
    | Unguard
    | Mourned
    | TakeOver
    | TakeOverAnswer
    | Pull
    | Snapshot
    | Arrived
    | Departed
    | Offer
    | Append
    | Appended
    | Heir
    | HeirAnswer
    | Inherited
    | Bequest
    | Missed
    | Wishes
    | MadeUp
    | Caught
    | Tell
    | Told
)
