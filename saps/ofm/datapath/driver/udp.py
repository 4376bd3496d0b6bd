"""UDP for OFM: one socket for each broker, which sends to OFM addresses and receives the datagrams that switches
rewrite to its address.

Datagrams leave from the address in the broker list, because the flow tables match it. They are never fragmented:
fragments would not arrive. The endpoint reads all datagrams of one turn of the event loop at once, and hands them on
together.
"""

from __future__ import annotations

import asyncio
import fcntl
import ipaddress
import logging
import socket
import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.datapath.driver import socket_filter as doorkeeper

logger = logging.getLogger(__name__)

READ_AT_ONCE = 128
"""Most datagrams read in one turn of the event loop."""
LARGEST = 65_535
"""Bytes of the longest possible datagram."""
BUFFER = 4 << 20
"""Size of the socket's buffers in bytes (the kernel may give less): room for what arrives while the broker is busy."""
HOPS = 16
"""Hop limit of a datagram. Only routers count; OpenFlow trees have none."""

_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _DO = 10, 23, 2
_SIOCGIFCONF, _SIOCGIFHWADDR = 0x8912, 0x8927
_IFREQ = struct.calcsize("16sLLHBBB0L")
"""Bytes of a row of SIOCGIFCONF (netdevice(7)): an interface's name and one of its IPv4 addresses."""
_IF_INET6 = Path("/proc/net/if_inet6")
"""The IPv6 addresses of all interfaces (proc(5)): no ioctl returns them."""


@lru_cache(4096)  # there is an address for each tree, and for each set of brokers without a tree
def target_of(address: str) -> tuple[str, int]:
    """Return IP address and port of an OFM address ``IP:port``. Raises `ValueError`."""
    parsed = OfmAddress.parse(address)
    return parsed.ip, parsed.port


class UdpEndpoint:
    """The UDP socket of a broker. `received` gets the datagrams of one turn of the event loop."""

    def __init__(self, received: Callable[[list[bytes]], None]) -> None:
        self._received = received
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._buffer = bytearray(LARGEST)
        self._warned = False
        self.unsent = 0
        """Datagrams that the kernel has not taken. The data path treats them like losses on the way."""

    def listen(self, host: str, port: int) -> tuple[str, int]:
        """Bind the socket, begin to read, and return the address in use. Raises `OSError` if the address is not
        available."""
        address = ipaddress.ip_address(host)
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        endpoint = socket.socket(family, socket.SOCK_DGRAM)
        try:
            endpoint.setblocking(False)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                endpoint.setsockopt(socket.SOL_SOCKET, option, BUFFER)
            if address.version == 4:
                endpoint.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _DO)
                endpoint.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, HOPS)
                endpoint.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
                endpoint.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, address.packed)
            else:
                endpoint.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _DO)
                endpoint.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, HOPS)
                endpoint.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
                if (interface := _interface_of(address)) is not None:
                    endpoint.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex(interface))
            endpoint.bind((host, port))
        except OSError:
            endpoint.close()
            raise
        self._socket = endpoint
        self._loop.add_reader(endpoint.fileno(), self._readable)
        name = endpoint.getsockname()
        return name[0], name[1]

    def send(self, address: str, raw: bytes, dscp: int = 0) -> None:
        """Send one datagram to an OFM address ``IP:port``, with a differentiated services code point (RFC 2474). A
        datagram that cannot be sent is counted and dropped."""
        target = target_of(address)
        if self._socket is None:
            return
        try:
            if dscp:
                self._socket.sendmsg((raw,), (_marked(self._socket.family, dscp),), 0, target)
            else:
                self._socket.sendto(raw, target)
        except OSError as error:
            self.unsent += 1
            if not self._warned and not isinstance(error, BlockingIOError):
                self._warned = True
                logger.warning("a datagram of %d bytes to %s was not sent: %s", len(raw), address, error)

    def admit(self, labels: Iterable[bytes]) -> None:
        """Take in only datagrams sealed with a key of these labels from now on, if the kernel can filter them."""
        if self._socket is not None:
            try:
                doorkeeper.attach(self._socket, labels)
            except OSError as error:
                logger.debug("UDP: no filter in the kernel: %s", error)

    @property
    def kept_out(self) -> int:
        """Datagrams that the kernel has dropped: without a known label, or without room in the buffer."""
        return 0 if self._socket is None else doorkeeper.kept_out(self._socket)

    def close(self) -> None:
        """Stop reading and sending. A second call does nothing."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _readable(self) -> None:
        endpoint, buffer = self._socket, self._buffer
        if endpoint is None:
            return
        datagrams: list[bytes] = []
        try:
            for _ in range(READ_AT_ONCE):
                size = endpoint.recv_into(buffer)
                datagrams.append(bytes(memoryview(buffer)[:size]))
        except BlockingIOError:
            pass
        except OSError as error:  # an ICMP error about a sent datagram: its loss is found anyway
            logger.debug("UDP: %s", error)
        if datagrams:
            self._received(datagrams)


def _marked(family: int, dscp: int) -> tuple[int, int, bytes]:
    """Return the ancillary data that gives one datagram its code point (ip(7); RFC 3542, 6.5)."""
    value = struct.pack("i", dscp << 2)
    if family == socket.AF_INET6:
        return socket.IPPROTO_IPV6, socket.IPV6_TCLASS, value
    return socket.IPPROTO_IP, socket.IP_TOS, value


def mac_of(host: str) -> str | None:
    """Return the MAC address of the interface that has this address, or None if no interface has it."""
    interface = _interface_of(ipaddress.ip_address(host))
    if interface is None:
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        found: bytes = fcntl.ioctl(probe, _SIOCGIFHWADDR, struct.pack("256s", interface.encode()[:15]))[18:24]
    return found.hex(":")


def _interface_of(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str | None:
    """Return the name of the interface that has an address, or None if no interface has it."""
    if address.version == 6:
        rows = (line.split() for line in _IF_INET6.read_text().splitlines()) if _IF_INET6.exists() else ()
        return next((row[5] for row in rows if bytes.fromhex(row[0]) == address.packed), None)
    return next((name for name, each in _ipv4_addresses() if each == address.packed), None)


def _ipv4_addresses() -> Iterator[tuple[str, bytes]]:
    """Yield the name of an interface with each of its IPv4 addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:

        def rows(length: int, at: int) -> int:
            found: bytes = fcntl.ioctl(probe, _SIOCGIFCONF, struct.pack("iP", length, at))
            return int.from_bytes(found[:4], sys.byteorder)

        table = array("B", bytes(rows(0, 0)))  # without a table the kernel returns the length needed
        length = rows(len(table), table.buffer_info()[0])
    for start in range(0, length, _IFREQ):
        row = table[start : start + _IFREQ].tobytes()
        label = row[:16].partition(b"\0")[0].decode()
        yield label.partition(":")[0], row[20:24]
