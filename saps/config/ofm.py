"""The settings of OpenFlow multicast at a broker (``[ofm]``)."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal

import msgspec

from saps.config.address import Address
from saps.config.knobs import knob
from saps.ofm.datapath.settings import DatapathSettings
from saps.topics import filter_fault

_DATAPATH = DatapathSettings()
_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
_HEADERS = {4: 28, 6: 48}
"""Bytes of the IP and UDP headers together, by IP version."""


def listen_fault(text: str) -> str | None:
    """Return why a broker cannot take part in OFM at this address, or None if it can or `text` is empty."""
    if not text:
        return None
    try:
        address = Address.parse(text)
        ip = ipaddress.ip_address(address.host)
    except ValueError as error:
        return str(error)
    if ip.is_unspecified or ip.is_multicast:
        return f"{text!r}: give the one address that switches send to, as they see it"
    return None


def mac_fault(text: str) -> str | None:
    """Return why `text` is not a MAC address, or None if it is one or empty."""
    return None if not text or _MAC.fullmatch(text) else f"{text!r} is not a MAC address such as 02:00:00:00:00:01"


class OfmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A broker's part in OpenFlow multicast (``[ofm]``); off unless `listen` is given."""

    listen: Annotated[
        str,
        knob(
            "Where switches send this broker's datagrams (UDP), IP:PORT; empty for no OFM",
            check=listen_fault,
        ),
    ] = ""
    attach: Annotated[
        str,
        knob(
            "Port of a software switch (`saps switches`), IP:PORT; `listen` is then the address in that network",
            check=listen_fault,
        ),
    ] = ""
    mac: Annotated[
        str,
        knob("MAC address for the broker list; empty for that of the interface with the address", check=mac_fault),
    ] = ""
    mode: Annotated[
        Literal["either", "both"],
        knob("Who knows a tree's members: 'either', OFGate; 'both', the overlay. The same on every broker and OFGate"),
    ] = "either"
    exceptions: Annotated[
        tuple[str, ...],
        knob("Topic filters whose topics use the other mode; the same everywhere, like mode", check=filter_fault),
    ] = ()
    domains: Annotated[
        tuple[str, ...],
        knob(
            "Clusters with a controller and OFGates of their own. The same on every broker and OFGate; empty: one "
            "domain"
        ),
    ] = ()
    delivery: Annotated[
        Literal["trees", "stateless", "auto"],
        knob(
            "How topics leave: 'trees', each by one of its own, once it has one; 'stateless', by the address of those "
            "who subscribe, from the first message; 'auto', so, but by its tree while it has one. IPv6"
        ),
    ] = "trees"
    stateless: Annotated[
        tuple[str, ...],
        knob("Topic filters for which 'stateless' or 'auto' holds; other topics leave by trees", check=filter_fault),
    ] = ("#",)
    mtu: Annotated[
        int,
        knob(
            "Largest IP packet on the way; a message that does not fit into one goes by ALM",
            unit="bytes",
            cost="above the network's real limit large messages are lost and repeated",
            ge=576,
            le=65535,
        ),
    ] = 1500
    loopback_timeout: Annotated[
        float,
        knob(
            "Least time within which a datagram must come back, or the tree counts as gone",
            unit="s",
            cost="a vanished tree is noticed later",
            ge=0.001,
            le=60,
        ),
    ] = _DATAPATH.loopback
    retry: Annotated[
        float,
        knob(
            "Time after which a tree that failed is tried again; doubles up to 30 s",
            unit="s",
            cost="a tree that is back is used later",
            ge=0.05,
            le=30,
        ),
    ] = _DATAPATH.retry
    repeat: Annotated[
        float,
        knob(
            "Least time until an unacknowledged QoS 1 or 2 message is sent by ALM",
            unit="s",
            cost="a lost message arrives later; lowering it repeats more",
            ge=0.01,
            le=60,
        ),
    ] = _DATAPATH.repeat
    mark: Annotated[
        float,
        knob(
            "Longest time from a message by OFM to the frame that tells members its number",
            unit="s",
            cost="a lost last message of QoS 0 is found later; lowering it costs frames",
            ge=0.1,
            le=600,
        ),
    ] = _DATAPATH.mark
    history: Annotated[
        int,
        knob(
            "Datagrams kept for members that miss some, per topic",
            unit="datagrams",
            cost="memory for each topic published by OFM: at most `mtu` bytes each",
            ge=1,
            le=65536,
        ),
    ] = _DATAPATH.history

    def datapath(self) -> DatapathSettings:
        """Return the settings of the data path. The caller must call it only with a `listen` address."""
        version = ipaddress.ip_address(Address.parse(self.listen).host).version
        return DatapathSettings(
            largest=self.mtu - _HEADERS[version],
            loopback=self.loopback_timeout,
            retry=self.retry,
            repeat=self.repeat,
            mark=self.mark,
            history=self.history,
        )
