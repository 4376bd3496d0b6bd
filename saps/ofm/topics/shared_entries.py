"""Computes flow entries of one switch that serve many topics: what each topic needs there, aggregated by address
prefix.

For each place where packets come in (a trunk's port, or a broker), topics that are treated alike there share entries
(`aggregate`). A longer prefix has a higher priority. A topic that must not pass, but stands below a prefix that passes,
gets an entry that drops. So if `words` contains all topics in use, each topic is treated exactly as by entries of its
own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from saps.ofm.flows.plan import COOKIE, GROUPS
from saps.ofm.flows.tables import Action, Bucket, Field, Flow, Group, Masked, Match, Tables, ToGroup
from saps.ofm.topics.address import EventType, match
from saps.ofm.topics.aggregate import Entry, smallest

SHARED_COOKIE = COOKIE | GROUPS
"""Cookie of entries that belong to several topics."""

Ingress: TypeAlias = "tuple[int, tuple[tuple[Field, Masked], ...]]"
"""Priority and match of a flow without the address."""


class Coded(NamedTuple):
    """The code of a topic's address: its word and UDP port."""

    word: str
    port: int
    """UDP port. Words of different ports are independent."""


@dataclass(frozen=True, slots=True)
class _Treatment:
    """What a flow does with a packet, without the id of its group."""

    before: tuple[Action, ...]
    buckets: tuple[Bucket, ...] | None
    after: tuple[Action, ...]


def shared(
    parts: Mapping[int, Tables], words: Mapping[int, Coded], groups: Mapping[int, Group] | None = None
) -> Tables:
    """Return the entries for what each part, an OFM, shall have on a switch. `words` holds the words of all OFMs,
    including those with nothing on this switch. `groups` are those in the switch, which keep their ids if they are
    still needed. A group is never changed in place, because others may use it."""
    wanted: dict[Ingress, dict[int, _Treatment]] = {}
    for part, tables in parts.items():
        for flow in tables.flows.values():
            wanted.setdefault(_ingress(flow), {})[part] = _treatment(flow, tables.groups)
    numbers = _Numbers(groups or {})
    flows: list[Flow] = []
    known: dict[tuple[tuple[str, int | None], ...], list[Entry[int]]] = {}
    for ingress in sorted(wanted, key=repr):
        flows += _flows(ingress, wanted[ingress], words, numbers, known)
    return Tables.of(flows, numbers.used)


def _flows(
    ingress: Ingress,
    treated: Mapping[int, _Treatment],
    words: Mapping[int, Coded],
    numbers: _Numbers,
    known: dict[tuple[tuple[str, int | None], ...], list[Entry[int]]],
) -> list[Flow]:
    """Return the fewest entries for one place where packets come in. `known` caches solutions, as many places are
    alike."""
    priority, fields = ingress
    port = next(masked.value for name, masked in fields if name == "udp_dst")
    kinds: dict[_Treatment, int] = {}
    for part in sorted(treated):
        kinds.setdefault(treated[part], len(kinds))
    target = {
        coded.word: kinds[treated[part]] if part in treated else None
        for part, coded in words.items()
        if coded.port == port
    }
    key = tuple(sorted(target.items()))
    if key not in known:
        known[key] = smallest(target)
    treatments = list(kinds)
    return [
        Flow(
            priority + len(entry.prefix),
            Match(tuple(sorted((*fields, ("ipv6_dst", match(EventType.PUBLISH, entry.prefix)))))),
            () if entry.tree is None else numbers.actions(treatments[entry.tree]),
            cookie=SHARED_COOKIE,
        )
        for entry in known[key]
    ]


class _Numbers:
    """The group ids by their buckets."""

    def __init__(self, there: Mapping[int, Group]) -> None:
        self._there = there
        self._of = {group.buckets: id for id, group in sorted(there.items(), reverse=True)}
        self._used: dict[int, Group] = {}
        self._next = GROUPS

    @property
    def used(self) -> list[Group]:
        """The groups that are needed, by id."""
        return [self._used[id] for id in sorted(self._used)]

    def actions(self, treatment: _Treatment) -> tuple[Action, ...]:
        if treatment.buckets is None:
            return treatment.before
        return (*treatment.before, ToGroup(self._number(treatment.buckets)), *treatment.after)

    def _number(self, buckets: tuple[Bucket, ...]) -> int:
        id = self._of.get(buckets)
        if id is None:
            while self._next in self._there or self._next in self._used:
                self._next += 1
            id = self._of[buckets] = self._next
        self._used.setdefault(id, Group(id, buckets))
        return id


def _ingress(flow: Flow) -> Ingress:
    return flow.priority, tuple(entry for entry in flow.match.fields if entry[0] != "ipv6_dst")


def _treatment(flow: Flow, groups: Mapping[int, Group]) -> _Treatment:
    for at, action in enumerate(flow.actions):
        if isinstance(action, ToGroup):
            return _Treatment(flow.actions[:at], groups[action.group].buckets, flow.actions[at + 1 :])
    return _Treatment(flow.actions, None, ())


def ordered(puts: Collection[Flow]) -> list[Flow]:
    """Return flows in the order in which they may be put: longer prefixes first. So a packet meets a new entry only
    when all longer prefixes are present. Drop flows in the opposite order."""
    return sorted(puts, key=lambda flow: (-flow.priority, repr(flow.match)))
