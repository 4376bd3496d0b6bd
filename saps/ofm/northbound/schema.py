"""What travels between OFGate and the OFC, as JSON; `openapi` describes exactly these types.

Decoding checks everything: `BrokerAddress` is in canonical form afterwards, so that equal lists compare equal.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from saps.ofm.network.topology import BrokerAddress

Priority = Annotated[int, msgspec.Meta(ge=0, le=7, description="0 is the lowest; 7 passes everything else.")]
"""How urgent a topic's packets are: the class selector of their DSCP (RFC 2474, 4.2.2) and their egress queue."""
Topic = Annotated[str, msgspec.Meta(min_length=1, max_length=65535)]
"""A topic's name; the controller gives it no meaning beyond equality."""


OVERHEAD = 110
"""Bytes around a payload on the wire, roughly: Ethernet, IPv6 and UDP headers, and what `datagram` adds."""


class Status(StrEnum):
    """What becomes of an OFM. A publisher may use the address only while it is `CONSTRUCTED` (SAPS 2016, 3.1.2)."""

    NONE = "none"
    """Nobody has asked for it, or it is gone."""
    CONSTRUCTING = "constructing"
    """Not yet complete for the first time; `reason` tells what is waited for, if anything."""
    CONSTRUCTED = "constructed"
    """All brokers asked for are connected; every switch has confirmed its part."""
    UPDATING = "updating"
    """Was constructed; now the brokers or the network have changed. `brokers` are connected meanwhile."""
    DELETING = "deleting"
    """Nobody wants it any more; the switches still have parts of it."""
    REFUSED = "refused"
    """What was asked for cannot be had, for the `reason`. What was there before, if it still works, stays:
    `address` and `brokers` tell."""


class Demand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a topic takes on each link of its tree: `rate`, or `messages` of `size`. Raises `ValueError` for neither."""

    rate: float | None = None
    """bit/s."""
    messages: float | None = None
    """Messages a second."""
    size: float = 256.0
    """Bytes of a message's payload, on average."""

    def __post_init__(self) -> None:
        if (self.rate is None) == (self.messages is None):
            raise ValueError("a demand is a rate, or messages and their size")
        if not self.size >= 0 or not 0 <= (self.rate or 0) + (self.messages or 0) < float("inf"):
            raise ValueError("a demand must not be negative")

    @property
    def bits(self) -> float:
        """bit/s on each link."""
        return self.rate if self.rate is not None else (self.messages or 0.0) * (self.size + OVERHEAD) * 8


class OfmIntent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an OFM shall be: the body of a PUT. Order and repetition in the lists mean nothing."""

    brokers: list[BrokerAddress]
    """The broker list: all of them send and receive."""
    senders: list[BrokerAddress] = []
    """Brokers that only send: they get their loopback packets and nothing else."""
    priority: Priority | None = None
    """None: no marks, no queue."""
    demand: Demand | None = None
    """What is expected; None: nobody knows."""


class OfmRequest(msgspec.Struct, frozen=True):
    """An intent and the topic it is for."""

    topic: Topic
    brokers: list[BrokerAddress]
    priority: Priority | None = None
    senders: list[BrokerAddress] = []
    demand: Demand | None = None

    @property
    def intent(self) -> OfmIntent:
        """Without the topic."""
        return OfmIntent(brokers=self.brokers, senders=self.senders, priority=self.priority, demand=self.demand)


class OfmState(msgspec.Struct, frozen=True, kw_only=True):
    """An OFM as it is."""

    topic: Topic
    status: Status
    address: str | None = None
    """Where to send packets of the topic to: `239.77.0.1:5000`, `[ff05::1]:5000`; None if there is no tree."""
    brokers: list[BrokerAddress] = []
    """The brokers connected now, senders included, ascending: in the tree, and confirmed by their switches."""
    version: int = 0
    """Of two states of one OFM the later has the greater one."""
    reason: str | None = None
    """Why it is refused, or what it waits for: `waiting for 02:00:00:00:00:01`."""
    former: str | None = None
    """The address before the tree moved to other links; it still works for a while, for the brokers it had."""
    sets: list[list[BrokerAddress | None]] = []
    """Of stateless delivery (`saps.ofm.stateless.address.EVERY_TOPIC`): the broker at each bit of each set."""
    planes: list[int] = []
    """Of stateless delivery: the numbers of the planes that may be used."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What has changed since a revision."""

    run: str
    """Names this run of the controller: revisions of two runs have nothing to do with each other."""
    revision: int
    """Ask for what comes after this next."""
    ofms: list[OfmState]
    """The states that changed, as they are now; a deleted OFM has the status `none`."""
    complete: bool
    """`ofms` are all there are, because the revision asked for is of another run or too old: what is not among them
    is `none`."""


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """Use and limit of one resource of a switch."""

    used: int
    budget: int


class SwitchBudget(msgspec.Struct, frozen=True, kw_only=True):
    """What OFMs use of one switch."""

    dpid: str
    """16 hexadecimal digits."""
    connected: bool
    entries: Quota
    """Flow entries."""
    buckets: Quota
    """Group buckets."""
    alone: int = 0
    """Flow entries that there would be if none served several OFMs: with addresses that are codes, some do."""


class SwitchCount(msgspec.Struct, frozen=True, kw_only=True):
    """What one switch of a tree has counted: packets that entered the OFM's group there."""

    dpid: str
    packets: int
    bytes: int


class BrokerCount(msgspec.Struct, frozen=True, kw_only=True):
    """What one broker has sent to the OFM, counted at its switch."""

    broker: BrokerAddress
    packets: int
    bytes: int


class PortTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """What one port of a switch has counted since the switch knows it: everything, not only OFMs. A counter that the
    switch does not keep is 0."""

    dpid: str
    port: int
    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    dropped: int
    """Either way."""


class OfmStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of an OFM since its entries were installed. Bytes are of Ethernet frames."""

    topic: Topic
    switches: list[SwitchCount]
    senders: list[BrokerCount]


STANDBY = "urn:saps:problem:standby"
"""Type of the problem of a controller that another one takes the place of: ask that."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error (RFC 9457, `application/problem+json`)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str | None = None
    ofm: OfmState | None = None
    """The state of the OFM that the request was about, where there is one."""
