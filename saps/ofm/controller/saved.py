"""What a controller keeps over a restart, as JSON: the intents with their addresses and trees, and the network.

With it a new run plans exactly what the switches hold already, before the first of them has connected. Without it the
intents come anew, and the trees are read back from the switches (`adopt`).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.controller.controller import Controller
from saps.ofm.controller.events import Intent
from saps.ofm.network.topology import BrokerAddress, Link, Picture, Port, Topology
from saps.ofm.trees.tree import Tree

FORMAT = 1
"""Goes up when files cannot be read by older programs any more."""


class SavedTree(msgspec.Struct, frozen=True):
    """A tree: its links, and its brokers with their places."""

    links: list[Link]
    brokers: list[tuple[BrokerAddress, Port]]
    spread: list[Link] = []

    @classmethod
    def of(cls, tree: Tree) -> SavedTree:
        """The tree as plain values, sorted."""
        return cls(sorted(tree.links), sorted(tree.brokers.items()), sorted(tree.spread))

    def restored(self) -> Tree:
        """The inverse of `of`."""
        return Tree(frozenset(self.links), dict(self.brokers), frozenset(self.spread))


class SavedOfm(msgspec.Struct, frozen=True, kw_only=True):
    """One OFM that is wished for."""

    topic: str
    brokers: list[BrokerAddress]
    senders: list[BrokerAddress] = []
    priority: int | None = None
    rate: float | None = None
    address: str | None = None
    tree: SavedTree | None = None
    complete: bool = False
    version: int = 0


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file."""

    format: int = FORMAT
    version: int = 0
    """Of the latest state told."""
    topology: Picture
    ofms: list[SavedOfm]


@dataclass(frozen=True, slots=True)
class Replica:
    """What a standby has of the master's state. It is not looked into more than is needed, as it comes often."""

    data: bytes = b""
    """As `save` gives it; empty: nothing."""
    version: int = 0
    """Of the latest state told."""
    switches: int = 0
    """How many switches there are in it."""

    @classmethod
    def of(cls, data: bytes) -> Replica:
        """Raises `ValueError` for what is no state at all."""
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
    """What `Replica` wants to know of it."""

    version: int
    topology: _Switches


def save(controller: Controller, *, indent: int = 1) -> bytes:
    """What `restore` needs; with an `indent` of 0 on one line. OFMs being deleted are left out: what is left of them in
    switches is nobody's then."""
    ofms = [
        SavedOfm(
            topic=topic,
            brokers=sorted(record.intent.brokers),
            senders=sorted(record.intent.senders),
            priority=record.intent.priority,
            rate=record.intent.rate,
            address=str(record.address) if record.address else None,
            tree=SavedTree.of(record.plan.tree) if record.plan else None,
            complete=record.complete,
            version=record.state.version,
        )
        for topic, record in sorted(controller.records.items())
        if record.intent is not None
    ]
    picture = msgspec.convert(controller.topology.to_json(), Picture)
    data = msgspec.json.encode(Saved(version=controller.version, topology=picture, ofms=ofms))
    return msgspec.json.format(data, indent=indent) if indent else data


def restore(controller: Controller, data: bytes) -> None:
    """Fills a fresh controller. Raises `ValueError` that says what is wrong; then nothing has changed."""
    saved = _read(data)
    controller.version = saved.version
    controller.network.topology = Topology.from_json(msgspec.to_builtins(saved.topology))
    controller.network.hosts = {host.mac: host.at.to_port() for host in saved.topology.hosts}
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
