"""Frames of publications and their acknowledgements, retained messages, shared subscriptions, group keys, catch-up."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from saps.messages import Properties
from saps.overlay.frames.base import LARGEST_SLICE, MOST_ANNOUNCED, Frame
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.validation.ranges import Count, Delay, Given, Meant, Number, Quality, Seconds
from saps.routing.batch import MOST


class DefineBroker(Frame, tag=18):
    """On this link, in this direction, the link id `number` stands for `ref` from now on."""

    number: Given
    ref: BrokerRef


class DefineSlice(Frame, tag=19):
    """On this link, in this direction, the link id `number` stands for these brokers (by link id) from now on."""

    number: Given
    brokers: Annotated[list[Given], Meta(max_length=LARGEST_SLICE)]


class Part(msgspec.Struct, array_like=True, frozen=True):
    """A topic of a `Publish`."""

    topic: str
    prev: Number
    """Predecessor of the frame's first publication to the topic: sequence number of the origin's previous publication
    to it, or 0 if there is none to wait for. The predecessor of each later publication is the one before it in the
    frame."""


class Publish(Frame, tag=20):
    """Publications of one broker with one quality of service, for the receiver and for the brokers of the slice."""

    origin: Meant
    """Link id of the publishers' broker."""
    slice: Meant
    """Link id of the slice, 0 for the empty one."""
    token: Number
    """Number of the acknowledgement asked for, 0 for none."""
    qos: Quality
    retain: bool
    parts: Annotated[list[Part], Meta(min_length=1, max_length=MOST)]
    """The topics of the publications; no topic stands twice."""
    which: Annotated[list[Annotated[int, Meta(ge=0, lt=MOST)]], Meta(min_length=1, max_length=MOST)]
    """For each publication, the index of its topic in `parts`."""
    seqs: Annotated[list[Number], Meta(max_length=MOST)]
    """For each publication, its sequence number at the origin; they ascend for each topic."""
    payloads: Annotated[list[bytes], Meta(max_length=MOST)]
    """For each publication, its payload."""
    properties: Annotated[list[Properties], Meta(max_length=MOST)] = []
    """The properties of the publications; shared properties stand once as a rule."""
    given: Annotated[list[Annotated[int, Meta(ge=0, le=MOST)]], Meta(max_length=MOST)] = []
    """For each publication, the place of its properties in `properties`, from 1 on, or 0 if it has none. Empty if no
    publication has properties."""


class Ack(Frame, tag=21):
    """The aggregated reply to `Publish`: I and all brokers of the slice have the publications, except `missing`."""

    token: Number
    reached: Annotated[list[tuple[Count, Count]], Meta(min_length=1, max_length=MOST)]
    """For each part, the number of brokers and the number of subscribers that have its publications."""
    missing: list[BrokerRef]


class Nack(Frame, tag=22):
    """To the origin: I miss your publication `seq` to `topic`. Repeat it."""

    topic: str
    seq: Number
    after: Number | None = None
    """I need nothing up to this number, so repeat those above it up to `seq`. None: repeat `seq` only. Equal to `seq`:
    only confirm or deny that `seq` is yours (`Skip`)."""


class Skip(Frame, tag=23):
    """From the origin: do not wait for `seq`. I sent it with QoS 0, or not to you, or never."""

    topic: str
    seq: Number
    given: Number | None = None
    """If I have never assigned `seq`: the last number that I have assigned."""


class OfmAck(Frame, tag=31):
    """To the sender along the topic's OpenFlow tree: I have delivered everything that you sent by it up to `seq`."""

    topic: str
    seq: Number
    subscribers: Count
    """Number of subscribers that the last message reached."""
    origin: BrokerRef | None = None
    """The publications' origin in another domain, if you sent them along the tree for it; None if they are yours."""


class HighWater(Frame, tag=32):
    """From the origin: my last publication to `topic` was `seq`. Have you got it?"""

    topic: str
    seq: Number
    origin: BrokerRef | None = None
    """The publication's origin in another domain, if I represent it in this domain; None if it is mine."""


class Enlist(Frame, tag=33):
    """Become a holder of this partition of retained messages, as I am."""

    partition: Number
    serial: Number


class Enlisted(Frame, tag=34):
    """Answers `Enlist`: I hold the partition with all its records (`taken`), or I cannot, as I am leaving."""

    serial: Number
    taken: bool


class GroupDelivery(Frame, tag=35):
    """Deliver this publication to one member of a shared subscription, if you have a member that is ready."""

    serial: Number
    """Names the delivery, within my incarnation."""
    topic_filter: str
    """``$share/group/filter``."""
    topic: str
    payload: bytes
    qos: Quality
    forced: bool
    """Whether a member that is not connected may take the publication as well."""
    properties: Properties | None = None


