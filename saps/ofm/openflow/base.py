"""Defines the flow entries that every switch gets from SAPS, independent of plans. Packets that plans do not match
continue by `NORMAL`.

The entries have a cookie of their own, so the reconciler, which touches only its own entries, leaves them alone. They
stay when the controller is gone. Where a switch has meters, packets copied to the controller pass one.
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
"""Cookie of the base flows."""

LLDP = Flow(65000, Match.of(eth_type=ETHERTYPE), (Output(CONTROLLER),), cookie=COOKIE)
"""Sends link probes to the controller and nowhere else."""
ARP = Flow(64000, Match.of(eth_type=0x0806), (Output(CONTROLLER), Output(NORMAL)), cookie=COOKIE)
"""Copies each ARP packet to the controller: it shows the place of a host."""
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
"""Copies each IPv6 neighbour solicitation to the controller, by the multicast addresses of solicitations (RFC 4291,
2.7.1)."""
MISS = Flow(0, Match(), (Output(NORMAL),), cookie=COOKIE)
"""Sends packets that no other entry matches by `NORMAL` (table-miss, OpenFlow 1.3.5, 5.4)."""

BASE_FLOWS = (LLDP, ARP, SOLICITATION, MISS)

STORM = Meter(0xF5AB_0001, rate=1000, burst=1000)
"""Limit of ARP packets and neighbour solicitations at a switch, in packets a second. More is a storm or an attack, and
would occupy the controller. A meter drops the excess altogether (OpenFlow 1.3.5, 5.7), so it does not continue by
`NORMAL` either. The id lies above those of plans (`plan.METERS`)."""
LIMITED = (LLDP, replace(ARP, meter=STORM.id), replace(SOLICITATION, meter=STORM.id), MISS)
"""The base flows of a switch that has meters."""


def missing(there: Mapping[FlowName, Flow], limited: bool) -> list[Change]:
    """Return the changes that complete the base flows of a switch. `there` are the base flows it has; `limited` adds
    their meter. The meter is put together with missing flows only: a switch that lost its meter has dropped its flows
    as well."""
    flows = [PutFlow(flow) for flow in (LIMITED if limited else BASE_FLOWS) if there.get(flow.name) != flow]
    return [PutMeter(STORM), *flows] if limited and flows else [*flows]
