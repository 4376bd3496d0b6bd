"""Recovers the tree of a plan from switches' tables, so that a controller without saved state continues with it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping

from saps.ofm.flows.plan import BROKER, LINK_GROUPS, TRUNK, Ofm, Plan, kind_of_select, plan, select_kind
from saps.ofm.flows.reconcile import difference
from saps.ofm.flows.tables import Action, Flow, Output, SetField, Tables, mac_text
from saps.ofm.network.topology import BrokerAddress, Link, Port, Topology
from saps.ofm.trees.tree import Pair, Tree, pair_of


def recovered(ofm: Ofm, topology: Topology, held: Mapping[int, Tables]) -> Plan | None:
    """Return the plan that made the tables that switches hold of an OFM, or None if no plan over intact links made
    them."""
    try:
        return _recovered(ofm, topology, held)
    except ValueError:  # an address that no plan of SAPS contains
        return None


def _recovered(ofm: Ofm, topology: Topology, held: Mapping[int, Tables]) -> Plan | None:
    links: set[Link] = set()
    brokers: dict[BrokerAddress, Port] = {}
    receivers: set[BrokerAddress] = set()
    kinds: dict[Port, int] = {}
    for dpid, tables in held.items():
        for flow in tables.flows.values():
            fields = dict(flow.match.fields)
            if "in_port" not in fields:
                return None
            place = Port(dpid, fields["in_port"].value)
            if flow.priority == TRUNK:
                if (link := topology.link_at(place)) is None:
                    return None
                links.add(link)
            elif flow.priority == BROKER and (sender := _sender(flow)) is not None:
                brokers[sender] = place
        for id, group in tables.groups.items():
            if group.kind in LINK_GROUPS:
                kinds |= {Port(dpid, bucket.watch): kind_of_select(id) for bucket in group.buckets if bucket.watch}
        for broker, port in _receivers(tables):
            brokers[broker] = Port(dpid, port)
            receivers.add(broker)
    made = plan(ofm, Tree(frozenset(links), brokers, _anchors(links, kinds)), brokers.keys() - receivers)
    if made.tables.keys() != held.keys() or not made.tree.connected or not made.tree.intact(topology):
        return None
    # A limit is not part of the tree: the switch may have no meters, or the limit may have changed since.
    different = any(difference(held[dpid].unmetered(), made.tables[dpid].unmetered()) for dpid in held)
    return None if different else made


def _anchors(links: Iterable[Link], kinds: Mapping[Port, int]) -> frozenset[Link]:
    """Return the links that name the groups which spread traffic over `links`. `kinds` gives, by port, the
    `select_kind` in the id of the group that sends by it. A group that is named by a link out of use yields no
    anchor."""
    found: dict[Pair, Link] = {}
    for link in sorted(links):
        if all(kinds.get(end) == select_kind(end.port) for end in link):
            found.setdefault(pair_of(link), link)
    return frozenset(found.values())


def _sender(flow: Flow) -> BrokerAddress | None:
    """Return the broker of a broker's flow: the first one that its packets go back to."""
    return next((broker for broker, _ in _destinations(flow.actions)), None)


def _receivers(tables: Tables) -> Iterator[tuple[BrokerAddress, int]]:
    for group in tables.groups.values():
        for bucket in group.buckets:
            yield from _destinations(bucket.actions)


def _destinations(actions: tuple[Action, ...]) -> Iterator[tuple[BrokerAddress, int]]:
    """Yield the brokers that packets are rewritten to, each with the port the packets leave by."""
    values: dict[str, int] = {}
    for action in actions:
        match action:
            case SetField(name, value):
                values[name] = value
            case Output(port):
                ip = values.get("ipv4_dst", values.get("ipv6_dst"))
                if ip is not None and "eth_dst" in values and "udp_dst" in values:
                    text = str(ipaddress.IPv4Address(ip) if "ipv4_dst" in values else ipaddress.IPv6Address(ip))
                    yield BrokerAddress(text, mac_text(values["eth_dst"]), values["udp_dst"]), port
