"""What has a lab's topics travel by OpenFlow multicast, and can die: controller, OFGate, switches, the Spark job.

A quarter of the brokers publish by ALM only; the topics of the others have trees, with EITHER and with BOTH, or leave
by stateless delivery. OFGate is told to keep these trees, so that it makes them again whenever it can.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.chaos.schedule import Kind
from examples.smart_city.ofm import QUICK
from lab import MANAGEMENT_GATE, Lab
from lab.namespace import Namespace
from lab.programs import GATE, NORTHBOUND, OPENFLOW, UDP, Program
from lab.state import LabError
from saps.ofm.switch.topologies import NETWORK
from saps.topics import matches

WAYS = ("alm", "either", "both", "stateless")
"""How a broker's publications travel, in turn; the last level of their topics."""
BOTH = "chaos/+/both"
"""The topics that use BOTH; all others that have trees use EITHER."""
STATELESS = "chaos/+/stateless"
"""The topics that leave by stateless delivery."""
DOOR = 8282
"""Port of OFGate, for the job's decisions."""
COUNTING = 1
"""Seconds of the brokers' counting intervals, for the job."""
TIMEOUT = 120.0
"""Seconds to wait for the trees."""


class OpenFlow:
    """The programs; up between `start` and `stop`."""

    def __init__(self, lab: Lab, cluster: str, folder: Path, *, job: bool = False) -> None:
        """`cluster`: of the first host, where OFGate is. `folder`: of the run. `job`: the Spark job runs, too, and
        decides on further trees."""
        self.lab = lab
        self._cluster = cluster
        self._folder = folder
        self._job = job
        self._programs: dict[Kind, Program] = {}
        self._topics: dict[str, str] = {}
        """Topics that do not go by ALM only, each with the broker that publishes to it."""
        self._join: list[str] = []
        self._counted: dict[str, tuple[int, int]] = {}
        self.publications = 0
        """Publications to these topics, as far as they were counted before their brokers died."""
        self.carried = 0
        """Those of them that left by OpenFlow multicast."""

    def settings(self, host: str) -> dict[str, str]:
        """What a broker on a host must be told."""
        found = {
            "ofm.listen": f"[{self.lab.topology.host(host).ipv6}]:{UDP}",
            "ofm.mode": "either",
            "ofm.exceptions": BOTH,
            "ofm.delivery": "stateless",
            "ofm.stateless": STATELESS,
        }
        if self._job:
            found |= {"monitoring.directory": str(self._counts), "monitoring.interval": str(COUNTING)}
        return found

    async def start(self) -> None:
        """The controller, before the brokers. Raises `LabError`."""
        self._counts.mkdir()
        self._token.write_text(secrets.token_hex(16) + "\n")
        await self._run(Kind.CONTROLLER)
        await asyncio.to_thread(self.lab.set_controller, ("127.0.0.1", OPENFLOW))

    async def start_gate(self, topics: Mapping[str, str], join: Sequence[str]) -> None:
        """OFGate, after the brokers, and the job. `topics`: those that do not go by ALM only, each with the broker that
        publishes to it. Raises `LabError`."""
        self._topics, self._join = dict(topics), list(join)
        await self._run(Kind.OFGATE)
        if self._job:
            await self._run(Kind.SPARK)

    async def built(self) -> None:
        """Wait until all topics have trees that are to have one. Raises `LabError`."""
        await asyncio.to_thread(self._until, lambda status: constructed(status) >= set(self._trees))

    async def restart(self, kind: Kind, seconds: float) -> None:
        """`kill -9` of one of the programs, and a new one after so many seconds. Raises `LabError`."""
        self._programs[kind].signal(signal.SIGKILL)
        await asyncio.to_thread(self._programs[kind].end, time.monotonic() + TIMEOUT)
        await asyncio.sleep(seconds)
        await self._run(kind)

    async def restart_switch(self, name: str, seconds: float) -> None:
        """Take a switch out of the network, and put it back with empty tables after so many seconds."""
        await asyncio.to_thread(self.lab.stop_switch, name)
        try:
            await asyncio.sleep(seconds)
        finally:
            await asyncio.to_thread(self.lab.start_switch, name)

    async def count(self) -> None:
        """See how much has left along trees since the last time. Raises `LabError` if OFGate does not answer."""
        try:
            described = await asyncio.to_thread(self._programs[Kind.OFGATE].ask, "brokers")
        except OSError as error:
            raise LabError(f"OFGate has ended: {error}") from None
        for each in described:
            if each["broker"] not in self._topics.values():
                continue
            now = each["publications"], each["carried"]
            before = self._counted.get(each["broker"], (0, 0))
            if now[0] < before[0] or now[1] < before[1]:  # a new incarnation
                before = 0, 0
            self.publications += now[0] - before[0]
            self.carried += now[1] - before[1]
            self._counted[each["broker"]] = now

    async def stop(self) -> None:
        """End all of them, in order if that does not take long."""
        programs = [
            self._programs[kind] for kind in (Kind.SPARK, Kind.OFGATE, Kind.CONTROLLER) if kind in self._programs
        ]
        self._programs.clear()
        for program in programs:
            program.signal(signal.SIGTERM)
            await asyncio.to_thread(program.end, time.monotonic() + 8.0)

    @property
    def last_words(self) -> Iterable[tuple[str, str]]:
        """The names of the programs, and the ends of their logs."""
        return [(program.name, program.words) for program in self._programs.values()]

    @property
    def _trees(self) -> list[str]:
        return [topic for topic in self._topics if not matches(STATELESS, topic)]

    @property
    def _counts(self) -> Path:
        return self._folder / "counts"

    def _until(self, true: Callable[[Any], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not true(status := self._programs[Kind.OFGATE].ask("status")):
            if time.monotonic() > deadline:
                raise LabError(f"not all trees are there after {TIMEOUT:.0f} s: {status}")
            time.sleep(0.2)

    async def _run(self, kind: Kind) -> None:
        command = {Kind.CONTROLLER: self._controller, Kind.OFGATE: self._gate, Kind.SPARK: self._monitor}[kind]
        self._programs[kind] = await asyncio.to_thread(started, kind, self._space(kind), command(), self._folder)

    def _space(self, kind: Kind) -> Namespace:
        if kind is Kind.CONTROLLER:
            return self.lab.switches
        host = self.lab.host(self._host)
        return Namespace(host.name, {"JDK_JAVA_OPTIONS": QUICK}) if kind is Kind.SPARK else host

    @property
    def _host(self) -> str:
        return self.lab.topology.hosts[0].name

    def _controller(self) -> list[str]:
        options = ["--listen", f"127.0.0.1:{OPENFLOW}", "--northbound", f"{MANAGEMENT_GATE}:{NORTHBOUND}"]
        options += ["--loopback", f"fd{NETWORK}::ffff", "--ofm-range", "[ff05:77::/112]:5000-5999"]
        options += ["--token-file", str(self._token)]
        return ["controller", *options, "--state", str(self._folder / "ofc.json"), "--log-level", "warning"]

    @property
    def _token(self) -> Path:
        return self._folder / "token"

    def _gate(self) -> list[str]:
        host = self.lab.topology.host(self._host)
        options = ["--cluster", self._cluster, "--overlay", f"{host.ip}:{GATE}", "--mode", "either", "--except", BOTH]
        options += ["--controller", f"http://{MANAGEMENT_GATE}:{NORTHBOUND}", "--set", "links.plain=true"]
        options += ["--token-file", str(self._token)]
        options += ["--decisions", f"127.0.0.1:{DOOR}", "--log-level", "warning"]
        options += [word for address in self._join for word in ("--join", address)]
        return ["ofgate", *options, *(word for topic in self._trees for word in ("--exploit", topic))]

    def _monitor(self) -> list[str]:
        options = ["--source", str(self._counts), "--state", str(self._folder / "job"), "--window", f"{COUNTING}s"]
        options += ["--ofgate", f"http://127.0.0.1:{DOOR}", "--interval", "5s", "--lateness", "0.5s", "--horizon", "1"]
        return ["monitor", *options, "--memory", "512m", "--partitions", "1"]


def started(kind: Kind, space: Namespace, command: Sequence[str], folder: Path) -> Program:
    """A program that has said that it is ready. Raises `LabError`."""
    program = Program(str(kind), space, command, folder)
    line = program.line()
    if not line.startswith("ready"):
        raise LabError(f"{kind} said {line!r} instead of being ready")
    return program


def constructed(status: Any) -> set[str]:
    """The topics that have a tree, by what OFGate tells."""
    return {each["topic"] for each in status["topics"] if each["status"] == "constructed"}
