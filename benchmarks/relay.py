"""A bare relay: the work of a broker without the broker, to show what the load generator can carry.

It answers CONNECT and SUBSCRIBE, then copies whatever a publisher sends to all subscribers of the same topic,
one `send` a subscriber and read. It neither parses publications nor keeps state: a peer in the table that no
broker can be much faster than, measured under the same conditions.
Run as ``python -m benchmarks.relay PORT``.
"""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Callable

from benchmarks import packets

CHUNK = 1 << 18
"""Bytes read at once."""


class Broadcaster:
    """Connections on one listening socket; `run` serves for ever."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._subscribers: dict[bytes, list[socket.socket]] = {}
        self._buffer = memoryview(bytearray(CHUNK))
        self._watch(self._listener, self._accept)

    def run(self) -> None:
        """Serve until the process is ended."""
        while True:
            for fd, _ in self._epoll.poll():
                self._handlers[fd]()

    def _watch(self, sock: socket.socket, handler: Callable[[], None]) -> None:
        if sock.fileno() not in self._handlers:
            self._epoll.register(sock, select.EPOLLIN)
        self._handlers[sock.fileno()] = handler

    def _close(self, sock: socket.socket) -> None:
        self._epoll.unregister(sock)
        del self._handlers[sock.fileno()]
        for group in self._subscribers.values():
            if sock in group:
                group.remove(sock)
        sock.close()

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch(sock, lambda: self._set_up(sock))

    def _set_up(self, sock: socket.socket) -> None:
        """Before the first publication: one small packet a read, as the generator's set-up sends them."""
        head = sock.recv(CHUNK, socket.MSG_PEEK)
        if not head:
            self._close(sock)
        elif head[0] == 0x10:
            sock.recv(len(head))
            sock.sendall(b"\x20\x02\x00\x00")
        elif head[0] == 0x82:
            sock.recv(len(head))
            sock.sendall(b"\x90\x03" + head[2:4] + head[-1:])
            self._subscribers.setdefault(head[6:-1], []).append(sock)
            self._watch(sock, lambda: self._discard(sock))
        elif head[0] & 0xF0 == 0x30:
            self._start_relaying(sock, head)
        else:
            self._close(sock)

    def _start_relaying(self, sock: socket.socket, head: bytes) -> None:
        start = 3 if head[1] & 0x80 else 2
        end = start + 2 + int.from_bytes(head[start : start + 2], "big")
        topic = head[start + 2 : end]
        above = topic.rpartition(b"/")[0] + b"/+"  # the only filter with a wildcard that the generator has
        group = self._subscribers.get(above) or self._subscribers.setdefault(topic, [])
        acknowledger = Acknowledger(head[0], end - start) if head[0] & 0x06 else None
        self._watch(sock, lambda: self._relay(sock, group, acknowledger))

    def _relay(self, sock: socket.socket, group: list[socket.socket], acknowledger: Acknowledger | None) -> None:
        size = sock.recv_into(self._buffer)
        if not size:
            self._close(sock)
            return
        data = self._buffer[:size]
        for subscriber in group:
            subscriber.sendall(data)
        if acknowledger is not None and (acks := acknowledger.acks(bytes(data))):
            sock.sendall(acks)

    def _discard(self, sock: socket.socket) -> None:
        """What subscribers send: acknowledgements, and when all is over a ping."""
        if not sock.recv_into(self._buffer):
            self._close(sock)
        elif self._buffer[0] == packets.PINGREQ[0]:
            sock.sendall(packets.PINGRESP)


class Acknowledger:
    """PUBACKs for a stream of publications that begin with the byte `first` and whose topic field has `topic_bytes`."""

    def __init__(self, first: int, topic_bytes: int) -> None:
        self._first = first
        self._topic_bytes = topic_bytes
        self._rest = b""

    def acks(self, data: bytes) -> bytes:
        """The PUBACKs of all publications completed by `data`."""
        found, self._rest = packets.publications(self._rest + data, self._first)
        out: list[bytes] = []
        for packet in found:
            at = self._topic_bytes + (3 if packet[1] & 0x80 else 2)
            out.append(packet[at : at + 2])
        return b"\x40\x02" + b"\x40\x02".join(out) if out else b""


if __name__ == "__main__":
    Broadcaster(int(sys.argv[1])).run()
