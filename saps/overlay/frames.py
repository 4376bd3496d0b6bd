"""What brokers say to each other: one struct a frame, tagged with a number. docs/wire-protocol.md is the specification.

Frames of one link session arrive in the order sent, without gaps, until the link goes down.
"""

from __future__ import annotations

from typing import Any

import msgspec

from saps.messages import Message, Properties
from saps.overlay.keys import BrokerRef, Key, Ref


class ProtocolError(ValueError):
    """A peer broke the protocol; its link must be closed."""


class Frame(msgspec.Struct, array_like=True):
    """Base of all frames."""


# --- Skip Graph: list maintenance -----------------------------------------------------------------


class Routed(Frame):
    """Base of the frames that go, hop by hop, to the predecessor of a key."""

    hops: int
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
    hops: int
    doubt: float
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
    doubt: float


class Unlinked(Frame, tag=5):
    """The node `ref` is not in the overlay any more."""

    ref: Ref
    by: Ref
    """The predecessor that unlinked it."""


class Relink(Frame, tag=6):
    """To the node at `at`: your neighbour `gone` has left the list of `level`; `ref` stands behind it."""

    at: Key
    level: int
    rightward: bool
    gone: Key
    ref: Ref | None


class Seek(Frame, tag=7):
    """Walks the list of level ``level - 1`` until a node shares `level` bits of its membership vector with `origin`."""

    at: Key
    level: int
    rightward: bool
    origin: Ref
    ttl: int


class Level(Frame, tag=8):
    """Answers `Seek`: the neighbour of the node at `at` in the list of `level`, None at the end of the list."""

    at: Key
    level: int
    rightward: bool
    found: Ref | None


class Find(Routed, tag=9):
    """Routed to the predecessor of `target`, which answers `Found` to `origin`."""

    target: Key
    origin: BrokerRef
    token: int


class Found(Frame, tag=10):
    token: int
    left: Ref
    right: Ref | None
    hops: int


class Check(Frame, tag=27):
    """To the node at `at`: do you point at `ref`, which takes you for its left neighbour? Needs no answer if so."""

    at: Key
    ref: Ref
    doubt: float = 0.0
    """Seconds for which it is in doubt what is behind `ref`; before `ref` too if both were put into one gap."""


class Astray(Frame, tag=28):
    """Answers `Check`: no. `ref` must be inserted again, or has a wrong left link."""

    ref: Ref


# --- range calls ------------------------------------------------------------------------------------


