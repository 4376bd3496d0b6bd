"""Frames with publications and their acknowledgements, retained messages, shared subscriptions, group keys."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from saps.local.batch import MOST
from saps.messages import Properties
from saps.overlay.frames.base import LARGEST_SLICE, MOST_ANNOUNCED, Frame
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.validation.ranges import Count, Delay, Given, Meant, Number, Quality, Seconds


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


class Enlist(Frame, tag=33):
    """Hold this partition of retained messages, too."""

    partition: Number
    serial: Number


class Enlisted(Frame, tag=34):
    """Answers `Enlist`: I hold it, and have all that was kept in it; or I cannot, as I am leaving."""

    serial: Number
    taken: bool


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


class Missed(Frame, tag=90):
    """To a broker that was taken for dead and is heard again: you have missed something. Say what you want."""

    round: Number
    """Of making up, at this broker; the greatest holds."""
    start: Number
    """The number of my last publication before: of those up to it I owe you only what I make up."""


class WantedFilter(msgspec.Struct, frozen=True, array_like=True):
    """A filter that a broker has subscribers for."""

    topic_filter: str
    version: Number
    """As in `Announced`."""
    age: Delay
    """Seconds for which it has had some."""


class WantedFilters(Frame, tag=91):
    """Answers `Missed`, and `Missing`: all my filters, in parts; then those that came with others' sessions."""

    round: Number
    number: Number
    """Of the part, from 0 on."""
    last: bool
    filters: Annotated[list[WantedFilter], Meta(max_length=MOST_ANNOUNCED)]
    owner: BrokerRef | None = None
    """I have adopted sessions of this broker that have these filters: what it has missed is wanted here, too."""


class MadeUp(Frame, tag=92):
    """What the receiver has missed of the sender's publications and wants, in their order."""

    round: Number
    serial: Number
    """Of the frame in this round: from 1 on, without gaps."""
    bodies: Annotated[list[Publish], Meta(max_length=MOST)]
    """Without addresses. No part of them waits for a predecessor."""
    origin: BrokerRef | None = None
    """The earlier life of the sender that has published them; None: the sender."""


class Caught(Frame, tag=93):
    """Answers `MadeUp`: I have everything up to `serial`."""

    round: Number
    serial: Number
