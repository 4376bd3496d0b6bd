"""Stateless delivery on real processes and Open vSwitch: from the first message, on no links but those that lead to a
member, and through a link that fails."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import packets
from benchmarks.client import connected, subscribed
from benchmarks.ofm_worlds import told
from lab import Lab, obstacle
from lab.programs import CALM, MQTT, Mesh

pytestmark = [pytest.mark.network, pytest.mark.timeout(600), pytest.mark.xdist_group("processes")]

COUNT = 300
TIMEOUT = 60.0


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A ring of four clusters with a broker each, so that planes differ."""
    if why := obstacle():
        pytest.skip(why)
    directory: Path = tmp_path_factory.mktemp("labs") / "d"
    settings = {**CALM, "ofm.delivery": "stateless"}
    with (
        Lab("ring:4x1", name=f"sl{os.getpid()}", directory=directory, ipv6=True) as lab,
        Mesh(lab, ofm=True, settings=settings) as made,
    ):
        told(made)
        yield made


def counts(mesh: Mesh, broker: str) -> dict[str, int]:
    [found] = [each for each in mesh.order("brokers") if each["broker"] == broker]
    return dict(found)


def numbers(sink: socket.socket, size: int, count: int) -> list[int]:
    """Of the messages that come, each of so many bytes."""
    buffer, deadline = bytearray(), time.monotonic() + TIMEOUT
    while len(buffer) < count * size and time.monotonic() < deadline:
        if select.select([sink], [], [], 1.0)[0]:
            buffer += sink.recv(1 << 16)
    return [int(buffer[at + size - 8 : at + size]) for at in range(0, len(buffer), size)]


def test_every_topic_goes_by_planes_from_its_first_message_and_a_failed_link_costs_none(mesh: Mesh) -> None:
    source, *others = mesh.hosts
    topics = [f"air/{number:02}" for number in range(50)]
    size = len(packets.publish(topics[0], bytes(8), 1, 1))
    with contextlib.ExitStack() as stack:
        sinks = []
        for host in others[:2]:
            with mesh.lab.host(host).inside():
                sinks.append(stack.enter_context(subscribed(MQTT, "air/+", 0)))
        with mesh.lab.host(source).inside():
            publisher = stack.enter_context(connected(MQTT))
        for number in range(COUNT):
            if number == COUNT // 3:
                mesh.lab.set_link("s1", "s2", up=False)
            publisher.sendall(packets.publish(topics[number % 50], b"%08d" % number, 1, number % 60000 + 1))
            time.sleep(0.005)
        size = len(packets.publish(topics[0], bytes(8), 0, 0))
        received = [numbers(sink, size, COUNT) for sink in sinks]
    mesh.lab.set_link("s1", "s2", up=True)
    assert [sorted(each) for each in received] == [list(range(COUNT))] * 2
    by_topic = [[n for n in each if n % 50 == topic] for each in received for topic in range(50)]
    assert all(each == sorted(each) for each in by_topic)
    found = counts(mesh, source)
    assert (found["carried"], found["failed"]) == (COUNT, 0)
    assert [counts(mesh, host)["received"] for host in others[2:]] == [0], "no copy for who has not subscribed"
    assert mesh.order("status")["topics"] == []
    assert set(mesh.order("status")["queries"]) == {"enrol"}
