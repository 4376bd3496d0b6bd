"""Range calls: what is asked along the ring, and what is answered."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from saps.messages import Message
from saps.overlay.frames.base import MOST_ANNOUNCED, Frame
from saps.overlay.frames.ring import Routed
from saps.overlay.ring.keys import BrokerRef, Key
from saps.overlay.validation.ranges import Hops, Number, Stamp


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
    """To holders of a partition of retained messages: keep these, unless you have later ones."""

    records: list[Record]


class Absent(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """To all brokers: which of these clients are connected to you?"""

    clients: list[str]


class Recall(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """To holders: tell the retained messages that match one of these filters (None: all in these partitions)."""

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
    """To holders of a partition of clients: these leases begin, those have ended."""

    partition: Number
    broker: BrokerRef
    claimed: list[tuple[str, Stamp]]
    """Clients and stamps."""
    released: list[tuple[str, Stamp]]
    """The same: leases up to these stamps have ended."""
    serial: int = 0
    """If not 0: `broker` has begun to hold the partition itself, or, if not `holds`, has ended. The greatest counts."""
    holds: bool = False
    kept: list[str] = []
    """Those of the clients claimed whose sessions outlive their connections."""


class Roster(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """To all brokers, from one that begins to hold a partition of clients: tell your leases in it."""

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
    """To all brokers, after a cut: I keep what some have missed of my publications. Say what you want
    (`WantedFilters`)."""

    broker: BrokerRef
    round: Number
    start: Number
    """As in `Missed`."""


class Orphans(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """To all brokers: I have found copies of these logs' sessions in my file. Does anyone need them?"""

    logs: list[tuple[BrokerRef, Number]]
    """Owners, with the names of their logs."""


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
    | Orphans
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
    """Answer to `Keep`: I hold this partition."""

    broker: BrokerRef
    partition: Number
    ready: bool
    """I have all that was kept in it before, and am not leaving."""


class Stored(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Answer to `Recall`, and to `Announce`: retained messages that I hold, or have just published."""

    records: list[Record]
    more: bool = False
    """There are more than the limit: ask for each partition by itself."""


class Here(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Answer to `Absent`: these."""

    clients: list[str]


class SessionLeases(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Answer to `Claim`: the leases that other brokers have of these clients; and to `Roster`: mine."""

    broker: BrokerRef
    ready: bool
    """I know all leases of the partition."""
    leases: list[SessionLease]
    holders: list[BrokerRef] = []
    """With the answer to `Claim`: who holds the partition beside me."""


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


class Orphaned(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """Answer to `Orphans`."""

    broker: str
    reach: list[Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]]
    """Of each log: up to which commit I have it; 0: nothing, or not all of it. -1: nobody needs it, as I am its owner
    and have all of it, or have adopted the sessions."""


Result = (
    Baseline
    | Interest
    | Answer
    | TreeMember
    | Surveyed
    | Kept
    | Stored
    | Here
    | SessionLeases
    | Outstanding
    | Bequeathed
    | Orphaned
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
