"""What a controller of many trees costs: ``python -m benchmarks.controller --trees 10000 --switches 48``.

The real `saps controller`, real sockets, switches that only keep tables (`wire_switches`). Trees of four random
brokers are asked for by HTTP; then: processor idle, joins, the link with the most trees up to a number goes down while
the northbound is asked, ``kill -9`` and a new controller.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from benchmarks.controller.wire_switches import broker
from benchmarks.probes import cpu_seconds
from benchmarks.processes import free_port
from benchmarks.summary import percentile
from saps.ofm.network.topology import Link
from saps.ofm.northbound.driver.client import Client, UnreachableError
from saps.ofm.northbound.schema import OfmRequest, OfmState, Status

MEMBERS = 4
TIMEOUT = 900.0


class Figures(msgspec.Struct):
    """Times in seconds; `cpu`: of the controller's processor."""

    trees: int
    switches: int
    entries: int = 0
    """Flow entries at the fullest switch."""
    build_cpu: float = 0.0
    """For a tree."""
    idle: float = 0.0
    """Part of a processor."""
    flow_reads: float = 0.0
    """Requests for flow entries a second, idle."""
    join: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Median, 99th percentile, processor time."""
    failed: int = 0
    """Trees over the link that went down."""
    repair: tuple[float, float] = (0.0, 0.0)
    """Until all are constructed again, and processor time."""
    northbound: tuple[float, float] = (0.0, 0.0)
    """99th percentile and greatest time of a request meanwhile."""
    restart: tuple[float, float] = (0.0, 0.0)
    """From `kill -9` until all are constructed, and processor time."""
    reasons: dict[str, int] = {}
    """What trees waited for after the restart, once all switches were back."""
    rewritten: int = 0
    """Changes of tables after the restart."""


class Programs:
    """The controller and the switches."""

    def __init__(self, switches: int, home: Path) -> None:
        self.state = home / "ofc.json"
        self.ports = [free_port(), free_port()]
        command = [sys.executable, "-m", "benchmarks.controller.wire_switches", str(self.ports[0]), str(switches)]
        self.switches = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.controller = self.start()

    def start(self) -> subprocess.Popen[str]:
        listen, northbound = self.ports
        self.controller = subprocess.Popen(
            [
                *(sys.executable, "-m", "saps.cli.controller", "--log-level", "warning", "--state", str(self.state)),
                *("--listen", f"127.0.0.1:{listen}", "--northbound", f"127.0.0.1:{northbound}"),
                *("--flow-budget", "1000000", "--bucket-budget", "1000000", "--grace", "2"),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.controller.stdout is not None
        assert self.controller.stdout.readline().startswith("ready ")
        return self.controller

    def client(self) -> Client:
        return Client(f"http://127.0.0.1:{self.ports[1]}")

    def cpu(self) -> float:
        """Processor time of the controller, in seconds."""
        return cpu_seconds([self.controller.pid])

    def order(self, line: str) -> Counter[str]:
        assert self.switches.stdin is not None
        assert self.switches.stdout is not None
        print(line, file=self.switches.stdin, flush=True)
        return Counter(json.loads(self.switches.stdout.readline()))

    def close(self) -> None:
        for process in (self.controller, self.switches):
            process.kill()
            process.wait()


def topic(number: int) -> str:
    return f"t/{number}"


async def build(programs: Programs, client: Client, members: dict[str, list[int]], figures: Figures) -> None:
    """All trees are asked for, some at a time."""
    todo, before = iter(members.items()), programs.cpu()

    async def ask() -> None:
        for name, at in todo:
            state = await client.put(OfmRequest(name, [broker(dpid) for dpid in at]), wait=60)
            assert state.status in (Status.CONSTRUCTED, Status.CONSTRUCTING), state

    await asyncio.gather(*(ask() for _ in range(16)))
    await constructed(client, len(members))
    figures.build_cpu = (programs.cpu() - before) / len(members)
    figures.entries = programs.order("count")["most entries"]


async def constructed(client: Client, trees: int, seen: Callable[[list[OfmState]], None] = lambda states: None) -> None:
    """Returns when all are."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                states = await client.list()
            except UnreachableError:
                states = []
            seen(states)
            if sum(state.status is Status.CONSTRUCTED for state in states) == trees:
                return
            await asyncio.sleep(0.25)


async def idle(programs: Programs, figures: Figures, seconds: float) -> None:
    await asyncio.sleep(6)
    before, asked, start = programs.cpu(), programs.order("count"), time.monotonic()
    await asyncio.sleep(seconds)
    passed = time.monotonic() - start
    figures.idle = (programs.cpu() - before) / passed
    after = programs.order("count")
    figures.flow_reads = (after["flows"] - asked["flows"]) / passed


