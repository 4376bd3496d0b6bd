"""Somebody on the network without a key: sniffs a broker's datagrams, and sends forged ones in any broker's name.

``python -m benchmarks.ofm_attacker HOST PORT KIND RATE`` floods from the network namespace it is started in, as root.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import time
from collections.abc import Callable
from random import Random

from lab.namespace import Namespace
from saps.ofm.keys.sealing import FORM, HEADER

ETH_ALL, UDP_SEGMENT = 3, 103
SLICE = 0.002
"""Seconds between two bursts of a flood."""


class Sniffer:
    """Everything that passes a host's interfaces, both ways or `inwards`, but what it says to itself."""

    def __init__(self, space: Namespace, *, inwards: bool = False) -> None:
        self._inwards = inwards
        self._socket = space.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)

    def packets(self, seconds: float) -> list[bytes]:
        """IPv4 packets of so many seconds."""
        found, end = [], time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                packet, (interface, _, kind, *_) = self._socket.recvfrom(65535)
            except TimeoutError:
                break
            if interface != "lo" and not (self._inwards and kind == socket.PACKET_OUTGOING):
                found.append(packet)
        return [packet for packet in found if packet[:1] == b"\x45"]

    def close(self) -> None:
        self._socket.close()


def datagrams(packets: list[bytes], port: int) -> list[bytes]:
    """What the UDP packets to a port hold."""
    there = struct.pack(">H", port)
    return [packet[28:] for packet in packets if packet[9] == socket.IPPROTO_UDP and packet[22:24] == there]


class Forger:
    """Sends UDP packets from inside a namespace, whose address is `ip`, under any source address."""

    def __init__(self, space: Namespace, ip: str) -> None:
        self._raw = space.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self._raw.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(ip))

    def send(self, source: tuple[str, int], target: tuple[str, int], payload: bytes) -> None:
        """One packet; the kernel adds lengths and checksum of IP, UDP has none."""
        udp = struct.pack(">HHHH", source[1], target[1], 8 + len(payload), 0)
        addresses = socket.inet_aton(source[0]) + socket.inet_aton(target[0])
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 0, 0, 0, 16, socket.IPPROTO_UDP, 0) + addresses
        self._raw.sendto(ip + udp + payload, (target[0], 0))

    def close(self) -> None:
        self._raw.close()


def forged(kind: str, label: bytes, size: int = 200) -> Callable[[int], bytes]:
    """Datagrams of a kind: ``noise`` is none of ours, ``label`` has a wrong label, ``count`` all that can be copied
    from one seen on the wire and a new count, so that the key itself must tell."""
    body, chance = os.urandom(size - HEADER.size), Random(size)
    if kind == "noise":
        return lambda number: chance.randbytes(8) + body
    if kind == "label":
        return lambda number: HEADER.pack(FORM, chance.randbytes(8), 1, number) + body
    return lambda number: HEADER.pack(FORM, label, 1, (1 << 63) + number) + body


def flood(target: tuple[str, int], make: Callable[[int], bytes], rate: float, seconds: float, jointly: int = 1) -> int:
    """Send at a steady rate. Returns how many were sent. `jointly`: so many in a system call, which the kernel takes
    apart (udp(7), UDP_SEGMENT); Open vSwitch does not take those."""
    sent, begin = 0, time.monotonic()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as endpoint:
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        endpoint.connect(target)
        if jointly > 1:
            endpoint.setsockopt(socket.SOL_UDP, UDP_SEGMENT, len(make(0)))
        while (passed := time.monotonic() - begin) < seconds:
            while sent < passed * rate:
                endpoint.send(b"".join(make(sent + number) for number in range(jointly)))
                sent += jointly
            time.sleep(SLICE)
    return sent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("kind", choices=["noise", "label", "count"])
    parser.add_argument("rate", type=float)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--jointly", type=int, default=1)
    parser.add_argument("--label", default="", help="hexadecimal")
    arguments = parser.parse_args()
    make = forged(arguments.kind, bytes.fromhex(arguments.label))
    target = arguments.host, arguments.port
    print(flood(target, make, arguments.rate, arguments.seconds, arguments.jointly), flush=True)


if __name__ == "__main__":
    main()
