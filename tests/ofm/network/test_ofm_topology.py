"""The picture of the network: what discovery tells changes it, and only what is up carries packets."""

from __future__ import annotations

import json

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from saps.ofm.network.topology import BrokerAddress, Link, Port, Topology
from tests.ofm.networks import Network, broker_at, networks

DPIDS, PORTS = st.integers(1, 3), st.integers(1, 3)
ENDS = st.builds(Port, DPIDS, PORTS)


class Discovery(RuleBasedStateMachine):
    """Anything may be told at any time, in any order; a plain second picture says what must be true."""

    def __init__(self) -> None:
        super().__init__()
        self.topology = Topology()
        self.switches: set[int] = set()
        self.down: set[Port] = set()
        self.links: set[frozenset[Port]] = set()
        self.places: dict[str, Port] = {}
        self.last = (0, self.topology.to_json())

    @rule(dpid=DPIDS)
    def switch_up(self, dpid: int) -> None:
        self.topology.switch_up(dpid)
        self.switches.add(dpid)

    @rule(dpid=DPIDS)
    def switch_down(self, dpid: int) -> None:
        self.topology.switch_down(dpid)
        self.switches.discard(dpid)
        self.down = {port for port in self.down if port.dpid != dpid}
        self.links = {link for link in self.links if all(end.dpid != dpid for end in link)}

    @rule(port=ENDS, up=st.booleans())
    def port_status(self, port: Port, up: bool) -> None:
        self.topology.port_status(*port, up=up)
        if port.dpid in self.switches:
            (self.down.discard if up else self.down.add)(port)

    @rule(port=ENDS)
    def port_removed(self, port: Port) -> None:
        self.topology.port_status(*port, up=None)
        self.down.discard(port)
        self.links = {link for link in self.links if port not in link}
        self.places = {host: place for host, place in self.places.items() if place != port}

    @rule(a=ENDS, b=ENDS)
    def link_up(self, a: Port, b: Port) -> None:
        if a.dpid == b.dpid:
            with pytest.raises(ValueError, match="two switches"):
                self.topology.link_up(a, b)
            return
        self.topology.link_up(a, b)
        self.switches |= {a.dpid, b.dpid}
        self.links = {link for link in self.links if link.isdisjoint({a, b})} | {frozenset({a, b})}
        self.places = {host: place for host, place in self.places.items() if place not in (a, b)}

    @rule(a=ENDS, b=ENDS)
    def link_down(self, a: Port, b: Port) -> None:
        if a.dpid != b.dpid:
            self.topology.link_down(a, b)
            self.links.discard(frozenset({a, b}))

    @rule(machine=st.integers(0, 2), port=ENDS)
    def attach(self, machine: int, port: Port) -> None:
        broker = broker_at(machine, 6000)
        changed = self.topology.attach(broker, *port)
        if any(port in link for link in self.links):
            assert not changed
        else:
            self.places[broker.mac] = port

    @rule(machine=st.integers(0, 2))
    def detach(self, machine: int) -> None:
        self.topology.detach(broker_at(machine, 6000))
        self.places.pop(broker_at(machine, 6000).mac, None)

    def is_up(self, port: Port) -> bool:
        return port.dpid in self.switches and port not in self.down

    @invariant()
    def says_what_is_true(self) -> None:
        assert self.topology.switches == sorted(self.switches)
        usable = [Link.of(*link) for link in map(tuple, self.links) if all(map(self.is_up, link))]
        assert self.topology.links == sorted(usable)
        for dpid in (1, 2, 3):
            here = {(link.far(dpid), link) for link in usable if dpid in (link.a.dpid, link.b.dpid)}
            assert set(self.topology.neighbours(dpid)) == here
        for machine in range(3):
            broker = broker_at(machine, 6000)
            place = self.places.get(broker.mac)
            assert self.topology.where(broker) == (place if place and self.is_up(place) else None)

    @invariant()
    def counts_its_changes(self) -> None:
        version, picture = self.topology.version, self.topology.to_json()
        assert (version > self.last[0]) == (picture != self.last[1])
        self.last = (version, picture)


TestDiscovery = Discovery.TestCase


@given(networks())
def test_a_picture_survives_json(network: Network) -> None:
    network.topology.port_status(1, 1, up=False)
    again = Topology.from_json(json.loads(json.dumps(network.topology.to_json())))
    assert again == network.topology
    assert again.version == network.topology.version
    copy = network.topology.copy()
    copy.switch_down(1)
    assert copy != network.topology


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([], "Expected `object`"),
        ({"version": 1}, "missing required field `switches`"),
        ({"version": 1, "switches": [{"dpid": 1, "ports": []}], "links": [], "hosts": [], "brokers": []}, "dpid"),
        (
            {"version": 1, "switches": [], "links": [], "hosts": [],
             "brokers": [{"ip": "239.1.1.1", "mac": "02:00:00:00:00:01", "port": 1}]},
            "not a unicast address",
        ),
    ],
)  # fmt: skip
def test_other_data_is_refused_with_the_reason(data: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Topology.from_json(data)


@pytest.mark.parametrize(
    ("ip", "mac", "port", "reason"),
    [
        ("ff05::1", "02:00:00:00:00:01", 1, "not a unicast address"),
        ("0.0.0.0", "02:00:00:00:00:01", 1, "not a unicast address"),
        ("10.0.0.256", "02:00:00:00:00:01", 1, "10.0.0.256"),
        ("10.0.0.1", "03:00:00:00:00:01", 1, "not a unicast MAC address"),
        ("10.0.0.1", "00:00:00:00:00:00", 1, "not a unicast MAC address"),
        ("10.0.0.1", "02-00-00-00-00-01", 1, "not a MAC address"),
        ("10.0.0.1", "02:00:00:00:00:01", 0, "not a UDP port"),
    ],
)
def test_what_is_no_broker_address_is_refused(ip: str, mac: str, port: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        BrokerAddress(ip, mac, port)


def test_addresses_are_brought_to_one_form() -> None:
    assert BrokerAddress("FD00:0::1", "02:AA:00:00:00:01", 1) == BrokerAddress("fd00::1", "02:aa:00:00:00:01", 1)


def test_a_second_broker_on_a_host_has_its_place() -> None:
    topology = Topology()
    topology.switch_up(1)
    one, other = broker_at(1, 6000), broker_at(1, 6001)
    topology.attach(one, 1, 5)
    assert topology.where(other) == Port(1, 5)
    topology.attach(other, 1, 5)
    assert topology.brokers == {one: Port(1, 5), other: Port(1, 5)}
    topology.detach(one)
    assert topology.brokers == {other: Port(1, 5)}
    topology.port_status(1, 5, up=False)
    assert topology.brokers == {other: None}


@given(networks(), st.data())
def test_pieces_and_redundant_links_are_those_of_the_graph(network: Network, data: st.DataObject) -> None:
    topology = network.topology
    for link in data.draw(st.sets(st.sampled_from(topology.links))) if topology.links else ():
        topology.link_down(*link)
    graph = nx.Graph((link.a.dpid, link.b.dpid) for link in topology.links)
    graph.add_nodes_from(topology.switches)
    pieces = list(nx.connected_components(graph))
    assert {dpid: topology.piece(dpid) for dpid in graph} == {dpid: min(piece) for piece in pieces for dpid in piece}
    assert topology.redundant == len(topology.links) - len(nx.minimum_spanning_tree(graph).edges)
