"""Checks intents before anything is planned."""

from __future__ import annotations

import ipaddress

from saps.ofm.controller.events import Intent
from saps.ofm.network.topology import BrokerAddress


def intent_fault(intent: Intent, ip_version: int) -> str | None:
    """Return why no OFM with addresses of this IP version can fulfil the intent, or None if one can."""
    if not intent.members:
        return "an OFM needs a broker"
    listeners: dict[tuple[str, int], BrokerAddress] = {}
    for broker in sorted(intent.members):
        if (6 if ":" in broker.ip else 4) != ip_version:
            return f"broker {broker.ip} cannot take part: OFM addresses are IPv{ip_version}"
        if ipaddress.ip_address(broker.ip).is_loopback:
            return f"broker {broker.ip} cannot take part: no switch can send to a loopback address"
        if (other := listeners.setdefault((broker.ip, broker.port), broker)) != broker:
            return f"{broker.ip} port {broker.port} has two MAC addresses, {other.mac} and {broker.mac}"
    return None
