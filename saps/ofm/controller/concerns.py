"""Finds the OFMs that a piece of news affects: those that use the link, the switch or the host, and those that wait for
more.

So the cost of an event depends on what it touches, not on the size of the network.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from operator import is_

from saps.ofm.controller.events import (
    HostMoved,
    LinkChanged,
    News,
    PortChanged,
    Settled,
    SwitchDown,
    SwitchGone,
    SwitchUp,
)
from saps.ofm.controller.record import Record
from saps.ofm.network.topology import Port, Topology
from saps.ofm.trees.tree import pair_of

_WANTING = "more"
"""Key of OFMs without all that is wanted: any change of the network may bring it."""


class Concerns:
    """The dependencies of each OFM: switches by datapath id, pairs of neighbours, hosts by MAC address. Names are those
    of records: topics, and owners of second trees."""

    def __init__(self) -> None:
        self._keys: dict[str, frozenset[Hashable]] = {}
        self._names: dict[Hashable, dict[str, None]] = {}
        self.heard = 0
        """Events so far, except those that only end a batch at a switch."""
        self._bases: dict[str, tuple[tuple[object, ...], int]] = {}
        """What `_keys` were made from, of OFMs that are busy, and when (`heard`): while a plan comes into force they
        stay the same."""

    def update(self, name: str, record: Record | None) -> bool:
        """Update the dependencies of an OFM; None: the OFM has ended. Returns False if only the next stage of its plan
        has begun since the last update, so that its state is the same."""
        if record is not None and record.busy:
            base = (record.plan, record.former, record.intent, record.lost, record.refusal)
            known, heard = self._bases.get(name, ((), 0))
            self._bases[name] = base, self.heard
            if known and all(map(is_, base, known)):
                return heard != self.heard
        else:
            self._bases.pop(name, None)
        before = self._keys.get(name, frozenset())
        now = _keys(record) if record is not None else frozenset()
        for key in before - now:
            names = self._names[key]
            del names[name]
            if not names:
                del self._names[key]
        for key in now - before:
            self._names.setdefault(key, {})[name] = None
        self._keys[name] = now
        if not now:
            del self._keys[name]
        return True

    def at(self, dpid: int) -> list[str]:
        """Return the names of OFMs that have, or will have, a part at a switch."""
        return list(self._names.get(dpid, ()))

    @property
    def wanting(self) -> list[str]:
        """The names of OFMs that lack a part of what is wanted."""
        return list(self._names.get(_WANTING, ()))

    def about(self, news: News, topology: Topology, known: Callable[[int], bool]) -> list[str]:
        """Return the names of OFMs that news may affect. Ask before the news is taken in, and again afterwards, since
        it may change the places of things. `known` returns whether the content of a switch is known."""
        found = dict.fromkeys(self.wanting)
        for key in _about(news, topology, known):
            found |= self._names.get(key, {})
        return list(found)


def _keys(record: Record) -> frozenset[Hashable]:
    keys: set[Hashable] = {broker.mac for broker in record.concerned}
    keys |= record.held.keys() | record.waiting
    for stage in record.stages:
        keys |= stage.keys()
    for plan in (record.plan, record.former):
        if plan is not None:
            keys |= {pair_of(link) for link in plan.tree.links} | plan.tables.keys()
    if record.plan is None or record.lost or record.refusal is not None:
        keys.add(_WANTING)
    return frozenset(keys)


def _about(news: News, topology: Topology, known: Callable[[int], bool]) -> Iterator[Hashable]:
    match news:
        case LinkChanged(link):
            yield pair_of(link)
            for end in link:
                yield from _at(end, topology, known)
        case PortChanged(at):
            yield from _at(at, topology, known)
        case HostMoved(mac):
            yield mac
        case SwitchUp(dpid) | SwitchDown(dpid) | SwitchGone(dpid):
            yield dpid
        case Settled(switches, links):
            yield from (dpid for dpid in topology.switches if dpid not in switches)
            yield from (pair_of(link) for link in topology.links if link not in links)


def _at(port: Port, topology: Topology, known: Callable[[int], bool]) -> Iterator[Hashable]:
    """Yield what depends on a port. A switch that is away and loses its last link no longer holds up its OFMs."""
    yield from topology.hosts_at(port)
    if (link := topology.trunk(port)) is not None:
        yield pair_of(link)
        yield from (end.dpid for end in link if not known(end.dpid))