class Handed(Frame, tag=36):
    """Answers `GroupDelivery`: a member has taken the publication (`taken`), or none was ready."""

    serial: Number
    taken: bool


class Settled(Frame, tag=37):
    """Follows `Handed`, with QoS 1 and 2: the member has acknowledged the publication."""

    serial: Number


class GroupKeys(msgspec.Struct, frozen=True, array_like=True):
    """Group keys, from the key server of a topic's OFM to the topic's brokers (`saps.ofm.keys`)."""

    topic: str
    group: bytes
    """Names the key hierarchy."""
    root: int
    """Number of the key that is the group's secret now; 0 if the receiver is not in the group any more."""
    wraps: list[tuple[int, int, bytes]]
    """(key, the key under which it is wrapped, the wrapped key), lower ones first."""
    overlap: Seconds
    """Time for which messages sealed with the former secret are still accepted, in seconds."""
    leaf: tuple[int, bytes] | None = None
    """Number and bytes of the receiver's own key. A frame with it must not pass through another broker."""


class Tell(Frame, tag=50):
    """Take these keys, and pass them on to the brokers of the slice."""

    token: Number
    timeout: Seconds
    """Time within which I want the reply (`Told`), in seconds."""
    slice: list[BrokerRef]
    body: GroupKeys


class Told(Frame, tag=51):
    """The aggregated reply to `Tell`: I and all brokers of the slice hold the group's key, except `missing`."""

    token: Number
    missing: list[BrokerRef]


class Missed(Frame, tag=90):
    """To a broker that was declared dead and is heard again: you have missed publications. Name the filters that you
    want."""

    round: Number
    """Number of the catch-up round at me; the greatest holds."""
    start: Number
    """The number of my last publication before those that you missed. Of the ones up to it I owe you only what I send
    again (`MadeUp`)."""


class WantedFilter(msgspec.Struct, frozen=True, array_like=True):
    """A filter with subscribers at a broker."""

    topic_filter: str
    version: Number
    """As in `Announced`."""
    age: Delay
    """Time since the filter has subscribers, in seconds."""


class Former(msgspec.Struct, frozen=True, array_like=True):
    """A broker at which sessions were."""

    broker: BrokerRef
    age: Delay
    """Seconds since the first of them left it; as `Heirloom.age` if it was taken for dead."""
    came: Delay
    """Seconds since the last of them came to it; very many if they began there."""
    owed: bool
    """Whether they are owed what it had missed."""


MOST_GROUPS = 1 << 16
"""Most groups of sessions that a frame names."""
MOST_FORMER = 32
"""Most former brokers of a session that are named."""
MOST_CUT_OFF = 64
"""Most brokers that a frame names as cut off."""


class WantedFilters(Frame, tag=91):
    """Answers `Missed` and `Missing`: all my filters, in parts; then those of sessions that were at other brokers."""

    round: Number
    number: Number
    """Number of the part, from 0 on."""
    last: bool
    """Whether this is the last part."""
    filters: Annotated[list[WantedFilter], Meta(max_length=MOST_ANNOUNCED)]
    former: Annotated[list[Former], Meta(max_length=MOST_FORMER)] = []
    """A group of sessions with these filters was at these brokers, one after the other, and is here now: what went to
    one of them while they were there, they have. None: the filters are mine."""


class MadeUp(Frame, tag=92):
    """My publications that you have missed and want, in their order."""

    round: Number
    serial: Number
    """Number of the frame in this round: from 1 on, without gaps."""
    bodies: Annotated[list[Publish], Meta(max_length=MOST)]
    """Unaddressed frames. Their parts have no predecessors, so you need not wait for any."""
    origin: BrokerRef | None = None
    """My earlier incarnation that has published them; None for this one."""
    here: bool = True
    """Whether you have missed them."""
    sent: bool = False
    """Whether you were sent them, so that they come to all that are here by then."""
    groups: Annotated[list[Number], Meta(max_length=MOST_GROUPS)] = []
    """The groups of sessions that have missed them: `WantedFilters.number` of each."""
    after: Annotated[list[Part], Meta(max_length=MOST)] = []
    """By topic: the number (`prev`) of my publication before these, if I have sent you that one directly. It must come
    before you take these."""


class Caught(Frame, tag=93):
    """Answers `MadeUp`: I have all frames of the round up to `serial`."""

    round: Number
    serial: Number


class CaughtUp(Frame, tag=95):
    """To a broker that has caught up: all groups of sessions that it named in the round have what they had missed."""

    round: Number


class CutOff(Frame, tag=94):
    """Some brokers are cut off from `origin`: log what they miss, and pass this on."""

    names: Annotated[list[str], Meta(max_length=MOST_CUT_OFF)]
    origin: BrokerRef | None = None
    """The broker that has lost them. None: some have, and this frame is for its receiver alone."""
    serial: Number = 0
    """Number of the frame, within this incarnation of `origin`."""
