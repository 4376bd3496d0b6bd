"""Packets that come twice, late, or with a wrong bit: what a device is to send goes through this process instead.

    python -m benchmarks.chaos.mangler DEVICE SHARE SEED

until its input ends. A packet filter of ``DEVICE`` sends all it is given to a tap device, which this process reads; it
writes to ``DEVICE`` past that filter. Linux with `act_mirred`; `netem`, made for this, is not in every kernel.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time

TAP = "saps-mangle"
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
SOL_PACKET, QDISC_BYPASS = 263, 20
LATE = (0.005, 0.05)
"""Seconds by which a late packet comes after those behind it, least and most."""
EVERY = "1,6 0 0 1"
"""A packet filter (classic BPF) that takes every packet."""


class Mangler:
    """What becomes of each packet. Pure."""

    def __init__(self, share: float, seed: int) -> None:
        """`share`: of the packets, for each of the three."""
        self._share, self._rng = share, random.Random(seed)

    def take(self, packet: bytes) -> list[tuple[float, bytes]]:
        """Seconds until it is sent, and what."""
        drawn, delay = self._rng.random() / self._share, self._rng.uniform(*LATE)
        if drawn < 1:
            return [(0.0, packet), (delay, packet)]
        if drawn < 2:
            return [(delay, packet)]
        if drawn < 3:
            wrong = bytearray(packet)
            wrong[self._rng.randrange(len(wrong))] ^= 1 << self._rng.randrange(8)
            return [(0.0, bytes(wrong))]
        return [(0.0, packet)]


def serve(device: str, mangler: Mangler) -> None:
    """Until the input ends. Raises `OSError`, and `CalledProcessError` if the filter cannot be set."""
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", TAP.encode(), IFF_TAP | IFF_NO_PI))
    out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    out.setsockopt(SOL_PACKET, QDISC_BYPASS, 1)
    out.bind((device, 0))
    _run("ip", "link", "set", TAP, "up", "mtu", "9000")
    _run("tc", "qdisc", "add", "dev", device, "clsact")
    redirect = ("action", "mirred", "egress", "redirect", "dev", TAP)
    _run("tc", "filter", "add", "dev", device, "egress", "bpf", "bytecode", EVERY, "flowid", "1:1", *redirect)
    print("ready", flush=True)
    try:
        _forward(tap, out, mangler)
    finally:
        _run("tc", "qdisc", "delete", "dev", device, "clsact")


def _forward(tap: int, out: socket.socket, mangler: Mangler) -> None:
    waiting: list[tuple[float, bytes]] = []
    while True:
        now = time.monotonic()
        for due, packet in [each for each in waiting if each[0] <= now]:
            waiting.remove((due, packet))
            try:
                out.send(packet)
            except OSError:  # the device's queue is full, or the packet too large: lost
                continue
        readable, _, _ = select.select([tap, 0], [], [], max(0.0, min(waiting)[0] - now) if waiting else None)
        if 0 in readable:
            return
        if tap in readable:
            now = time.monotonic()
            waiting += [(now + after, packet) for after, packet in mangler.take(os.read(tap, 65536))]


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    serve(sys.argv[1], Mangler(float(sys.argv[2]), int(sys.argv[3])))
