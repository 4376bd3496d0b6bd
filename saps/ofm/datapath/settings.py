"""How the OFM data path waits and what it keeps (`saps.ofm.datapath.datapath`)."""

from __future__ import annotations

import msgspec

MTU_OVERHEAD = 28
"""Bytes of IPv4 and UDP headers. (48 with IPv6.)"""


class DatapathSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the data path waits. Times in seconds."""

    largest: int = 1500 - MTU_OVERHEAD
    """Largest datagram in bytes; a larger message goes by ALM. IP fragments would not arrive."""
    loopback: float = 0.05
    """Least time within which a datagram must come back; more where the network turns out to be slower."""
    retry: float = 0.5
    """Time after which a tree that failed is tried again; doubles each time."""
    retry_at_most: float = 30.0
    acknowledge: float = 0.005
    """Time for which acknowledgements are gathered."""
    repeat: float = 0.2
    """Least time after which a member that has not acknowledged gets the message by ALM."""
    quiet: float = 0.05
    """Pause after which a datagram tells the number of the last publication, if that had QoS 0."""
    mark: float = 2.0
    """Longest time between a publication along the tree and a high-water mark sent to each member by itself. Shorter
    finds a lost end sooner, and costs a small frame a member each."""
    history: int = 1024
    """Datagrams kept for members that miss them, per topic."""
