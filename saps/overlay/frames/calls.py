"""Range calls: their frames, their bodies (questions to brokers along the ring) and their results (the answers)."""

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
    """A filter, and the number of the change of its broker's filters. A greater version overrides a smaller one."""

    topic_filter: str
    version: Number


class Announce(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """To publishers: `broker` has (or no longer has) subscribers for these filters."""

    filters: Annotated[list[Announced], Meta(max_length=MOST_ANNOUNCED)]
    broker: BrokerRef
    present: bool


class Collect(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """To subscribers: name your filters at these keys. I send you all matching publications after my number `seq`."""

    broker: str = ""
    incarnation: Number = 0
    seq: Number = 0


class AgentCall(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """To agents with an attribute: run a method. `args` are any values that MessagePack can hold."""

    attribute: str
    method: str
    args: tuple[Any, ...]
    serial: Number
    """Names the call, with `origin`. An agent runs a call once, however often the call is repeated."""
    origin: BrokerRef


class AnnounceTree(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """To publishers: `broker` receives the topic from the OpenFlow tree at `address` (empty: from none any more)."""

    topic: str
    broker: BrokerRef
    version: Number
    address: str
    epoch: int


class Survey(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """To all brokers, from the designer of the overlay: name your filters, and the topics that you publish to."""


class TopicTree(msgspec.Struct, frozen=True, array_like=True):
    """The designed tree of one topic."""

    topic: str
    nodes: list[Number]
    """Indexes into `DesignPart.names`, the root first, a parent before its children. Empty if the topic has no tree any
    more."""
    parents: list[Number]
    """For each node but the root, the index of its parent in `nodes`."""


class DesignPart(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """To brokers: apply this part of the design of the overlay."""

    designer: str
    epoch: int
    """Names a run of designs, with `designer`. The greatest (epoch, designer) holds."""
    base: int
    """Number of the part that this part follows; 0 if it begins a whole design."""
    serial: int
    """Number of this part."""
    names: list[str]
    """Names of the brokers in `trees`."""
    trees: list[TopicTree]


class Record(msgspec.Struct, frozen=True, array_like=True):
    """A retained message. An empty payload says that the topic has no retained message any more."""

    message: Message
    expires: Number
    """Expiry in milliseconds since the epoch; 0 for never."""
    origin: BrokerRef
    """The publisher's broker."""
    seq: Number
    """Sequence number of the publication at `origin`."""


class Keep(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """To holders of a partition of retained messages: store these records, unless you have later ones."""

    records: list[Record]


class Absent(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """To all brokers: which of these clients are connected to you?"""

    clients: list[str]


class Recall(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """To holders: return the retained messages that match one of these filters (None: all in these partitions)."""

    topic_filters: Annotated[list[str], Meta(max_length=MOST_ANNOUNCED)] | None
    limit: Number = 0
    """Most records wanted; 0 for no limit. If there are more, or too many bytes, return none and set `Stored.more`."""
    after: str = ""
    """Without a limit: the first records behind this topic are wanted, in the order of topics. If there are too many
    bytes, set `Stored.more`."""


class SessionLease(msgspec.Struct, frozen=True, array_like=True):
    """The lease of a broker that has the session of a client, or is about to have it."""

    client: str
    broker: BrokerRef
    stamp: Stamp
    """Stamp of the client's CONNECT at the broker. The greatest stamp of a client wins. 0: the broker was alone in the
    mesh."""
    kept: bool = False
    """Whether the session outlives its connection; then other brokers have copies, so that it outlives its broker."""


class Claim(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """To holders of a partition of clients: these leases begin, those have ended."""

    partition: Number
    broker: BrokerRef
    claimed: list[tuple[str, Stamp]]
    """Clients and stamps of the leases that begin."""
    released: list[tuple[str, Stamp]]
    """Clients and stamps: leases up to these stamps have ended."""
    serial: int = 0
    """Number of the last change of `holds`, or 0 if `holds` says nothing. The greatest counts."""
    holds: bool = False
    """Whether `broker` itself holds the partition."""
    kept: list[str] = []
    """The claimed clients whose sessions outlive their connections."""


class Roster(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """To all brokers, from a broker that begins to hold a partition of clients: name your leases in it."""

    partition: Number


class Unsettled(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """To publishers: have all members got your publications so far that match these filters?"""

    topic_filters: list[str]
    source: BrokerRef | None = None
    """A broker that must also have got those that it missed when it was cut off or stood still."""


class Inherit(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """To all brokers: I (`heir`) have adopted the sessions of a dead broker (`owner`). Send me your publications that
    the owner has missed (`Bequest`)."""

    owner: BrokerRef
    heir: BrokerRef
    serial: Number
    """Names the adoption, within this incarnation of the heir."""
    turn: Number
    """Number of this request in the adoption."""
    topic_filters: list[str]
    """The filters of the sessions' subscriptions."""


class Missing(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """To all brokers, after a cut: I have a log of my publications that some brokers have missed. Name the filters that
    you want (`WantedFilters`)."""

    broker: BrokerRef
    round: Number
    start: Number
    """The number of my last publication before the log."""


class Orphans(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """To all brokers: I have found copies of the sessions of these logs in my file. Does anyone need them?"""

    logs: list[tuple[BrokerRef, Number]]
    """Owners of the sessions, each with the name of its log."""


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
    """Answer to `Announce`: I send the announcing broker all my matching publications after these numbers."""

    broker: str
    incarnation: Number
    seqs: Annotated[list[Number | None], Meta(max_length=MOST_ANNOUNCED)]
    """For each announced filter my last number before it counts; None if I keep no record of the filter."""


class Interest(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Answer to `Collect`: a filter of mine."""

    topic_filter: str
    broker: BrokerRef
    version: Number


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Answer to `AgentCall`, from one agent: what its method returned, or why it did not."""

    agent: str
    value: Any
    error: str | None = None


class TreeMember(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Answer to `Collect`: I receive the topic from this OpenFlow tree."""

    topic: str
    broker: BrokerRef
    version: Number
    address: str
    epoch: int


class Surveyed(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Answer to `Survey`: my filters, the topics that I publish to, and the last part of a design that I have."""

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
    """I have all records kept in the partition before, and am not leaving."""


class Stored(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Answer to `Recall`: retained messages that I hold. Answer to `Announce`: those that I have just published."""

    records: list[Record]
    more: bool = False
    """I have more. With a limit in the question: ask for each partition separately. Without: ask for those behind the
    last of these records."""


class Here(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Answer to `Absent`: these clients are connected to me."""

    clients: list[str]


class SessionLeases(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Answer to `Claim`: the leases that other brokers have of these clients. Answer to `Roster`: my leases."""

    broker: BrokerRef
    ready: bool
    """I know all leases of the partition."""
    leases: list[SessionLease]
    holders: list[BrokerRef] = []
    """In the answer to `Claim`: the other holders of the partition."""
    bereft: bool = False
    """In the answer to `Claim`: all former holders of the partition have died lately. Some leases may be known only to
    brokers that stand still."""


class Outstanding(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Answer to `Unsettled`: the state of my publications."""

    broker: str
    incarnation: Number
    seq: Number
    """The number of my last publication."""
    lowest: Number
    """The number of my first matching publication that some member, or `source`, may lack; 0 if there is none."""


class Bequeathed(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """Answer to `Inherit`: I have sent the heir this number of `Bequest` frames."""

    broker: str
    frames: Number


class Orphaned(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """Answer to `Orphans`: what I have of these logs."""

    broker: str
    reach: list[Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]]
    """For each log the last commit that I have; 0 if I have nothing, or not all before it. -1: nobody needs the log, as
    I am its owner and have all of it, or have adopted its sessions."""


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
"""``[key of a node, end)``: the part of a range for which the node answers."""


class Locate(Routed, tag=11):
    """Runs a call in a range: routed to the predecessor of `low`, which spreads the call over ``[low, high)``."""

    origin: BrokerRef
    part: Number
    low: Key
    high: Key
    body: Body


class Broadcast(Frame, tag=12):
    """Runs a call at the nodes of these segments."""

    origin: BrokerRef
    part: Number
    segments: list[Segment]
    body: Body
    depth: Hops


class Gathered(Frame, tag=13):
    """The aggregated reply to the `Broadcast` (or, from the first node, to the `Locate`) with the number `part`."""

    part: Number
    results: list[Result]
    complete: bool
    depth: Hops
    """Hops of the longest branch, counted from the caller."""
    outdated: bool = False
    """A part of the range is at brokers of an older version, which cannot answer. Asking again is of no use."""


class Gone(Frame, tag=26):
    """You sent me a frame for the node at `key`, but I have no such node."""

    key: Key
