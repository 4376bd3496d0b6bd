"""Computes the changes that bring switches from their actual to their desired tables, in an order that costs no stable
member a packet.

Each change is absolute. Whatever was applied, lost, repeated or late, the next `difference` from the actual tables
leads to the same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeAlias

from saps.ofm.flows.plan import Plan, plan
from saps.ofm.flows.tables import (
    Barrier,
    Change,
    DropFlow,
    DropGroup,
    DropMeter,
    Group,
    GroupKind,
    PutFlow,
    PutGroup,
    PutMeter,
    Tables,
    ToGroup,
)
from saps.ofm.network.topology import BrokerAddress, Link
from saps.ofm.trees.tree import Tree, pair_of

Stage: TypeAlias = Mapping[int, Tables]
"""The tables that several switches shall hold. They may change in any order among the switches. The next stage waits
for all of them."""
_NOTHING = Tables()


def difference(actual: Tables, desired: Tables) -> list[Change]:
    """Return the changes that turn `actual` into `desired`, empty if they are the same. Both are SAPS's part of a
    switch's tables.

    Meters and groups are put before the flows that use them, and changed in place. Old flows are dropped after the new
    ones are put; groups and meters are dropped after the flows that used them. Barriers separate these steps."""
    if actual is desired:
        return []
    put = {id: group for id, group in desired.groups.items() if not _same(actual.groups.get(id), group)}
    dropped = {id: group for id, group in actual.groups.items() if id not in desired.groups}
    steps: list[list[Change]] = [
        [
            *(PutMeter(meter) for id, meter in desired.meters.items() if actual.meters.get(id) != meter),
            *map(PutGroup, _uses_last(put)),
        ],
        [PutFlow(flow) for name, flow in desired.flows.items() if actual.flows.get(name) != flow],
        [DropFlow(flow) for name, flow in actual.flows.items() if name not in desired.flows],
        [
            *(DropGroup(group.id) for group in reversed(_uses_last(dropped))),
            *(DropMeter(id) for id in actual.meters if id not in desired.meters),
        ],
    ]
    changes: list[Change] = []
    for step in steps:
        if step:
            changes += [*step, Barrier()]
    return changes


class Middle(NamedTuple):
    """What two trees share, and its `core`: the brokers that stay and stay connected."""

    shared: Tree
    core: Tree

    @classmethod
    def of(cls, before: Tree, after: Tree) -> Middle:
        """Return the middle of two trees."""
        shared = before.shared(after)
        return cls(shared, shared.core)


def rollout(before: Plan | None, after: Plan | None, middle: Middle | None = None) -> list[Stage]:
    """Return the stages from one plan of an OFM to the next. None as a plan means no tree. `middle` is that of their
    trees, if it is known.

    1. What only `before` has is removed.
    2. What only `after` has is added.

    So after every change on any switch, the links in use are part of one of the two trees: nothing loops and nothing
    arrives twice. The brokers of the `core` (`Middle`) lose nothing: a leaving branch is cut off at the core before the
    rest of it is removed, and a joining branch is complete before the core reaches it. All other brokers are muted
    meanwhile, miss their loopback packets and use ALM, so a loopback packet never misleads a broker of the core. A
    parallel link carries no packet before its far end accepts it, and its far end accepts packets until none is sent.

    For a planned move, prefer an address of its own for the new tree, and remove the old tree when all senders have
    changed over.

    Raises `ValueError` if the plans are of two OFMs."""
    if before is None or after is None:
        one = before or after
        if one is None:
            return []
        nothing = plan(one.ofm, Tree())
        before, after = before or nothing, after or nothing
    if before.ofm.group != after.ofm.group:
        raise ValueError(f"plans of two OFMs: {before.ofm.address} and {after.ofm.address}")
    shared, core = middle or Middle.of(before.tree, after.tree)
    silent = before.silent | after.silent
    unmuted = core.brokers.keys() - before.muted - after.muted
    at = _different(before, after, unmuted)
    old, new = before.tree, after.tree
    falling = _muted(before, unmuted, _beside(old, shared), at)
    bottom = plan(after.ofm, shared, silent, muted=shared.brokers.keys() - unmuted, at=at).tables
    rising = _muted(after, unmuted, _beside(new, shared), at)
    near = at & core.switches if unmuted else frozenset()
    steps = (
        (before.tables, falling, at),  # mute brokers outside the core; send no more by links that go
        (falling, bottom, near),  # the core cuts off what leaves,
        (falling, bottom, at - near),  # then the rest of it is removed
        (bottom, rising, at - near),  # what joins is completed,
        (bottom, rising, near),  # then the core reaches it
        (rising, after.tables, at),  # unmute all brokers; send by new parallel links
    )
    stages = (
        {dpid: new.get(dpid, _NOTHING) for dpid in sorted(here) if old.get(dpid, _NOTHING) != new.get(dpid, _NOTHING)}
        for old, new, here in steps
    )
    return [stage for stage in stages if stage]


def _muted(
    made: Plan, unmuted: Collection[BrokerAddress], idle: Collection[Link], at: frozenset[int]
) -> Mapping[int, Tables]:
    """Return the tables of a plan at these switches, with only these brokers unmuted and no packets on `idle` links.
    Without these links, only switches with muted brokers differ from the plan."""
    muted = made.tree.brokers.keys() - unmuted
    here = at if made.tree.spread else at & {made.tree.brokers[broker].dpid for broker in muted}
    changed = plan(made.ofm, made.tree, made.silent, muted=muted, idle=idle, at=here).tables
    return {dpid: made.tables[dpid] for dpid in at - here if dpid in made.tables} | dict(changed)


def _different(before: Plan, after: Plan, unmuted: Collection[BrokerAddress]) -> frozenset[int]:
    """Return the switches whose tables differ at some moment before, during or after the rollout."""
    one, other = before.tree, after.tree
    if before.ofm != after.ofm:
        return one.switches | other.switches
    brokers = (one.brokers.items() | other.brokers.items()) - (one.brokers.items() & other.brokers.items())
    harmed = before.silent ^ after.silent
    found = {place.dpid for broker, place in brokers}
    found |= {
        place.dpid
        for tree in (one, other)
        for broker, place in tree.brokers.items()
        if broker not in unmuted or broker in harmed
    }
    found |= {end.dpid for link in one.links ^ other.links for end in link}
    found |= {end.dpid for link in one.spread ^ other.spread for end in link}
    return frozenset(found)


def _beside(tree: Tree, middle: Tree) -> frozenset[Link]:
    """Return the links of a tree that `middle` lacks, between neighbours that `middle` keeps."""
    if not tree.spread:
        return frozenset()
    stay = middle.pairs.keys()
    return frozenset(link for link in tree.links - middle.links if pair_of(link) in stay)


def _same(one: Group | None, other: Group) -> bool:
    """Return whether two groups act alike. The buckets of an ALL group have no order."""
    if one is None or one == other:
        return one is not None
    if one.kind is not GroupKind.ALL or other.kind is not GroupKind.ALL:
        return False
    if len(one.buckets) != len(other.buckets):
        return False
    return Counter((bucket.actions, bucket.watch) for bucket in one.buckets) == Counter(
        (bucket.actions, bucket.watch) for bucket in other.buckets
    )


def _uses_last(groups: Mapping[int, Group]) -> list[Group]:
    """Return the groups, each after those its buckets hand packets to."""
    if len(groups) < 2:
        return list(groups.values())
    ordered: dict[int, Group] = {}

    def visit(group: Group) -> None:
        for bucket in group.buckets:
            for action in bucket.actions:
                if isinstance(action, ToGroup) and action.group in groups and action.group not in ordered:
                    visit(groups[action.group])
        ordered.setdefault(group.id, group)

    for id in sorted(groups):
        visit(groups[id])
    return list(ordered.values())
