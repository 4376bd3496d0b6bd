"""What closed connections leave behind: ``python -m benchmarks.closed_connections``.

Clients with a clean start and a keep-alive of 65,535 s connect one after the other, each under a name of its own, say
goodbye and are gone. Printed is the resident memory of the broker after the first thousand and after all.
"""

from __future__ import annotations

import argparse
import itertools
import socket
from collections.abc import Iterator

from benchmarks.peers import Saps
from benchmarks.probes import resident_bytes
from benchmarks.processes import Place

MIB = 1 << 20
WARM_UP = 1000
"""Connections after which the broker has what it needs for one."""
KEEP_ALIVE = 0xFFFF


def connections(port: int) -> Iterator[int]:
    """Each step is one connection, from its first packet to its end; how many there were."""
    for number in itertools.count(1):
        name = b"closed-%08d" % number
        body = b"\0\4MQTT\4\2" + KEEP_ALIVE.to_bytes(2) + len(name).to_bytes(2) + name
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(bytes((0x10, len(body))) + body)
            if client.recv(4) != b"\x20\2\0\0":
                raise RuntimeError("the broker refuses a client")
            client.sendall(b"\xe0\0")
            client.recv(1)  # the broker closes: the ports are free at once
        yield number


def measured(total: int) -> tuple[int, int]:
    """The broker's resident bytes after `WARM_UP` connections, and after `total`."""
    with Place(None) as place:
        site = Saps().launch(place, "throughput")
        first = 0
        for number in connections(site.publish_port):
            if number == WARM_UP:
                first = resident_bytes(place.pids)
            if number == total:
                break
        return first, resident_bytes(place.pids)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=100_000, help="how many in all (%(default)s)")
    total = max(WARM_UP, parser.parse_args().connections)
    first, last = measured(total)
    print(
        f"{WARM_UP:,} connections: {first / MIB:.1f} MiB; {total:,}: {last / MIB:.1f} MiB, {(last - first) / MIB:+.1f}"
    )


if __name__ == "__main__":
    main()
