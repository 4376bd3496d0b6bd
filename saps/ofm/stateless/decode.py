"""Decodes an address for people: the brokers that it names, and the links on the way to them."""

from __future__ import annotations

from collections.abc import Collection

from saps.ofm.northbound.schema import DecodedAddress, Receiver, WayLink
from saps.ofm.stateless.address import Receivers
from saps.ofm.stateless.planes import crossed
from saps.ofm.stateless.tables import Layout
from saps.ofm.trees.tree import Tree, pruned


def decode(layout: Layout, working: Collection[int], named: Receivers, sender: str | None = None) -> DecodedAddress:
    """Return what an address means in a layout. `working`: numbers of the planes that may be used now. `sender`: IP
    address of the sending broker; without one the links are those that join the receivers.

    Raises `LookupError` if no broker that the plane reaches has the sender's address."""
    plane = layout.planes[named.plane] if named.plane < len(layout.planes) else Tree()
    members = layout.sets[named.set] if named.set < len(layout.sets) else ()
    receivers: list[Receiver] = []
    homes: set[int] = set()
    for position in named.positions:
        broker = members[position] if position < len(members) else None
        place = None if broker is None else plane.brokers.get(broker)
        if place is not None:
            homes.add(place.dpid)
        dpid, port = (None, None) if place is None else (f"{place.dpid:016x}", place.port)
        receivers.append(Receiver(position=position, broker=broker, dpid=dpid, port=port))
    if sender is None:
        links = pruned(plane.links, homes)
    else:
        start = next((place.dpid for broker, place in plane.brokers.items() if broker.ip == sender), None)
        if start is None:
            raise LookupError(f"plane {named.plane} reaches no broker {sender}")
        bits = layout.bits_at(named.set, plane) if members else {}
        links = frozenset(crossed(plane, bits, start, named.bits))
    return DecodedAddress(
        address=str(named.address),
        set=named.set,
        plane=named.plane,
        working=named.plane in working,
        receivers=receivers,
        links=[
            WayLink(a=f"{link.a.dpid:016x}", a_port=link.a.port, b=f"{link.b.dpid:016x}", b_port=link.b.port)
            for link in sorted(links)
        ],
    )
