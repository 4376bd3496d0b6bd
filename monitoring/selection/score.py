"""Computes the saving and cost of a tree for a topic, in bytes a second over links (SAPS 2016, 3, 3.2, 3.3).

The network is a star of sites: a copy from one cluster to another crosses two links between clusters, up and down. ALM
sends at least one copy for each other cluster that wants the message. A tree carries a message up once, and down once
for each such cluster. Within a site ALM's copies cross the access links of the sender and the receiver. A tree's copies
cross only the receiver's, and one loopback packet comes back. The saving weighs more the higher the topic's priority.

A tree costs its upkeep: changes when brokers join and leave, questions to OFGate, and high-water marks to members. No
broker uses the tree while members are taken out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from monitoring.forecasts.arrays import Value, larger, lesser, ratio

HEADER = 60
"""Bytes of headers of a message on a link: Ethernet, IP, transport, frame."""
MARK = 2 * (HEADER + 40)
"""Bytes of a high-water mark on two access links. A member gets at most one in `MARK_EVERY` seconds (decision 032)."""
MARK_EVERY = 2.0
"""Least seconds between two high-water marks to a member."""
UPDATE = 2000.0
"""Bytes of one change of a tree: notice to OFGate, request to the OFC, flows and groups to the switches."""
REVOCATION = 600.0
"""Bytes for each publisher's broker when a member is taken out: the lease is revoked and requested again (EITHER)."""
QUESTION = 2 * 300.0
"""Bytes of the questions about a tree within one lease, for each publisher's broker (EITHER)."""
LEASE = 10.0
"""Duration of a publisher's lease in seconds."""
OUT = 0.5
"""Seconds without a tree when a member is taken out (EITHER), until the packets in flight have arrived."""
MIGRATION = 5.0
"""Seconds for which ALM serves a new member before it is in the tree (BOTH)."""
ANNOUNCEMENT = 200.0
"""Bytes for each publisher's broker when a member joins or leaves S(t$OFM) (BOTH)."""


@dataclass(slots=True)
class Shape:
    """The spread of a topic's messages as rates and means; of many topics with an array in each field."""

    rate: Value
    """Expected messages a second over the horizon."""
    least: Value
    """Lower bound of `rate` with a certainty of 80 %."""
    soon: Value
    """Expected messages a second in the next hour."""
    size: Value
    """Mean payload in bytes."""
    alm: Value
    """Mean copies between clusters that ALM sends of a message."""
    up: Value
    """Share of the messages that another cluster wants."""
    far: Value
    """Mean number of other clusters that want a message."""
    reach: Value
    """Mean number of other brokers that a message reaches."""
    joins: Value
    """Brokers a second that become members."""
    leaves: Value
    """Brokers a second that cease to be members."""
    senders: Value
    """Brokers at which clients publish."""
    members: Value
    """Brokers with subscribers."""
    priority: Value
    """Priority of the topic, 0 to 7."""


class Score(NamedTuple):
    """Saving and cost of a tree in bytes a second over links."""

    saving: Value
    """Saving, weighted by priority."""
    cost: Value
    """Cost of the tree's upkeep."""
    inter: Value
    """Unweighted saving in the next hour on links between clusters. `audit` holds a tree to it."""
    sure: Value
    """Lower bound of the saving with a certainty of 80 %."""

    @property
    def net(self) -> Value:
        """The saving less the cost."""
        return self.saving - self.cost


class Weights(NamedTuple):
    """The weights of the parts of a score."""

    inter: float = 1.0
    """Weight of a byte on a link between clusters."""
    access: float = 0.1
    """Weight of a byte on a broker's access link in its site."""
    priority: float = 1.0
    """Share of the saving that each step of priority adds."""
    both: bool = False
    """Whether BOTH manages the membership, instead of EITHER."""


def score(shape: Shape, weights: Weights = Weights()) -> Score:  # noqa: B008  # an immutable value
    """Return the saving and cost of a tree."""
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
