"""What a tree for a topic would save, and what it would cost: bytes a second that cross links (SAPS 2016, 3, 3.2, 3.3).

The network is a star of sites: a copy from one cluster to another crosses two links between clusters, up and down. ALM
sends one for each other cluster that wants the message, or more; a tree carries a message up once, and down once for
each. Within a site ALM's copies cross the sender's access link and the receiver's, the tree's only the receiver's, and
one loopback packet comes back. What is saved counts more the higher the topic's priority is.

A tree costs its upkeep: changes when brokers join and leave, questions to OFGate, high-water marks to members. And
while members are taken out nobody uses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from monitoring.forecasts.arrays import Value, larger, lesser, ratio

HEADER = 60
"""Bytes of headers of a message on a link: Ethernet, IP, transport, frame."""
MARK = 2 * (HEADER + 40)
"""Bytes of a high-water mark, on two access links; at most one each `MARK_EVERY` seconds and member (decision 032)."""
MARK_EVERY = 2.0
UPDATE = 2000.0
"""Bytes of one change of a tree: notice to OFGate, request to the OFC, flows and groups to the switches."""
REVOCATION = 600.0
"""Bytes for each publisher's broker when a member is taken out: its lease is revoked and asked for again (EITHER)."""
QUESTION = 2 * 300.0
"""Bytes of the questions about a tree within one lease, for each publisher's broker (EITHER)."""
LEASE = 10.0
"""Seconds."""
OUT = 0.5
"""Seconds without a tree when a member is taken out (EITHER): what is under way must have arrived."""
MIGRATION = 5.0
"""Seconds for which ALM serves who has joined, before it is in the tree (BOTH)."""
ANNOUNCEMENT = 200.0
"""Bytes for each publisher's broker when a member joins or leaves S(t$OFM) (BOTH)."""


@dataclass(slots=True)
class Shape:
    """How a topic's messages travel, as rates and means; of one topic, or of many with an array in each field."""

    rate: Value
    """Messages a second that are expected."""
    least: Value
    """As many there will be with a certainty of 80 %."""
    soon: Value
    """Messages a second that are expected in the next hour."""
    size: Value
    """Mean payload, bytes."""
    alm: Value
    """Copies between clusters that ALM sends of a message."""
    up: Value
    """Share of the messages that anybody in another cluster wants."""
    far: Value
    """Other clusters that want a message."""
    reach: Value
    """Other brokers that a message reaches."""
    joins: Value
    leaves: Value
    """Brokers a second."""
    senders: Value
    members: Value
    """Brokers."""
    priority: Value
    """0 to 7."""


class Score(NamedTuple):
    """In bytes a second over links."""

    saving: Value
    """Weighted by priority."""
    cost: Value
    inter: Value
    """What is saved in the next hour on links between clusters, not weighted: what `audit` holds a tree to."""
    sure: Value
    """Of the saving, with a certainty of 80 %."""

    @property
    def net(self) -> Value:
        """What a tree is worth."""
        return self.saving - self.cost


class Weights(NamedTuple):
    """What counts how much."""

    inter: float = 1.0
    """A byte on a link between clusters."""
    access: float = 0.1
    """A byte on the link of a broker in its site."""
    priority: float = 1.0
    """How much of the saving each step of priority adds."""
    both: bool = False
    """Membership is managed by BOTH, not by EITHER."""


def score(shape: Shape, weights: Weights = Weights()) -> Score:  # noqa: B008  # an immutable value
    """What a tree would save, and cost."""
    size = shape.size + HEADER
    inter = shape.rate * size * (2.0 * shape.alm - shape.up - shape.far)
    access = shape.rate * size * (shape.reach - 2.0)
    weight = 1.0 + weights.priority * shape.priority
    worth = weight * (weights.inter * inter + weights.access * access)
    updates = (shape.joins + shape.leaves) * UPDATE
    marks = weights.access * MARK * shape.members * lesser(shape.rate, 1.0 / MARK_EVERY)
    if weights.both:
        left_to_alm = lesser(ratio(shape.joins * MIGRATION, larger(shape.members, 1.0)), 1.0)
        upkeep = updates + shape.senders * (shape.joins + shape.leaves) * ANNOUNCEMENT
    else:
        left_to_alm = lesser(shape.leaves * OUT, 1.0)
        upkeep = updates + shape.senders * (shape.leaves * REVOCATION + QUESTION / LEASE)
    saving = worth * (1.0 - left_to_alm)
    cost, inter = upkeep * weights.inter + marks, inter * (1.0 - left_to_alm) * ratio(shape.soon, shape.rate)
    return Score(saving, cost, inter, saving * ratio(shape.least, shape.rate))
