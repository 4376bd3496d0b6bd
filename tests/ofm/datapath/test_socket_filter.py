"""The filter in the kernel: what a broker's socket lets in, on real sockets."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from random import Random

import pytest

from saps.ofm.datapath.driver import socket_filter as doorkeeper
from saps.ofm.keys.sealing import FORM, HEADER

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
LABELS = [Random(1).randbytes(8) for _ in range(3)]
END = HEADER.pack(FORM, b"theend!!", 1, 1)


@pytest.fixture(params=["127.0.0.1", "::1"])
def door(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as inside, socket.socket(family, socket.SOCK_DGRAM) as outside:
        inside.bind((request.param, 0))
        inside.settimeout(30)
        outside.connect(inside.getsockname())
        yield inside, outside


def let_in(door: tuple[socket.socket, socket.socket], labels: list[bytes], datagrams: list[bytes]) -> list[bytes]:
    """Those that come in. Loopback keeps their order, so the last one says that there are no more."""
    inside, outside = door
    doorkeeper.attach(inside, [*labels, END[1:9]])
    for raw in (*datagrams, END):
        outside.send(raw)
    found = []
    while (raw := inside.recv(2000)) != END:
        found.append(raw)
    return found


@pytest.mark.parametrize("count", [0, 1, 3])
def test_only_known_labels_come_in(door: tuple[socket.socket, socket.socket], count: int) -> None:
    rng = Random(count)
    good = [HEADER.pack(FORM, label, 1, 1) + rng.randbytes(50) for label in LABELS[:count]]
    strange = [HEADER.pack(FORM, rng.randbytes(8), 1, 1), b"", b"\xa2", HEADER.pack(0x9B, LABELS[0], 1, 1), bytes(1400)]
    before = doorkeeper.kept_out(door[0])
    assert let_in(door, LABELS[:count], strange + good + strange) == good
    assert doorkeeper.kept_out(door[0]) - before == 2 * len(strange)


def test_the_labels_can_be_many_and_change(door: tuple[socket.socket, socket.socket]) -> None:
    many = [struct.pack(">II", number, 0) for number in range(doorkeeper.MOST - 1)]
    good = HEADER.pack(FORM, many[-1], 1, 1)
    stranger = HEADER.pack(FORM, b"\xff" * 8, 1, 1)
    assert let_in(door, many, [stranger, good]) == [good]
    assert let_in(door, many[:5], [good]) == []
    more = [*many, *LABELS]
    assert let_in(door, more, [stranger, b"other", good]) == [stranger, good]
