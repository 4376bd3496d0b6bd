"""Blocking set-up of raw MQTT connections: the part of a client that is not measured."""

from __future__ import annotations

import itertools
import os
import socket
import time

from benchmarks import packets

TIMEOUT = 10.0
"""Seconds a broker may take for one answer during set-up."""

_numbers = itertools.count()


class SetupError(Exception):
    """A broker did not answer as the standard says, or not in time."""


def read_exactly(sock: socket.socket, size: int) -> bytes:
    """The next `size` bytes. Raises SetupError if the peer closes first."""
    out = b""
    while len(out) < size:
        try:
            chunk = sock.recv(size - len(out))
        except TimeoutError:
            raise SetupError(f"no answer within {TIMEOUT:.0f} s") from None
        if not chunk:
            raise SetupError("the broker closed the connection during set-up")
        out += chunk
    return out


def connected(port: int, lasting: bool = False) -> socket.socket:
    """A blocking socket to the broker at loopback `port`, past CONNACK. `lasting`: its session outlives it."""
    sock = socket.create_connection(("127.0.0.1", port), TIMEOUT)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(packets.connect(f"bench-{os.getpid()}-{next(_numbers)}", lasting))
        answer = read_exactly(sock, packets.CONNACK_BYTES)
        if answer[0] != 0x20 or answer[3] != 0:
            raise SetupError(f"CONNECT was answered with {answer.hex()}")
    except BaseException:
        sock.close()
        raise
    return sock


def subscribed(port: int, topic_filter: str, qos: int, lasting: bool = False) -> socket.socket:
    """A blocking socket to the broker at loopback `port`, past SUBACK for `topic_filter`. `lasting`: as `connected`."""
    sock = connected(port, lasting)
    try:
        sock.sendall(packets.subscribe(topic_filter, qos))
        answer = read_exactly(sock, packets.SUBACK_BYTES)
        if answer[0] != 0x90 or answer[4] != qos:
            raise SetupError(f"SUBSCRIBE was answered with {answer.hex()}")
    except BaseException:
        sock.close()
        raise
    return sock


def answers(sock: socket.socket) -> None:
    """Raises SetupError unless the broker answers a ping on this connection."""
    sock.sendall(packets.PINGREQ)
    if read_exactly(sock, len(packets.PINGRESP)) != packets.PINGRESP:
        raise SetupError("PINGREQ was answered with something else")


def accepts_clients(port: int) -> bool:
    """True if a broker at loopback `port` answers CONNECT with success."""
    try:
        connected(port).close()
    except (OSError, SetupError):
        return False
    return True


def wait_for_path(publish_port: int, subscribe_port: int, deadline: float) -> None:
    """Return when a message published at one broker arrives at the other. Raises SetupError at `deadline`
    (`time.monotonic`)."""
    topic = "probe/path"
    probe = packets.publish(topic, bytes(packets.STAMP_BYTES), 0, 0)
    with subscribed(subscribe_port, topic, 0) as subscriber, connected(publish_port) as publisher:
        subscriber.settimeout(0.05)
        while time.monotonic() < deadline:
            publisher.sendall(probe)
            try:
                if subscriber.recv(1):
                    return
            except TimeoutError:
                continue
    raise SetupError("the two brokers did not connect to each other in time")
