"""Topologies: names, addresses and ports agree, whatever the shape; networkx is the oracle for paths."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import plan
from saps.ofm.switch.topologies import Topology, TopologyError, from_toml, parse

SHAPES = st.builds(
    "{}:{}x{}".format, st.sampled_from(["tree", "line", "ring", "full"]), st.integers(1, 20), st.integers(0, 12)
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Connected networks with and without cycles, several switches to a cluster and some in none."""
    count = draw(st.integers(1, 8))
    names = [f"n{number}" for number in range(count)]
    edges = {(draw(st.integers(0, number - 1)), number) for number in range(1, count)}
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda pair: pair[0] < pair[1])
    if count > 1:
        edges |= draw(st.sets(pairs, max_size=6))
    lines = [f"links = {[[names[a], names[b]] for a, b in sorted(edges)]}", "[switches]"]
    for name in names:
        cluster = draw(st.sampled_from(["tokyo", "osaka/ward1", "kyoto"]))
        hosts = draw(st.integers(0, 3))
        lines.append(f'{name} = {{ cluster = "{cluster}", hosts = {hosts} }}' if hosts else f"{name} = {{}}")
    return "\n".join(lines)


TOPOLOGIES = SHAPES.map(parse) | documents().map(from_toml)


def graph(topology: Topology, *, spare: bool = True) -> nx.Graph[Any]:
    made: nx.Graph[Any] = nx.Graph()
    made.add_nodes_from(switch.name for switch in topology.switches)
    made.add_edges_from((link.a, link.b) for link in topology.links if spare or not link.spare)
    return made


@given(TOPOLOGIES)
def test_without_its_spare_links_a_network_is_a_tree(topology: Topology) -> None:
    assert nx.is_tree(graph(topology, spare=False))


@given(TOPOLOGIES)
def test_every_name_and_address_is_there_once_and_fits(topology: Topology) -> None:
    for attribute in ("name", "ip", "ipv6", "management", "mac", "number"):
        assert len({getattr(host, attribute) for host in topology.hosts}) == len(topology.hosts)
    interfaces = [interface for switch in topology.switches for interface, _ in plan.ports(switch.name, topology)]
    interfaces += [switch.name for switch in topology.switches] + [f"m-{host.name}" for host in topology.hosts]
    assert len(set(interfaces)) == len(interfaces)
    assert max(map(len, interfaces)) <= 15
    for host in topology.hosts:
        assert bytes.fromhex(host.mac.replace(":", ""))[2:] == ipaddress.IPv4Address(host.ip).packed
        assert ipaddress.IPv6Address(host.ipv6) in ipaddress.IPv6Network("fd77::/64")


@given(TOPOLOGIES)
def test_the_ports_of_a_switch_are_numbered_from_one_without_a_gap(topology: Topology) -> None:
    for switch in topology.switches:
        numbers = [number for _, number in plan.ports(switch.name, topology)]
        assert sorted(numbers) == list(range(1, len(numbers) + 1))


@given(TOPOLOGIES)
def test_hosts_of_a_cluster_share_a_number_and_links_within_a_cluster_are_not_between_clusters(
    topology: Topology,
) -> None:
    cluster = {switch.name: switch.cluster for switch in topology.switches}
    assert {host.name: host.cluster for host in topology.hosts} == {h.name: cluster[h.switch] for h in topology.hosts}
    assert len({(host.cluster, host.number[0]) for host in topology.hosts}) == len({h.cluster for h in topology.hosts})
    for link in topology.links:
        assert link.inter_cluster is not (cluster[link.a] == cluster[link.b] != "")


@given(st.integers(1, 20), st.integers(1, 5))
def test_a_tree_has_height_two_and_a_line_is_one(clusters: int, brokers: int) -> None:
    tree, line = parse(f"tree:{clusters}x{brokers}"), parse(f"line:{clusters}x{brokers}")
    assert nx.eccentricity(graph(tree), "core") == 1
    assert nx.diameter(graph(line)) == clusters - 1
    assert len(tree.hosts) == len(line.hosts) == clusters * brokers
    assert all(
        host.name == "c{}b{}".format(*host.number) and host.switch == f"s{host.number[0]}" for host in tree.hosts
    )


@given(st.text() | st.from_regex(r"(tree|links|\[switches\])[^\0]*", fullmatch=True))
def test_nonsense_is_refused_by_one_kind_of_fault(text: str) -> None:
    for read in (parse, from_toml):
        with suppress(TopologyError):
            assert isinstance(read(text), Topology)


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ("[switches]", "at least one switch"),
        ("links = [['a', 'b']]\n[switches]\na = {}", "no switch 'b'"),
        ("links = [['a', 'a']]\n[switches]\na = {}", "not linked to itself"),
        ("links = [['bridge1', 'bridge2'], ['bridge2', 'bridge1']]\n[switches]\nbridge1 = {}\nbridge2 = {}", "shorter"),
        ("network = 7\nlinks = []\n[switches]\na = {}", "10 to 99"),
        ("[switches]\na = {}\nb = {}", "fall into 2 parts"),
        ("[switches]\nA = {}", "'A'"),
        ("[switches]\nabcdefgh = {}", "up to 6"),
        ("[switches]\nc1b1 = {}", "taken by the lab"),
        ("[switches]\na = { hosts = -1 }", "-1 hosts"),
        ("[switches]\na = { hosts = 1, cluster = '' }", "in no cluster"),
        ("[switches]\na = { host = 1 }", "unknown field `host`"),
        ("[switches", "malformed"),
    ],
)
def test_a_fault_in_a_file_is_named(document: str, fault: str) -> None:
    with pytest.raises(TopologyError, match=fault):
        from_toml(document)
