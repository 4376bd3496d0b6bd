"""Describes lab topologies as values: switches, links, hosts in clusters, and every name, address and port number.

Everything follows from the description alone, so that a controller, a test and a second process agree without
communication:

====================  =============================================================================================
host                  ``c<cluster>b<n>``, both counted from 1
data address          ``10.77.<cluster>.<n>/16``, and ``fd77::<cluster>:<n>/64`` where the lab has IPv6; another
                      number than 77 where the description gives a ``network``
management address    ``10.78.<cluster>.<n>/16``; the switches' namespace is ``10.78.0.1``
MAC                   ``02:00`` and the four bytes of the data address
datapath id           the switches in order, from 1
port number           a switch's links in order, from 1, then its hosts
====================  =============================================================================================
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

import msgspec

from saps.ofm.network.forest import joining

SWITCHES = "switches"
"""Name of the namespace that all switches share; no host or switch may have it."""
MANAGEMENT_GATE = "10.78.0.1"
"""Management address of the switches' namespace, where a controller runs."""
PREFIX = 16
"""Prefix length of the data network and of the management network."""
MOST = 250
"""Most clusters, and most hosts in a cluster."""
NETWORK = 77
"""Default second byte of the data addresses."""
_LONGEST = 15
"""Longest name of an interface in bytes."""

_NAME = re.compile(r"[a-z][a-z0-9]{0,6}")
"""Pattern of a switch's name. Two of them, joined by a hyphen, name an interface (at most 15 bytes)."""
_SIZED = re.compile(r"(tree|line|ring|full):([0-9]{1,3})x([0-9]{1,3})")


class TopologyError(ValueError):
    """A description without a valid topology; the text says why, in one line."""


class Switch(NamedTuple):
    """A switch. `cluster` is its site, empty for a switch between sites."""

    name: str
    datapath_id: int
    cluster: str


class Link(NamedTuple):
    """A link between two switches, with the port number at each end."""

    a: str
    a_port: int
    b: str
    b_port: int
    inter_cluster: bool
    """Whether its ends are in different clusters."""
    spare: bool
    """Whether the link closes a cycle: `NORMAL` traffic never takes it, flow entries may."""
    number: int = 1
    """Number among the parallel links between its two switches, from 1."""

    @property
    def name(self) -> str:
        """The interface at `a`'s end; the one at `b`'s end is `reverse`."""
        return interface(self.a, self.b, self.number)

    @property
    def reverse(self) -> str:
        return interface(self.b, self.a, self.number)


class Host(NamedTuple):
    """A host and its place. Its interface at the switch has the host's name, its own is ``eth0``."""

    name: str
    cluster: str
    number: tuple[int, int]
    """Cluster and place in it, both from 1."""
    switch: str
    port: int
    network: int = NETWORK
    """Second byte of its data address."""

    @property
    def ip(self) -> str:
        """Address on the data network, which runs through the switches."""
        return "10.{}.{}.{}".format(self.network, *self.number)

    @property
    def ipv6(self) -> str:
        return "fd{:02d}::{:x}:{:x}".format(self.network, *self.number)

    @property
    def management(self) -> str:
        """Address on the management network, which bypasses the lab's switches and their counters."""
        return "10.78.{}.{}".format(*self.number)

    @property
    def mac(self) -> str:
        return "02:00:0a:{:02x}:{:02x}:{:02x}".format(self.network, *self.number)


class Topology(NamedTuple):
    """The parts of a lab. `text` describes it: `parse` or `from_toml` makes an equal value from it."""

    text: str
    switches: tuple[Switch, ...]
    links: tuple[Link, ...]
    hosts: tuple[Host, ...]
    network: int = NETWORK
    """Second byte of the data addresses."""

    @property
    def subnet(self) -> str:
        """The data network."""
        return f"10.{self.network}.0.0/{PREFIX}"

    def host(self, name: str) -> Host:
        """Return the host of this name. Raises `KeyError` for an unknown name."""
        return {host.name: host for host in self.hosts}[name]

    def link(self, a: str, b: str, number: int = 1) -> Link:
        """Return the link of that number between two switches, in either direction. Raises `KeyError` for an unknown
        link."""
        return {(frozenset((link.a, link.b)), link.number): link for link in self.links}[frozenset((a, b)), number]


def interface(here: str, there: str, number: int = 1) -> str:
    """Return the interface of a switch at its link of that number to another one."""
    return f"{here}-{there}" if number == 1 else f"{here}-{there}_{number}"


class _Site(msgspec.Struct, forbid_unknown_fields=True):
    cluster: str | None = None
    hosts: int = 0


class _File(msgspec.Struct, forbid_unknown_fields=True):
    switches: dict[str, _Site]
    links: list[tuple[str, str]] = []
    network: int = NETWORK


