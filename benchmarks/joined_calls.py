"""Would joined system calls help the OFM data path? ``python -m benchmarks.joined_calls``.

Sends and reads UDP datagrams over loopback, one system call each as `saps.ofm.datapath.driver.udp` does, and several
with one
``sendmmsg(2)`` or ``recvmmsg(2)`` (by ctypes: Python has neither), by turns. Prints microseconds of processor time for
a datagram: the median of the rounds, and the range.
"""

from __future__ import annotations

import argparse
import ctypes
import socket
import statistics
import struct
import time
from collections.abc import Callable

IN_ALL = 16_384
"""Datagrams of one measurement."""
TOGETHER = 64
"""Datagrams that wait in the receiver's buffer when it begins to read."""


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Header(ctypes.Structure):
    """``struct msghdr``."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.POINTER(_Vector)),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):
    """``struct mmsghdr``."""

    _fields_ = (("header", _Header), ("length", ctypes.c_uint))


_libc = ctypes.CDLL(None, use_errno=True)


class _Joined:
    """Message headers and their vectors, made once and used again."""

    def __init__(self, count: int, target: tuple[str, int] | None, size: int) -> None:
        self.messages = (_Message * count)()
        self.vectors = (_Vector * count)()
        self.buffers = [ctypes.create_string_buffer(size) for _ in range(count)]
        if target is not None:
            raw = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", target[1], socket.inet_aton(target[0]))
            self.address = ctypes.create_string_buffer(raw, len(raw))
        for message, vector, buffer in zip(self.messages, self.vectors, self.buffers, strict=True):
            vector.base, vector.length = ctypes.addressof(buffer), size
            message.header.vectors, message.header.vector_count = ctypes.pointer(vector), 1
            if target is not None:
                message.header.name, message.header.name_length = ctypes.addressof(self.address), len(self.address)


def main() -> None:
    """The entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.joined_calls", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each kind (default: %(default)s)")
    parser.add_argument("--sizes", default="200,1200", help="bytes of a datagram (default: %(default)s)")
    arguments = parser.parse_args()
    print(
        "| bytes | call | one a datagram | 4 joined | 16 joined | 64 joined |\n| ---: | --- | --- | --- | --- | --- |"
    )
    for size in map(int, arguments.sizes.split(",")):
        for name, measure in (("send", _sending), ("receive", _receiving)):
            ways = [measure(size, joined) for joined in (0, 4, 16, 64)]
            rounds = [[way() for way in ways] for _ in range(arguments.rounds)]
            cells = (
                f"{statistics.median(column):.2f} us ({min(column):.2f}-{max(column):.2f})"
                for column in zip(*rounds, strict=True)
            )
            print(f"| {size} | {name} | {' | '.join(cells)} |")


def _pair() -> tuple[socket.socket, socket.socket]:
    """A sender, and a receiver that it is connected to by nothing but its address."""
    sender, receiver = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    receiver.bind(("127.0.0.1", 0))
    receiver.setblocking(False)
    return sender, receiver


def _sending(size: int, joined: int) -> Callable[[], float]:
    sender, receiver = _pair()
    target, payload = receiver.getsockname(), bytes(size)
    calls = _Joined(joined, target, size)

    def one_by_one() -> None:
        for _ in range(TOGETHER):
            sender.sendto(payload, target)

    def together() -> None:
        for _ in range(TOGETHER // joined):
            for vector in calls.vectors:  # a broker's datagrams differ: each has its own bytes
                vector.base, vector.length = ctypes.cast(ctypes.c_char_p(payload), ctypes.c_void_p), len(payload)
            if _libc.sendmmsg(sender.fileno(), calls.messages, joined, 0) != joined:
                raise OSError(ctypes.get_errno(), "sendmmsg")

    return lambda: _timed(together if joined else one_by_one, lambda: None, lambda: _drain(receiver))


def _receiving(size: int, joined: int) -> Callable[[], float]:
    sender, receiver = _pair()
    target, payload = receiver.getsockname(), bytes(size)
    calls, buffer = _Joined(joined, None, size), bytearray(65_535)

    def fill() -> None:
        for _ in range(TOGETHER):
            sender.sendto(payload, target)

    def one_by_one() -> None:
        found = []
        try:
            while True:
                length = receiver.recv_into(buffer)
                found.append(bytes(memoryview(buffer)[:length]))
        except BlockingIOError:
            pass
        _complete(found)

    def together() -> None:
        found: list[bytes] = []
        while (count := _libc.recvmmsg(receiver.fileno(), calls.messages, joined, socket.MSG_DONTWAIT, None)) > 0:
            arrived = zip(calls.buffers[:count], calls.messages[:count], strict=True)
            found += [ctypes.string_at(buffer, message.length) for buffer, message in arrived]
        _complete(found)

    return lambda: _timed(together if joined else one_by_one, fill, lambda: None)


def _timed(work: Callable[[], None], before: Callable[[], None], after: Callable[[], None]) -> float:
    """Microseconds of processor time for one datagram of `work`, which handles `TOGETHER` of them."""
    spent = 0
    for _ in range(IN_ALL // TOGETHER):
        before()
        begin = time.process_time_ns()
        work()
        spent += time.process_time_ns() - begin
        after()
    return spent / IN_ALL / 1000


def _complete(found: list[bytes]) -> None:
    if len(found) != TOGETHER:
        raise SystemExit(f"{len(found)} of {TOGETHER} datagrams arrived: the receive buffer is too small")


def _drain(receiver: socket.socket) -> None:
    try:
        while True:
            receiver.recv(65_535)
    except BlockingIOError:
        return


if __name__ == "__main__":
    main()
