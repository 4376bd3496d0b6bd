"""The changes that bring switches from their actual to their desired tables, in an order that costs no stable member a
packet.

Each change is absolute. Whatever has been applied, lost, repeated or late: the next `difference` from what is really
there ends at the same tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

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
from saps.ofm.network.topology import Link
from saps.ofm.trees.tree import Tree, pair_of

Stage: TypeAlias = Mapping[int, list[Change]]
"""Changes of several switches that may be in effect in any order among the switches; the next stage waits for all."""


def difference(actual: Tables, desired: Tables) -> list[Change]:
    """What makes `desired` of `actual`; nothing if they are the same. Both are our own part of a switch's tables.

    Meters and groups are put before the flows that use them, and changed in place. Old flows go when the new ones are
    there, and groups and meters when no flow uses them any more; barriers keep these steps apart."""
    if actual is desired:
        return []
    steps: list[list[Change]] = [
        [
            *(PutMeter(meter) for id, meter in desired.meters.items() if actual.meters.get(id) != meter),
            *(PutGroup(group) for group in _uses_last(desired.groups) if not _same(actual.groups.get(group.id), group)),
        ],
        [PutFlow(flow) for name, flow in desired.flows.items() if actual.flows.get(name) != flow],
        [DropFlow(flow) for name, flow in actual.flows.items() if name not in desired.flows],
        [
            *(DropGroup(group.id) for group in reversed(_uses_last(actual.groups)) if group.id not in desired.groups),
            *(DropMeter(id) for id in actual.meters if id not in desired.meters),
        ],
    ]
    changes: list[Change] = []
    for step in steps:
        if step:
            changes += [*step, Barrier()]
    return changes


def rollout(before: Plan | None, after: Plan | None) -> list[Stage]:
    """The stages from one plan of an OFM to the next; None: there was, or shall be, none.

    First what only `before` has is taken away, from the part that stays outwards (a leaf leaves root to leaf), then
    what only `after` has is added, from outside inwards (a leaf joins leaf to root). So after every change, on any
    switch, the links in use are part of one of the two trees: nothing loops and nothing arrives twice. If the tree
    between the brokers that stay is the same in both, these lose nothing either. Brokers that leave are muted before
    all else, and those that join until all else is done, so that a loopback packet never tells a lie. Nothing is sent
    by a link beside others before its far end takes it, and its far end takes it until nothing is sent there.

    After a failure, or for a tree along other links, the two halves have too little in common: then all brokers are
    muted meanwhile, miss their loopback packets and use ALM. For a planned move rather give the new tree an address of
    its own, and take the old one away when all senders have changed over.

    Raises `ValueError` if the plans are of two OFMs."""
    if before is None or after is None:
        one = before or after
        if one is None:
            return []
        nothing = plan(one.ofm, Tree())
        return rollout(before or nothing, after or nothing)
    if before.ofm.group != after.ofm.group:
        raise ValueError(f"plans of two OFMs: {before.ofm.address} and {after.ofm.address}")
    middle = before.tree.shared(after.tree)
    going, coming = _beside(before.tree, middle), _beside(after.tree, middle)
    silent = before.silent | after.silent
    unmuted = middle.brokers.keys() - before.muted - after.muted if middle.connected else frozenset()
    falling = plan(before.ofm, before.tree, before.silent, muted=before.tree.brokers.keys() - unmuted, idle=going)
    bottom = plan(after.ofm, middle, silent, muted=middle.brokers.keys() - unmuted)
    rising = plan(after.ofm, after.tree, after.silent, muted=after.tree.brokers.keys() - unmuted, idle=coming)
    kept = middle.switches
    return [
        *_stages(before, falling, {}),
        *_stages(falling, bottom, before.tree.distances(kept)),
        *_stages(bottom, rising, {dpid: -far for dpid, far in after.tree.distances(kept).items()}),
        *_stages(rising, after, {}),
    ]


def _beside(tree: Tree, middle: Tree) -> frozenset[Link]:
    """The links of a tree that are not in the middle, between neighbours that are."""
    if not tree.spread:
        return frozenset()
    stay = middle.pairs.keys()
    return frozenset(link for link in tree.links - middle.links if pair_of(link) in stay)


def _stages(old: Plan, new: Plan, order: Mapping[int, int]) -> list[Stage]:
    """The changes from old to new, the switches by ascending `order`: those of one number, or without one, together."""
    stages: dict[int, dict[int, list[Change]]] = {}
    for dpid in sorted(old.tables.keys() | new.tables.keys()):
        changes = difference(old.tables.get(dpid, Tables()), new.tables.get(dpid, Tables()))
        if changes:
            stages.setdefault(order.get(dpid, 0), {})[dpid] = changes
    return [stages[place] for place in sorted(stages)]


def _same(one: Group | None, other: Group) -> bool:
    """Do the groups do the same? Buckets of ALL have no order."""
    if one is None or one == other:
        return one is not None
    if one.kind is not GroupKind.ALL or other.kind is not GroupKind.ALL:
        return False
    return Counter(replace(bucket, weight=0) for bucket in one.buckets) == Counter(
        replace(bucket, weight=0) for bucket in other.buckets
    )


def _uses_last(groups: Mapping[int, Group]) -> list[Group]:
    """The groups, each after those its buckets hand packets to."""
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