async def joins(programs: Programs, client: Client, members: dict[str, list[int]], figures: Figures) -> None:
    rng, took, before = random.Random(2), [], programs.cpu()
    names = rng.sample(sorted(members), min(100, len(members)))
    for name in names:
        at = members[name]
        at.append(rng.choice([dpid for dpid in range(1, figures.switches + 1) if dpid not in at]))
        start = time.perf_counter()
        state = await client.put(OfmRequest(name, [broker(dpid) for dpid in at]), wait=60)
        took.append(time.perf_counter() - start)
        assert state.status is Status.CONSTRUCTED, state
    figures.join = (percentile(took, 50), percentile(took, 99), (programs.cpu() - before) / len(names))


def trees_by_link(state: Path) -> dict[Link, set[str]]:
    """From the controller's state file."""
    found: dict[Link, set[str]] = {}
    for ofm in json.loads(state.read_bytes())["ofms"]:
        for a, b in ofm["tree"]["links"] if ofm["tree"] else ():
            found.setdefault(Link((*a,), (*b,)), set()).add(ofm["topic"])  # type: ignore[arg-type]
    return found


async def failure(programs: Programs, client: Client, figures: Figures, most: int) -> None:
    """A link goes down. Every 20 ms somebody asks the northbound for a tree."""
    await asyncio.sleep(2)
    using = trees_by_link(programs.state)
    allowed = [(len(topics), link) for link, topics in using.items() if len(topics) <= most] or [(0, min(using))]
    figures.failed, link = max(allowed)
    hit, broken, last, took = using[link], set[str](), 0.0, list[float]()
    watching = client.watch()
    for _ in range(figures.trees):  # the list at the beginning is no part of what is measured
        await anext(watching)
    before, start = programs.cpu(), time.perf_counter()
    down = asyncio.ensure_future(asyncio.to_thread(programs.order, f"down {link[0][0]} {link[1][0]}"))

    async def ask() -> None:
        while True:
            asked = time.perf_counter()
            await client.get(topic(0))
            took.append(time.perf_counter() - asked)
            await asyncio.sleep(0.02)

    asking = asyncio.ensure_future(ask())
    mended: set[str] = set()
    async with asyncio.timeout(TIMEOUT):
        async for state in watching:
            now = time.perf_counter()
            if state.topic in hit and state.status is not Status.CONSTRUCTED:
                broken.add(state.topic)
                mended.discard(state.topic)
            elif state.topic in broken:
                mended.add(state.topic)
                last = now
            if len(mended) == len(hit):
                break
    figures.repair = (last - start, programs.cpu() - before)
    asking.cancel()
    await down
    figures.northbound = (percentile(took, 99), max(took))
    await asyncio.sleep(2)
    left = trees_by_link(programs.state).get(link, set())
    assert not left, f"{len(left)} trees still use {link}"
    programs.order(f"up {link[0][0]} {link[1][0]}")


async def restart(programs: Programs, figures: Figures) -> None:
    await asyncio.sleep(2)
    asked = programs.order("count")
    programs.controller.kill()
    programs.controller.wait()
    start = time.perf_counter()
    await asyncio.to_thread(programs.start)
    reasons: dict[str, set[str]] = {}

    def seen(states: list[OfmState]) -> None:
        for state in states if programs.order("count")["connected"] == figures.switches else ():
            if state.reason and "path" in state.reason:
                reasons.setdefault(state.reason.partition(" 0")[0], set()).add(state.topic)

    async with programs.client() as client:
        await constructed(client, figures.trees, seen)
    figures.restart = (time.perf_counter() - start, programs.cpu())
    figures.reasons = {reason: len(topics) for reason, topics in reasons.items()}
    figures.rewritten = programs.order("count")["change"] - asked["change"]


async def measure(trees: int, switches: int, seconds: float, most: int, tell: Callable[[str], None]) -> Figures:
    rng, figures = random.Random(1), Figures(trees, switches)
    members = {topic(number): rng.sample(range(1, switches + 1), MEMBERS) for number in range(trees)}
    with tempfile.TemporaryDirectory() as home:
        programs = Programs(switches, Path(home))
        try:
            async with programs.client() as client:
                steps: list[tuple[str, Awaitable[None]]] = [
                    ("build", build(programs, client, members, figures)),
                    ("idle", idle(programs, figures, seconds)),
                    ("joins", joins(programs, client, members, figures)),
                    ("failure", failure(programs, client, figures, most)),
                    ("restart", restart(programs, figures)),
                ]
                for name, step in steps:
                    await step
                    tell(f"{name}: {figures}")
        finally:
            programs.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trees", type=int, default=10_000)
    parser.add_argument("--switches", type=int, default=48, help="at least 15")
    parser.add_argument("--seconds", type=float, default=30, help="for which it is idle")
    parser.add_argument("--most", type=int, default=1000, help="trees over the link that goes down")
    chosen = parser.parse_args()
    figures = asyncio.run(
        measure(chosen.trees, chosen.switches, chosen.seconds, chosen.most, lambda line: print(line, flush=True))
    )
    print(msgspec.json.format(msgspec.json.encode(figures)).decode())


if __name__ == "__main__":
    main()
