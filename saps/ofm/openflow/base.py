"""The flow entries every switch has from us, whatever the plans say: what they do not match goes on by `NORMAL`.

They carry their own cookie, so that the reconciler, which touches only its own, leaves them alone. They stay when the
controller is gone. Where a switch has meters, what is copied to the controller passes one.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from saps.ofm.flows.tables import (
    CONTROLLER,
    NORMAL,
    Change,
    Flow,
    FlowName,
    Masked,
    Match,
    Meter,
    Output,
    PutFlow,
    PutMeter,
)
from saps.ofm.openflow.lldp import ETHERTYPE

COOKIE = 0x5AB5_BA5E_0000_0000
"""Of the entries here."""

LLDP = Flow(65000, Match.of(eth_type=ETHERTYPE), (Output(CONTROLLER),), cookie=COOKIE)
"""Probes of links come to the controller and go no further."""
ARP = Flow(64000, Match.of(eth_type=0x0806), (Output(CONTROLLER), Output(NORMAL)), cookie=COOKIE)
"""A copy of each ARP packet: it tells where hosts are."""
SOLICITATION = Flow(
    64000,
    Match.of(
        eth_type=0x86DD,
        ip_proto=58,
        ipv6_dst=Masked(0xFF02_0000_0000_0000_0000_0001_FF00_0000, (1 << 128) - (1 << 24)),
    ),
    (Output(CONTROLLER), Output(NORMAL)),
    cookie=COOKIE,
)
"""A copy of each IPv6 neighbour solicitation, by the multicast addresses they are sent to (RFC 4291, 2.7.1)."""
MISS = Flow(0, Match(), (Output(NORMAL),), cookie=COOKIE)
"""What no other entry matches (table-miss, OpenFlow 1.3.5, 5.4)."""

BASE_FLOWS = (LLDP, ARP, SOLICITATION, MISS)

STORM = Meter(0xF5AB_0001, rate=1000, burst=1000)
"""Of ARP and neighbour solicitations, so many a second at a switch. More is a storm or an attack, and would keep the
controller from all else; a meter drops it altogether (OpenFlow 1.3.5, 5.7), so it does not go on by
`NORMAL` either. The id lies above those of plans (`plan.METERS`)."""
LIMITED = (LLDP, replace(ARP, meter=STORM.id), replace(SOLICITATION, meter=STORM.id), MISS)
"""The base flows of a switch that has meters."""


def missing(there: Mapping[FlowName, Flow], limited: bool) -> list[Change]:
    """What makes the base flows of what is there of them, with or without their meter. With that a switch would have
    dropped its flows."""
    flows = [PutFlow(flow) for flow in (LIMITED if limited else BASE_FLOWS) if there.get(flow.name) != flow]
    return [PutMeter(STORM), *flows] if limited and flows else [*flows]