def parse(text: str) -> Topology:
    """Return the topology that ``KIND:CLUSTERSxBROKERS`` names: one edge switch ``s<i>`` for each cluster, with BROKERS
    hosts.

    - ``tree`` joins the edge switches by one switch, ``core`` (height 2);
    - ``line`` joins each to the next, ``ring`` also the last to the first;
    - ``full`` joins each to all others.

    Raises `TopologyError` for any other text."""
    match = _SIZED.fullmatch(text)
    if match is None:
        raise TopologyError(f"{text!r} is no topology: expected tree:4x2, line:8x1, ring:4x2, full:4x2, or a TOML file")
    kind, clusters, brokers = match[1], int(match[2]), int(match[3])
    edges = [f"s{number}" for number in range(1, clusters + 1)]
    pairs = {
        "tree": [("core", edge) for edge in edges],
        "line": list(pairwise(edges)),
        "ring": [*pairwise(edges), *([(edges[0], edges[-1])] if clusters > 2 else [])],
        "full": list(combinations(edges, 2)),
    }[kind]
    sites = {"core": _Site("")} if kind == "tree" else {}
    sites |= {edge: _Site(f"c{number}", brokers) for number, edge in enumerate(edges, 1)}
    return _build(text, sites, pairs)


def from_toml(text: str) -> Topology:
    """Return the topology that a TOML document describes. Raises `TopologyError` that says what is wrong.

    A switch with hosts is a cluster of its own, unless `cluster` names another. A link given twice stands for two
    parallel links. `network` (10 to 99) distinguishes the data addresses of labs that shall be joined::

        network = 87
        links = [["core", "east"], ["core", "west"], ["core", "west"]]
        [switches]
        core = {}
        east = { cluster = "tokyo/ward1", hosts = 2 }
        west = { hosts = 3 }
    """
    try:
        described = msgspec.convert(tomllib.loads(text), _File)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise TopologyError(f"the topology file is malformed: {error}") from None
    sites = {
        name: _Site(site.cluster if site.cluster is not None else name if site.hosts else "", site.hosts)
        for name, site in described.switches.items()
    }
    if not 10 <= described.network <= 99:
        raise TopologyError(f"network {described.network}: a number from 10 to 99")
    return _build(text, sites, described.links, described.network)


def _build(text: str, sites: Mapping[str, _Site], pairs: Sequence[tuple[str, str]], network: int = NETWORK) -> Topology:
    _check(sites, pairs)
    spare = _closing(sites, pairs)
    ports = dict.fromkeys(sites, 0)

    def next_port(switch: str) -> int:
        ports[switch] += 1
        return ports[switch]

    links = []
    between: Counter[frozenset[str]] = Counter()
    for place, (a, b) in enumerate(pairs):
        sites_of = sites[a].cluster, sites[b].cluster
        crosses = sites_of[0] != sites_of[1] or not sites_of[0]
        between[frozenset((a, b))] += 1
        links.append(Link(a, next_port(a), b, next_port(b), crosses, place in spare, between[frozenset((a, b))]))
    clusters: dict[str, int] = {}
    filled: dict[str, int] = {}
    hosts = []
    for switch, site in sites.items():
        cluster = site.cluster or ""
        for _ in range(site.hosts):
            number = clusters.setdefault(cluster, len(clusters) + 1)
            filled[cluster] = place = filled.get(cluster, 0) + 1
            hosts.append(Host(f"c{number}b{place}", cluster, (number, place), switch, next_port(switch), network))
    if len(clusters) > MOST or max(filled.values(), default=0) > MOST:
        raise TopologyError(f"at most {MOST} clusters and {MOST} hosts in a cluster")
    switches = tuple(Switch(name, number, site.cluster or "") for number, (name, site) in enumerate(sites.items(), 1))
    return Topology(text, switches, tuple(links), tuple(hosts), network)


def _check(sites: Mapping[str, _Site], pairs: Iterable[tuple[str, str]]) -> None:
    """Check names, links and numbers. Raises `TopologyError` for the first invalid one."""
    if not sites:
        raise TopologyError("a topology has at least one switch")
    for name, site in sites.items():
        if not _NAME.fullmatch(name):
            raise TopologyError(f"switch {name!r}: a name is a lower-case letter and up to 6 letters or digits")
        if re.fullmatch(r"c[0-9]+b[0-9]+", name) or name in ("lo", "mgmt"):
            raise TopologyError(f"switch {name!r}: the name is taken by the lab")
        if not 0 <= site.hosts <= MOST:
            raise TopologyError(f"switch {name!r}: {site.hosts} hosts; at most {MOST}")
        if site.hosts and not site.cluster:
            raise TopologyError(f"switch {name!r}: its hosts are in no cluster")
    between: Counter[frozenset[str]] = Counter()
    for a, b in pairs:
        for name in (a, b):
            if name not in sites:
                raise TopologyError(f"link {a}-{b}: there is no switch {name!r}")
        if a == b:
            raise TopologyError(f"link {a}-{b}: a switch is not linked to itself")
        between[frozenset((a, b))] += 1
        if len(interface(a, b, between[frozenset((a, b))])) > _LONGEST:
            raise TopologyError(f"link {a}-{b}: parallel links need shorter names of switches")


def _closing(sites: Collection[str], pairs: Collection[tuple[str, str]]) -> set[int]:
    """Return the positions of the links that close a cycle when all are laid in order. Without them there is one path
    between any two switches.

    Raises `TopologyError` if some switches cannot reach each other at all."""
    joined = joining(pairs)
    if (parts := len(sites) - len(joined)) > 1:
        raise TopologyError(f"the switches fall into {parts} parts without a link between them")
    return set(range(len(pairs))).difference(joined)
