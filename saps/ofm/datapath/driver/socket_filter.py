"""A filter in the kernel: only datagrams with a label of the broker's keys wake its UDP socket.

The kernel drops everything else before it takes room in the socket's buffer. So a flood costs the broker next to
nothing, and displaces no datagram. The filter is a program of the classic packet filter (bpf(4); McCanne and Jacobson
1993). It reads only the form and half of the label: a datagram that passes is still unauthenticated to `saps.ofm.keys`.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterable

from saps.ofm.keys.sealing import FORM

MOST = 1000
"""Most labels that are told apart; with more, all datagrams of the form pass. Each label costs an unwanted datagram one
comparison."""
_UDP_HEADER = 8
_SO_ATTACH_FILTER, _SO_MEMINFO = 26, 55
_MEMINFO = struct.Struct("9I")
_DROPS = 8
_LOAD_BYTE, _LOAD_WORD, _IF_EQUAL, _RETURN = 0x30, 0x20, 0x15, 0x06
_ALL, _NOTHING = 0xFFFF_FFFF, 0

Instruction = tuple[int, int, int, int]
"""Operation, instructions to skip if true, instructions to skip if false, operand."""


def program(labels: Iterable[bytes]) -> list[Instruction]:
    """Return the program that passes sealed datagrams with one of these labels. Offsets count from the UDP header."""
    wanted = sorted({int.from_bytes(label[:4], "big") for label in labels})
    rest: list[Instruction]
    if len(wanted) > MOST:
        rest = [(_RETURN, 0, 0, _ALL)]
    else:
        rest = [(_LOAD_WORD, 0, 0, _UDP_HEADER + 1)]
        for label in wanted:
            rest += [(_IF_EQUAL, 0, 1, label), (_RETURN, 0, 0, _ALL)]
        rest.append((_RETURN, 0, 0, _NOTHING))
    return [(_LOAD_BYTE, 0, 0, _UDP_HEADER), (_IF_EQUAL, 1, 0, FORM), (_RETURN, 0, 0, _NOTHING), *rest]


def attach(endpoint: socket.socket, labels: Iterable[bytes]) -> None:
    """Let the kernel pass only datagrams with these labels from now on. Raises `OSError` where it knows no such
    filters."""
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program(labels))
    buffer = ctypes.create_string_buffer(code)
    length = len(code) // 8
    endpoint.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", length, ctypes.addressof(buffer)))


def kept_out(endpoint: socket.socket) -> int:
    """Return the datagrams that the kernel has dropped so far: filtered, or without room in the buffer. 0 before Linux
    4.6."""
    try:
        told = endpoint.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
    except OSError:  # before Linux 4.6
        return 0
    return int(_MEMINFO.unpack(told)[_DROPS])
