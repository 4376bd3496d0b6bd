"""Saves what a controller keeps over a restart, as JSON: the intents with their addresses and trees, and the network.

With it, a new run plans exactly what the switches hold already, before the first of them has connected. Without it, the
intents come anew, and the trees are recovered from the switches (`adopt`).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.controller.controller import Controller
from saps.ofm.controller.events import Intent
from saps.ofm.controller.record import Record
from saps.ofm.network.topology import BrokerAddress, Link, Picture, Port, Topology
from saps.ofm.trees.tree import Tree

FORMAT = 1
"""Format number of state files; it increases when older programs can no longer read them."""


class SavedTree(msgspec.Struct, frozen=True):
    """A tree: its links, and its brokers with their places."""

    links: list[Link]
    brokers: list[tuple[BrokerAddress, Port]]
    spread: list[Link] = []

    @classmethod
    def of(cls, tree: Tree) -> SavedTree:
        """Return the tree as plain values, sorted."""
        return cls(sorted(tree.links), sorted(tree.brokers.items()), sorted(tree.spread))

    def restored(self) -> Tree:
        """Return the tree, the inverse of `of`."""
        return Tree(frozenset(self.links), dict(self.brokers), frozenset(self.spread))


class SavedOfm(msgspec.Struct, frozen=True, kw_only=True):
    """One wanted OFM."""

    topic: str
    brokers: list[BrokerAddress]
    senders: list[BrokerAddress] = []
    priority: int | None = None
    rate: float | None = None
    address: str | None = None
    tree: SavedTree | None = None
    complete: bool = False
    version: int = 0


class SavedPlanes(msgspec.Struct, frozen=True, kw_only=True):
    """Stateless delivery, if it is wanted."""

    brokers: list[BrokerAddress]
    sets: list[list[BrokerAddress | None]]
    planes: list[SavedTree]
    version: int = 0


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a state file."""

    format: int = FORMAT
    version: int = 0
    """Version of the latest state told."""
    topology: Picture
    planes: SavedPlanes | None = None
    ofms: list[SavedOfm]


@dataclass(frozen=True, slots=True)
class Replica:
    """A standby's copy of the master's state. Only the head is decoded, as copies come often."""

    data: bytes = b""
    """The state as `save` writes it; empty: none."""
    version: int = 0
    """Version of the latest state told in it."""
    switches: int = 0
    """Number of switches in it."""

    @classmethod
    def of(cls, data: bytes) -> Replica:
        """Return the replica of a state. Raises `ValueError` for malformed data."""
        if not data:
            return cls()
        try:
            head = msgspec.json.decode(data, type=_Head)
        except msgspec.MsgspecError as error:
            raise ValueError(f"not a controller's state: {error}") from None
        return cls(data, head.version, len(head.topology.switches))


class _Switches(msgspec.Struct):
    switches: list[msgspec.Raw]


class _Head(msgspec.Struct):
    """The fields of a state that `Replica` needs."""

    version: int
    topology: _Switches


class Saver:
    """Writes a controller's state repeatedly. It reuses the text of OFMs that have not changed."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._written: dict[str, bytes] = {}
        controller.touched = dict.fromkeys(controller.records)

    def save(self) -> bytes:
        """Return the state for `restore`. OFMs being deleted are left out: their remains in switches then belong to no
        OFM."""
        controller = self._controller
        touched, controller.touched = controller.touched, {}
        for topic in touched or ():
            self._write(topic)
        picture, planes = controller.topology.picture, _planes(controller)
        head = msgspec.json.encode(Saved(version=controller.version, topology=picture, planes=planes, ofms=[]))
        # `ofms` is the last field: its empty list ends the head, and the kept texts go into it.
        return head.removesuffix(b"]}") + b",\n".join(self._written.values()) + b"]}"

    def _write(self, topic: str) -> None:
        record = self._controller.records.get(topic)
        if record is not None and record.intent is not None:
            self._written[topic] = msgspec.json.encode(_saved(record))
        else:
            self._written.pop(topic, None)


def _planes(controller: Controller) -> SavedPlanes | None:
    planes = controller.planes
    if planes.brokers is None:
        return None
    return SavedPlanes(
        brokers=sorted(planes.brokers),
        sets=[list(members) for members in planes.sets],
        planes=[SavedTree.of(plane) for plane in planes.layout.planes] if planes.layout is not None else [],
        version=planes.state.version,
    )


def _saved(record: Record) -> SavedOfm:
    intent = record.intent
    assert intent is not None
    return SavedOfm(
        topic=record.topic,
        brokers=sorted(intent.brokers),
        senders=sorted(intent.senders),
        priority=intent.priority,
        rate=intent.rate,
        address=str(record.address) if record.address else None,
        tree=SavedTree.of(record.plan.tree) if record.plan else None,
        complete=record.complete,
        version=record.state.version,
    )


def restore(controller: Controller, data: bytes) -> None:
    """Fill a fresh controller from a saved state. Raises `ValueError` that says what is wrong; discard the controller
    then."""
    saved = _read(data)
    controller.version = saved.version
    hosts = {host.mac: host.at.to_port() for host in saved.topology.hosts}
    controller.network.resume(Topology.from_json(msgspec.to_builtins(saved.topology)), hosts)
    if (planes := saved.planes) is not None:
        trees = [tree.restored() for tree in planes.planes]
        controller.planes.resume(planes.brokers, planes.sets, trees, planes.version)
    for ofm in saved.ofms:
        controller.resume(
            ofm.topic,
            Intent(frozenset(ofm.brokers), frozenset(ofm.senders), ofm.priority, ofm.rate),
            OfmAddress.parse(ofm.address) if ofm.address else None,
            ofm.tree.restored() if ofm.tree else None,
            complete=ofm.complete,
            version=ofm.version,
        )


def _read(data: bytes) -> Saved:
    try:
        saved = msgspec.json.decode(data, type=Saved)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a controller's state: {error}") from None
    if saved.format != FORMAT:
        raise ValueError(f"a controller's state of format {saved.format}; this program reads {FORMAT}")
    return saved
