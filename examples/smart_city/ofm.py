"""The programs beside the brokers that bring topics onto OpenFlow trees: software switches, controller, OFGate, job."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from examples.smart_city.processes import BrokerProcess, free_ports, saps_program
from examples.smart_city.scene import Broker
from monitoring.selection.network import CORE

Decider = Literal["spark", "small"]

COUNTING = 1
"""Seconds of the brokers' counting intervals, which are the windows of the decisions too."""
INTERVAL: dict[Decider, float] = {"spark": 5.0, "small": COUNTING}
"""Seconds between two decisions."""
UDP = 7400
"""Port of every broker's OFM address, in the network of the switches."""
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of Java for a job that lives for a minute: compile quickly, not well."""
SPARK_START = 120.0
"""Seconds that the job may take until it is ready: mostly Java's start, which waits for its share of the processor."""
JOB_STOP = 10.0
"""Seconds that the job may take to end."""


def decider_here() -> Decider:
    """The Spark job, where Java and PySpark are; else OFGate decides by itself."""
    return "spark" if shutil.which("java") and find_spec("pyspark") else "small"


class OfmPrograms:
    """The programs and what they share. `start_job` first, then `start_network`, the brokers, `start_gate`."""

    def __init__(self, brokers: Sequence[Broker], decider: Decider) -> None:
        self.decider = decider
        self._folder = tempfile.TemporaryDirectory(prefix="saps-smart-city-")
        self.counts = Path(self._folder.name) / "counts"
        """Where the brokers leave their counts."""
        self.counts.mkdir()
        openflow, northbound, door, overlay, page = free_ports(5, random.Random())
        self.northbound, self.door = f"http://127.0.0.1:{northbound}", f"http://127.0.0.1:{door}"
        self.page = f"http://127.0.0.1:{page}/"
        """The operator's page, at the first broker."""
        self._first = brokers[0].name
        self._hosts = _hosts(brokers)
        self._clusters = list(dict.fromkeys(broker.cluster for broker in brokers))
        most = max(int(host.partition("b")[2]) for host in self._hosts.values())
        controller = f"127.0.0.1:{openflow}"
        self._network = [
            saps_program("saps controller", "controller", "--listen", controller, "--northbound", self.northbound[7:]),
            saps_program(
                "saps switches",
                "switches",
                "--topology",
                f"tree:{len(self._clusters)}x{most}",
                "--controller",
                controller,
            ),
        ]
        self._gate_options = ["--controller", self.northbound, "--overlay", f"127.0.0.1:{overlay}"]
        self._gate_options += ["--decisions", self.door[7:]]
        if decider == "small":
            self._gate_options += ["--decide", str(COUNTING)]
        self._job = self._monitor() if decider == "spark" else None
        self._gate: BrokerProcess | None = None
        self.processes: list[BrokerProcess] = [*self._network, *([self._job] if self._job else [])]

    def _monitor(self) -> BrokerProcess:
        """The job: windows of one counting interval, decisions that may change soon."""
        arguments = ["--source", str(self.counts), "--state", str(Path(self._folder.name) / "state")]
        arguments += ["--ofgate", self.door, "--interval", f"{INTERVAL['spark']:g}s", "--window", f"{COUNTING}s"]
        arguments += ["--budgets", self.northbound, "--network", str(self._network_file())]
        arguments += ["--lateness", "0.5s", "--dwell", "6s", "--horizon", "1", "--memory", "512m", "--partitions", "1"]
        return saps_program("saps monitor", "monitor", *arguments, environment={"JDK_JAVA_OPTIONS": QUICK})

    def _network_file(self) -> Path:
        """Which switch is whose: the core is the first, then come the clusters'."""
        dpids = {CORE: f"{1:016x}"} | {cluster: f"{n:016x}" for n, cluster in enumerate(self._clusters, 2)}
        file = Path(self._folder.name) / "network.json"
        file.write_text(json.dumps({"dpids": dpids}))
        return file

    async def start_network(self) -> None:
        """Controller and switches. Raises `BrokerError`."""
        async with asyncio.TaskGroup() as starts:
            for process in self._network:
                starts.create_task(process.start())

    def settings(self, broker: Broker) -> dict[str, str]:
        """What a broker must be told, once the network is there."""
        host = self._hosts[broker.name]
        cluster, _, place = host[1:].partition("b")
        ports = dict(part.split("=", 1) for part in self._network[1].ready_line.split()[1:])
        settings = {
            "ofm.listen": f"10.77.{cluster}.{place}:{UDP}",
            "ofm.attach": ports[host],
            "monitoring.directory": str(self.counts),
            "monitoring.interval": str(COUNTING),
        }
        if broker.name == self._first:
            settings["web.listen"] = self.page.removeprefix("http://").rstrip("/")
            settings |= {"web.controller": self.northbound, "web.ofgate": self.door}
        return settings

    async def start_gate(self, join: str) -> None:
        """OFGate, which joins the brokers. Raises `BrokerError`."""
        self._gate = saps_program("saps ofgate", "ofgate", *self._gate_options, "--join", join)
        self.processes.append(self._gate)
        await self._gate.start()

    async def start_job(self) -> None:
        """The job, if it is one; returns when it is ready. Raises `BrokerError`."""
        if self._job is not None:
            await self._job.start(SPARK_START)

    async def stop_deciding(self) -> None:
        """End the job, which may be in the middle of a batch and is made to be killed there, and OFGate."""
        await asyncio.gather(*(each.stop(JOB_STOP) for each in (self._job, self._gate) if each is not None))

    def clear(self) -> None:
        """Delete what the programs have left."""
        self._folder.cleanup()


def _hosts(brokers: Sequence[Broker]) -> dict[str, str]:
    """The host that each broker is, by its name: ``c2b1`` for the first broker of the second cluster."""
    clusters: dict[str, list[str]] = {}
    for broker in brokers:
        clusters.setdefault(broker.cluster, []).append(broker.name)
    return {
        name: f"c{cluster}b{place}"
        for cluster, names in enumerate(clusters.values(), 1)
        for place, name in enumerate(names, 1)
    }
