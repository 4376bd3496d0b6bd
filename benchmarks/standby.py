"""How long the switches are without a master: ``python -m benchmarks.standby``. Needs root and Open vSwitch.

Four brokers in two clusters, OFGate and two controllers, all real processes. A publisher's messages go along a tree to
subscribers at the three other brokers, while the master is killed (``kill -9``) or stopped (``SIGSTOP``), again and
again. Measured from the signal: when the other controller says that it is master, when a topic that has not been on OFM
before has its tree, and what the subscribers have lost.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import os
import signal
import socket
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks import packets
from benchmarks.client import connected, subscribed
from benchmarks.machine import this_machine
from benchmarks.section import update_page
from lab import Lab, LabError, obstacle
from lab.programs import CONTROLLERS, MQTT, Mesh
from saps.ofm.controller.leader_election import ElectionState, Post
from saps.ofm.northbound.driver.client import AddrInfo, NorthboundError, UnreachableError
from saps.ofm.northbound.driver.pair import PeerClient

PAGE = Path("docs/ofm.md")
SIGNALS = (signal.SIGKILL, signal.SIGSTOP)
RATE = 200
"""Messages a second."""
TOPIC = "steady/ward1"
TIMEOUT = 120.0
GLANCE = 0.5
"""Seconds a controller has to say what it is."""


class Takeover(msgspec.Struct, frozen=True):
    """One of them. Times in seconds after the signal."""

    signal: str
    master: float
    """The other controller answers as master."""
    topic: float
    """A new topic has its tree."""
    lost: int
    """Messages of all subscribers together, from before the signal until after that."""
    gap: float
    """The longest time in which a subscriber got nothing."""


class Traffic:
    """A publisher at the first host, subscribers at the others: what each of them got, and when it last did."""

    def __init__(self, lab: Lab, hosts: Sequence[str], stack: contextlib.ExitStack) -> None:
        with lab.host(hosts[0]).inside():
            self._publisher = stack.enter_context(connected(MQTT))
        self._got: dict[str, set[int]] = {host: set() for host in hosts[1:]}
        self.sent = 0
        self.gap = 0.0
        self._over = threading.Event()
        for host in hosts[1:]:
            with lab.host(host).inside():
                sink = stack.enter_context(subscribed(MQTT, TOPIC, 0))
            threading.Thread(target=self._read, args=(sink, self._got[host]), daemon=True).start()
        threading.Thread(target=self._publish, daemon=True).start()
        stack.callback(self._over.set)

    def _publish(self) -> None:
        with contextlib.suppress(OSError):
            while not self._over.wait(1 / RATE):
                self._publisher.sendall(packets.publish(TOPIC, self.sent.to_bytes(8, "big"), 0, 0))
                self.sent += 1

    def _read(self, sink: socket.socket, got: set[int]) -> None:
        size = len(packets.publish(TOPIC, bytes(8), 0, 0))
        sink.settimeout(None)
        last = time.monotonic()
        with contextlib.suppress(OSError):
            stream = sink.makefile("rb")
            while packet := stream.read(size):
                got.add(int.from_bytes(packet[-8:], "big"))
                now = time.monotonic()
                self.gap, last = max(self.gap, now - last), now

    def lost(self, first: int, end: int) -> int:
        """How many of the messages `first` to `end` did not arrive, at all subscribers together: once later ones
        have."""
        deadline = time.monotonic() + TIMEOUT
        while any(max(got, default=0) < end + RATE // 2 for got in self._got.values()):
            if time.monotonic() > deadline:
                raise LabError("a subscriber gets nothing any more")
            time.sleep(0.05)
        return sum(1 for got in self._got.values() for number in range(first, end) if number not in got)


class Scene:
    """The mesh with its two controllers, and a way to ask them from beside the switches."""

    def __init__(self, lab: Lab, mesh: Mesh) -> None:
        self.lab, self.mesh = lab, mesh
        self._token = mesh.token.read_text().strip()

    def states(self) -> list[ElectionState | None]:
        """What the two say."""
        return asyncio.run(self._states())

    async def _states(self) -> list[ElectionState | None]:
        return await asyncio.gather(*(self._state(url) for url in self.mesh.northbounds))

    async def _state(self, url: str) -> ElectionState | None:
        def inside(info: AddrInfo) -> socket.socket:
            return self.lab.switches.socket(info[0], info[1], info[2])

        try:
            async with PeerClient(url, token=self._token, sockets=inside) as client, asyncio.timeout(GLANCE):
                return await client.election()
        except (UnreachableError, NorthboundError, TimeoutError):
            return None

    def master(self) -> str:
        """The name of the master, once the other one knows all that it knows, and has the switches."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            states = self.states()
            posts = [state.post if state else None for state in states]
            if (
                set(posts) == {Post.MASTER, Post.STANDBY}
                and len({(state.version, state.able) for state in states if state}) == 1
            ):
                return CONTROLLERS[posts.index(Post.MASTER)]
            time.sleep(0.05)
        raise LabError(f"no master and standby: {self.states()}")

    def until_master(self, name: str) -> None:
        """Returns once this one is master."""
        url = self.mesh.northbounds[CONTROLLERS.index(name)]
        deadline = time.monotonic() + TIMEOUT
        while (state := asyncio.run(self._state(url))) is None or state.post is not Post.MASTER:
            if time.monotonic() > deadline:
                raise LabError(f"{name} does not take over")
            time.sleep(0.01)