class Announce(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """To publishers: `broker` has (or no longer has) subscribers for a filter."""

    topic_filter: str
    broker: BrokerRef
    version: int
    present: bool


class Collect(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """To subscribers: tell your filters at these keys. After `seq` you get all I publish that matches."""

    broker: str = ""
    incarnation: int = 0
    seq: int = 0


class AgentCall(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """To agents with an attribute: run a method. `args` is anything MessagePack can hold."""

    attribute: str
    method: str
    args: tuple[Any, ...]
    serial: int
    """With `origin`, names the call: an agent runs it once however often it is repeated."""
    origin: BrokerRef


class AnnounceTree(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """To publishers: `broker` takes the topic from the OpenFlow tree (address "": from none any more)."""

    topic: str
    broker: BrokerRef
    version: int
    address: str
    epoch: int


class Survey(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """To all brokers, from the one that designs the overlay: tell your filters, and the topics you publish to."""


class TopicTree(msgspec.Struct, frozen=True, array_like=True):
    """The designed tree of one topic."""

    topic: str
    nodes: list[int]
    """Numbers of brokers, the root first, a parent before its children; empty: the topic has no tree any more."""
    parents: list[int]
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
    expires: int
    """Milliseconds since the epoch; 0 for never."""
    origin: BrokerRef
    """The publisher's broker."""
    seq: int
    """The number it gave to the publication."""


class Keep(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """To holders of a bucket of retained messages: keep these, unless you have later ones."""

    records: list[Record]


class Absent(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """To all brokers: which of these clients are connected to you?"""

    clients: list[str]


class Recall(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """To holders: tell the retained messages that match (None: all in these buckets)."""

    topic_filter: str | None
    limit: int = 0
    """If there are more than so many, say only that; 0: there is no limit."""


class Tenure(msgspec.Struct, frozen=True, array_like=True):
    """A broker has, or is about to have, the session of a client."""

    client: str
    broker: BrokerRef
    stamp: int
    """Of the client's CONNECT there: the greatest one of a client is where it is. 0: nobody else was in the mesh."""


class Claim(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """To holders of a bucket of clients: these tenures begin, those have ended."""

    bucket: int
    broker: BrokerRef
    claimed: list[tuple[str, int]]
    """Clients and stamps."""
    released: list[tuple[str, int]]
    """The same: tenures up to these stamps have ended."""


class Roster(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """To all brokers, from one that begins to hold a bucket of clients: tell your tenures in it."""

    bucket: int


class Unsettled(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """To publishers: have all members got what you have published so far and these filters match?"""

    topic_filters: list[str]


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
)


class Baseline(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Answer to `Announce`: from `seq` on, exclusively, the broker gets all I publish that matches."""

    broker: str
    incarnation: int
    seq: int


class Interest(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Answer to `Collect`: a filter of mine."""

    topic_filter: str
    broker: BrokerRef
    version: int


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Answer of one agent to `AgentCall`."""

    agent: str
    value: Any
    error: str | None = None


class TreeMember(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Answer to `Collect`: I take the topic from this OpenFlow tree."""

    topic: str
    broker: BrokerRef
    version: int
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
    bucket: int
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


class Tenures(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Answer to `Claim`: the tenures that other brokers have of these clients; and to `Roster`: mine."""

    broker: BrokerRef
    ready: bool
    """I know all tenures of the bucket."""
    tenures: list[Tenure]


class Outstanding(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Answer to `Unsettled`."""

    broker: str
    incarnation: int
    seq: int
    """My last publication."""
    lowest: int
    """The first one that matches and not all members have acknowledged; 0: there is none."""


Result = Baseline | Interest | Answer | TreeMember | Surveyed | Kept | Stored | Here | Tenures | Outstanding
Segment = tuple[Key, Key]
"""``[key of a node, end)``: the part of a range that the node answers for."""


class Locate(Routed, tag=11):
    """Routed to the predecessor of `low`, which spreads the call over ``[low, high)``."""

    origin: BrokerRef
    part: int
    low: Key
    high: Key
    body: Body


class Spread(Frame, tag=12):
    """Runs the call at the nodes of the segments."""

    origin: BrokerRef
    part: int
    segments: list[Segment]
    body: Body
    depth: int


class Gathered(Frame, tag=13):
    """The aggregated reply to `Spread` (or, from the first node, to `Locate`) number `part`."""

    part: int
    results: list[Result]
    complete: bool
    depth: int
    """Hops of the longest branch, counted from the caller."""


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


# --- failure detection --------------------------------------------------------------------------------


class Ping(Frame, tag=14):
    pass


class Pong(Frame, tag=15):
    pass


class Forgot(Frame, tag=16):
    """I had taken you for dead: insert your keys again, and announce your filters."""


class Heal(Frame, tag=17):
    """Flooded after a partition: insert your keys by way of `contact`, and announce your filters."""

    contact: BrokerRef
    serial: int


# --- multicast -------------------------------------------------------------------------------------------


class DefineBroker(Frame, tag=18):
    """On this link, in this direction, `number` stands for `ref` from now on."""

    number: int
    ref: BrokerRef


class DefineSlice(Frame, tag=19):
    """On this link, in this direction, `number` stands for these brokers from now on."""

    number: int
    brokers: list[int]


class Data(Frame, tag=20):
    """A publication, for the receiver and for the brokers of the slice."""

    origin: int
    """Number of the publisher's broker."""
    seq: int
    prev: int
    """Sequence number of the origin's previous publication to the same topic, 0 if there is none to wait for."""
    slice: int
    """Number of the slice, 0 for the empty one."""
    token: int
    """Number of the acknowledgement asked for, 0 for none."""
    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties | None = None


class Run(Frame, tag=41):
    """Publications to one topic, one right after the other: what so many `Data` would say, without retain flag and
    properties. Only to brokers that speak version 2."""

    origin: int
    seq: int
    """Sequence number of the first; those of the others follow one by one, each with the one before as `prev`."""
    prev: int
    """Of the first."""
    slice: int
    token: int
    """Number of the one acknowledgement asked for, 0 for none."""
    topic: str
    qos: int
    payloads: list[bytes]
    """At least one."""


class Ack(Frame, tag=21):
    """The aggregated reply to `Data` or `Run`: everyone has it except `missing`."""

    token: int
    brokers: int
    subscribers: int
    missing: list[BrokerRef]


class Nack(Frame, tag=22):
    """To the origin: its publication `seq` to `topic` has not come."""

    topic: str
    seq: int
    after: int | None = None
    """The last one that has come; None if that says nothing about those between."""


class Skip(Frame, tag=23):
    """From the origin: do not wait for `seq`; it was sent with QoS 0, or not to you."""

    topic: str
    seq: int


class OfmAck(Frame, tag=31):
    """To the origin: of what you sent by the topic's OpenFlow tree I have delivered everything up to `seq`."""

    topic: str
    seq: int
    subscribers: int
    """How many subscribers the last message reached."""
    origin: BrokerRef | None = None
    """Whose publications, if the receiver has sent them along the tree for somebody in another domain."""


class HighWater(Frame, tag=32):
    """From the origin: my last publication to `topic` was `seq`. Have you got it?"""

    topic: str
    seq: int
    origin: BrokerRef | None = None
    """Whose publication it was, if the sender stands for somebody in another domain."""


# --- retained messages ---------------------------------------------------------------------------------------


class Enlist(Frame, tag=33):
    """Hold this bucket of retained messages, too."""

    bucket: int
    serial: int


class Enlisted(Frame, tag=34):
    """Answers `Enlist`: I hold it, and have all that was kept in it; or I cannot, as I am leaving."""

    serial: int
    taken: bool


# --- shared subscriptions -------------------------------------------------------------------------------------


class Hand(Frame, tag=35):
    """A publication for one member of a shared subscription, if you have one that is ready."""

    serial: int
    """Names it, within this life of the sender."""
    topic_filter: str
    """``$share/group/filter``."""
    topic: str
    payload: bytes
    qos: int
    forced: bool
    """For a member that is away, too."""
    properties: Properties | None = None


class Handed(Frame, tag=36):
    """Answers `Hand`: a member has been given it, or none was ready."""

    serial: int
    taken: bool


class Settled(Frame, tag=37):
    """After `Handed`, with QoS 1 and 2: the member has it."""

    serial: int


# --- wills --------------------------------------------------------------------------------------------------------


class Will(msgspec.Struct, frozen=True, array_like=True):
    """What is to be published when a client is lost."""

    client: str
    serial: int
    """Grows with each will of the broker's clients."""
    delay: float
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
    serial: int


class Mourned(Frame, tag=40):
    """Between guardians of a broker that has died: these wills have been seen to."""

    broker: BrokerRef
    wills: list[tuple[str, int]]
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
    overlap: float
    """Seconds for which what was sealed before is still accepted."""
    leaf: tuple[int, bytes] | None = None
    """The receiver's own key, and its name: this frame must not pass through another broker."""


class Tell(Frame, tag=50):
    """Keys for the receiver and for the brokers of the slice, to be passed on."""

    token: int
    patience: float
    """Seconds within which the sender wants to know who has not got them."""
    slice: list[BrokerRef]
    body: GroupKeys


class Told(Frame, tag=51):
    """The aggregated reply to `Tell`: everyone holds the group's key except `missing`."""

    token: int
    missing: list[BrokerRef]


# --- sessions that move ---------------------------------------------------------------------------------------------


class TakeOver(Frame, tag=60):
    """This client has connected to me: close its connection to you, and hand me its session."""

    serial: int
    """Names the hand-over, within this life of the sender."""
    client: str
    stamp: int
    """Of my tenure."""
    user: str | None
    """Who has connected."""
    keep: bool
    """False: the session is not wanted any more, end it."""


class Yielded(Frame, tag=61):
    """Answers `TakeOver`."""

    serial: int
    answer: int
    """0: there is no session here (any more). 1: here it is, pull it. 2: not yet, ask again. 3: it is moving to another
    broker. 4: I have a later tenure. 5: it is another user's."""


class Pull(Frame, tag=62):
    """Send a part of the session."""

    serial: int
    stage: int
    """0: what it subscribes to; 1: what it has to deliver. The first pull of stage 1 ends what you take in for it."""
    part: int
    asked: list[tuple[BrokerRef, str]] = []
    """Publishing brokers and topics, with the first part of stage 1."""


class Luggage(Frame, tag=63):
    """Answers `Pull`."""

    serial: int
    stage: int
    part: int
    parts: int
    """How many the stage has; 0: not yet, ask again."""
    data: bytes
    """In the frontend's own terms."""
    passed: list[int] = []
    """For each of `asked`: the number of the last publication that has passed here."""


class Arrived(Frame, tag=64):
    """I have all of the session, stored if I store it: forget it."""

    serial: int


class Departed(Frame, tag=65):
    """Answers `Arrived`: it is yours; or (not `granted`) it is not, I go on with it. Also answers a `Pull` of a session
    that is not handed over any more."""

    serial: int
    granted: bool


class Offer(Frame, tag=66):
    """I have a session of this client, and you the later tenure: end mine, or say nothing if you have none."""

    client: str


# --- leaving ------------------------------------------------------------------------------------------------


class Bye(Frame, tag=24):
    """I am leaving: after your `Farewell` send me nothing more."""


class Farewell(Frame, tag=25):
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
    | Spread
    | Gathered
    | Ping
    | Pong
    | Forgot
    | Heal
    | DefineBroker
    | DefineSlice
    | Data
    | Run
    | Ack
    | Nack
    | Skip
    | Bye
    | Farewell
    | Gone
    | Check
    | Astray
    | Whois
    | Known
    | OfmAck
    | HighWater
    | Enlist
    | Enlisted
    | Hand
    | Handed
    | Settled
    | Guard
    | Unguard
    | Mourned
    | TakeOver
    | Yielded
    | Pull
    | Luggage
    | Arrived
    | Departed
    | Offer
    | Tell
    | Told
)
