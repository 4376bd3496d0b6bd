"""Settings of the OFM data path: timeouts and limits (`saps.ofm.datapath.datapath`)."""

from __future__ import annotations

import msgspec

MTU_OVERHEAD = 28
"""Bytes of IPv4 and UDP headers. (48 with IPv6.)"""


class DatapathSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timeouts and limits of the data path. Times in seconds."""

    largest: int = 1500 - MTU_OVERHEAD
    """Size of the largest datagram in bytes. A larger message goes by ALM, because IP fragments would not arrive."""
    loopback: float = 0.05
    """Least timeout of a loopback packet. A slower network raises the timeout."""
    retry: float = 0.5
    """Delay after which a tree that failed is tried again. It doubles each time, up to `retry_at_most`."""
    retry_at_most: float = 30.0
    acknowledge: float = 0.005
    """Time for which acknowledgements are gathered."""
    repeat: float = 0.2
    """Least timeout of a member's acknowledgement. After the timeout the member gets the message by ALM."""
    quiet: float = 0.05
    """Pause after which a datagram tells the number of the last publication, if that publication had QoS 0."""
    mark: float = 2.0
    """Longest time between a publication along the tree and a high-water mark sent to each member by itself. A shorter
    time finds a lost end sooner, and costs each member a small frame."""
    history: int = 1024
    """Datagrams kept for members that miss them, for each topic."""