def take_over(scene: Scene, traffic: Traffic, number: int, sent: signal.Signals) -> Takeover:
    """One takeover; both controllers run again after it."""
    topic, hosts = f"new/{number}", scene.mesh.hosts
    with contextlib.ExitStack() as stack:
        for host in hosts[1:3]:
            with scene.lab.host(host).inside():
                stack.enter_context(subscribed(MQTT, topic, 0))
        name = scene.master()
        [other] = set(CONTROLLERS) - {name}
        program, first, traffic.gap = scene.mesh.programs[name], traffic.sent, 0.0
        began = time.monotonic()
        program.signal(sent)
        scene.until_master(other)
        master = time.monotonic() - began
        scene.mesh.exploit([topic])
        built = time.monotonic() - began
        result = Takeover(sent.name, master, built, traffic.lost(first, traffic.sent), traffic.gap)
        if sent is signal.SIGSTOP:
            program.signal(signal.SIGCONT)
        else:
            program.end(time.monotonic() + TIMEOUT)
            scene.mesh.restart_controller(name)
        scene.mesh.release([topic])
    return result


def measure(times: int) -> list[Takeover]:
    """So many takeovers of each kind."""
    with (
        Lab("tree:2x2", name=f"standby{os.getpid()}") as lab,
        Mesh(lab, ofm=True, standby=True) as mesh,
        contextlib.ExitStack() as stack,
    ):
        scene, traffic = Scene(lab, mesh), Traffic(lab, mesh.hosts, stack)
        mesh.exploit([TOPIC])
        return [
            take_over(scene, traffic, number, sent)
            for number, sent in enumerate(sent for _ in range(times) for sent in SIGNALS)
        ]


def markdown(found: Sequence[Takeover], said: str) -> str:
    """The table, median (greatest)."""
    lines = [said, ""]
    lines += ["| the master | times | another is master after | a new topic is on OFM after | lost | longest gap |"]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: |"]
    for sent, what in zip(SIGNALS, ("is killed, `kill -9`", "is stopped, `SIGSTOP`"), strict=True):
        rows = [each for each in found if each.signal == sent.name]
        times = [f"{statistics.median(values):.2f} ({max(values):.2f}) s" for values in _times(rows)]
        lost, gap = sum(each.lost for each in rows), max(each.gap for each in rows)
        lines.append(f"| {what} | {len(rows)} | {times[0]} | {times[1]} | {lost} | {1000 * gap:.0f} ms |")
    return "\n".join(lines)


def _times(rows: Sequence[Takeover]) -> tuple[list[float], list[float]]:
    return [each.master for each in rows], [each.topic for each in rows]


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.standby", description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=10, help="takeovers of each kind")
    parser.add_argument("--write", action="store_true", help="put the table into docs/ofm.md")
    chosen = parser.parse_args(words)
    if why := obstacle():
        print(why, file=sys.stderr)
        return 2
    busy = os.getloadavg()[0]
    found = measure(chosen.times)
    machine = this_machine()
    said = (
        f"`python -m benchmarks.standby --times {chosen.times}`, {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} "
        f"UTC; {machine.processor}, {machine.processors} processors, load average {busy:.0f} at the beginning, "
        f"{os.getloadavg()[0]:.0f} at the end; {RATE} messages a second, three subscribers."
    )
    text = markdown(found, said)
    print(text)
    if chosen.write:
        update_page(PAGE, "standby", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
