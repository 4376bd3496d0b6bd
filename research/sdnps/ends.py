"""One node of the experiment of SDNPS's Tables 1 to 6, as a process on its host: sends packets or counts them.

``python -m research.sdnps.ends IP PORT`` takes orders on standard input and answers each with a line of JSON. Times of
arrival are the kernel's time stamps, so a delay of this process does not matter.

    send IP PORT PACKETS RATE RUN    -> {"began": ns}; RATE 0: as fast as possible
    count PACKETS RUN, then over     -> {}, then {"got": n, "last": ns, "delays": [us, ...]}; `over`: all were sent
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import time
from typing import Any

PACKET = 200
"""Bytes of a packet with its IP and UDP headers (section 5.1)."""
PAYLOAD = PACKET - 28
HEAD = struct.Struct("!IQ")
"""Head of a packet: the number of the run, and the time it was sent in ns, or 0."""
QUIET = 0.25
"""Seconds without a packet, after all were sent, until the rest counts as lost."""
MOST_DELAYS = 5000
"""Most delays in an answer. Delays of a run as fast as possible are of no use."""
BUFFER = 256 << 20
"""Bytes of the receive buffer, so large that packets are lost only on the way."""
NICENESS = 10
"""Niceness added to a counting process. The buffer can wait; the switches on the same processors cannot."""
_SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 33, 35
_STAMP = struct.Struct("@qq")


def send(sock: socket.socket, to: tuple[str, int], packets: int, rate: float, run: int) -> dict[str, Any]:
    """Send `packets` packets at `rate` a second (0: as fast as possible). Returns the time of the start in ns."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        out.bind(sock.getsockname())
        out.connect(to)
        began = time.time_ns()
        if rate:
            _paced(out, packets, rate, run)
        else:
            packet, push = HEAD.pack(run, 0).ljust(PAYLOAD, b"."), out.send
            for _ in range(packets):
                push(packet)
    return {"began": began}


def _paced(out: socket.socket, packets: int, rate: float, run: int) -> None:
    start = time.monotonic()
    for number in range(packets):
        ahead = start + number / rate - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
        out.send(HEAD.pack(run, time.time_ns()).ljust(PAYLOAD, b"."))


def count(sock: socket.socket, expected: int, run: int) -> dict[str, Any]:
    """Count the packets of a run until all have come, or until the sender is done and nothing comes for `QUIET` s.

    Returns the number of packets, the time of the last one in ns, and delays in µs."""
    got, last, quiet = 0, 0, None
    delays: list[float] = []
    while got < expected:
        waiting = [sock, sys.stdin] if quiet is None else [sock]
        ready, _, _ = select.select(waiting, [], [], quiet)
        if not ready:
            break
        if sys.stdin in ready:
            sys.stdin.readline()
            quiet = QUIET
        if sock in ready:
            for number, sent, arrived in _arrivals(sock):
                if number == run:
                    got, last = got + 1, max(last, arrived)
                    if sent and len(delays) < MOST_DELAYS:
                        delays.append(round((arrived - sent) / 1000, 1))
    if quiet is None:
        sys.stdin.readline()
    return {"got": got, "last": last, "delays": delays}


def _arrivals(sock: socket.socket) -> list[tuple[int, int, int]]:
    """Return at most 1000 waiting packets, each as its run, the time it was sent, and the time it came, in ns."""
    found = []
    space = socket.CMSG_SPACE(_STAMP.size)
    for _ in range(1000):
        try:
            data, more, _, _ = sock.recvmsg(PAYLOAD, space)
        except BlockingIOError:
            break
        seconds, nanoseconds = _STAMP.unpack(more[0][2])
        found.append((*HEAD.unpack_from(data), seconds * 1_000_000_000 + nanoseconds))
    return found


def drain(sock: socket.socket) -> None:
    """Discard waiting packets: this node's own loopback packets, and late ones."""
    while _arrivals(sock):
        pass


def main(ip: str, port: int) -> None:
    """Serve orders until the end of standard input."""
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, BUFFER)
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind((ip, port))
        print("ready", flush=True)
        while line := sys.stdin.readline():
            verb, *words = line.split()
            drain(sock)
            os.setpriority(os.PRIO_PROCESS, 0, usual if verb == "send" else min(usual + NICENESS, 19))
            if verb == "send":
                answer = send(sock, (words[0], int(words[1])), int(words[2]), float(words[3]), int(words[4]))
            else:
                print("{}", flush=True)  # tells the bench that counting has begun
                answer = count(sock, int(words[0]), int(words[1]))
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
