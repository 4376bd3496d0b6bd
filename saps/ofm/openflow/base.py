"""The flow entries every switch has from us, whatever the plans say: what they do not match goes on by `NORMAL`.

They carry their own cookie, so that the reconciler, which touches only its own, leaves them alone. They stay when the
controller is gone.
"""

from __future__ import annotations

from saps.ofm.flows.tables import CONTROLLER, NORMAL, Flow, Masked, Match, Output
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
