"""Where a run takes place: brokers as processes, on loopback or each on a host of a lab.

On loopback there is no network to disturb. In a lab (root, Open vSwitch) the clusters are joined by one link, and all
that is done to it is done inside the lab's own namespaces (`benchmarks.chaos.cable`).
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.chaos.clocks import WallClock
from benchmarks.chaos.database import Database
from benchmarks.chaos.devices import Streams
from benchmarks.chaos.disk.disks import Disks
from benchmarks.chaos.openflow import WAYS, OpenFlow
from benchmarks.chaos.schedule import VERSIONS
from examples.smart_city.processes import BrokerError, BrokerProcess, free_ports, saps_broker
from lab import Lab
from lab.programs import MQTT, OVERLAY
from saps.runtime.atomic_file import sync_directory

CLUSTERS = ("east", "west")
START = 90.0
"""Seconds a broker may take to be ready: it may have to wait until the mesh has buried its former life."""


class Site(ABC):
    """One broker, to be started again and again at the same addresses and with the same file."""

    def __init__(self, name: str, cluster: str, overlay: str, folder: Path) -> None:
        self.name, self.cluster, self.overlay, self.folder = name, cluster, overlay, folder
        self.broker_name = name
        """Of the broker that is there now."""
        self._successors = 0
        self.file = folder / "broker.db"
        self.settings: dict[str, str] = {}
        self.others: list[str] = []
        """Where it may join."""
        self.version = VERSIONS[-1]
        self.way = WAYS[0]
        """How its publications travel."""
        self.process: BrokerProcess | None = None
        self.log: Path | None = None
        """Where the log of its brokers is kept."""
        self.clock = WallClock(folder.with_suffix(".clock"))
        self.own_clock = True
        """Its processes start with a clock that can be set: each look at it then costs several times as much."""

    async def start(self) -> None:
        """A new life. Raises `BrokerError`."""
        own = {"storage.file": str(self.file), "links.highest_version": str(self.version)}
        self.process = self.broker({**own, **self.settings})
        if self.own_clock:
            self.process.environment |= self.clock.environment
        self.process.log = self.log
        await self.process.start(START)

    async def host_guest(self) -> BrokerProcess:
        """One more broker beside it, without disk and devices. Raises `BrokerError`."""
        guest = self.guest({name: value for name, value in self.settings.items() if not name.startswith("storage.")})
        await guest.start(START)
        return guest

    def wipe(self) -> None:
        """Its disk is gone. Its process has ended."""
        for file in self.folder.iterdir():
            file.unlink()
        sync_directory(self.folder)

    def succeed(self) -> None:
        """From the next start on another broker is in its place."""
        self._successors += 1
        self.broker_name = f"{self.name}-{self._successors}"

    async def repair(self) -> None:
        """Put what is sound of its damaged file in the file's place, or nothing if nothing can be had. Its process has
        ended. Raises `BrokerError`."""
        sound = self.folder / "sound.db"
        command = (sys.executable, "-m", "saps", "storage", "repair", str(self.file), str(sound))
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await process.communicate()
        for each in self.folder.glob("broker.db*"):
            each.unlink()
        if process.returncode == 0:
            for each in self.folder.glob("sound.db*"):
                each.rename(self.folder / each.name.replace("sound", "broker"))
            sync_directory(self.folder)
        elif sound.exists():
            raise BrokerError(f"{self.name} could not be repaired: {said.decode(errors='replace')}")

    async def end(self, number: signal.Signals) -> None:
        """Send a signal and wait until the process is gone; SIGTERM becomes SIGKILL if it has no effect."""
        assert self.process is not None
        if number is signal.SIGTERM:
            await self.process.stop(START)
        else:
            await self.process.stop(0)

    @property
    def last_words(self) -> str:
        """The end of its log."""
        return self.process.errors if self.process is not None else ""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self.process is not None
        self.process.signal(number)

    @abstractmethod
    def broker(self, settings: Mapping[str, str]) -> BrokerProcess:
        """Its process, not yet started."""

    @abstractmethod
    def guest(self, settings: Mapping[str, str]) -> BrokerProcess:
        """The process of one more broker beside it, not yet started."""

    @abstractmethod
    async def dial(self) -> Streams:
        """A client's connection to it. Raises `OSError`."""


class LoopbackSite(Site):
    """A broker at ports of this machine."""

    def __init__(self, name: str, cluster: str, ports: tuple[int, int], folder: Path) -> None:
        super().__init__(name, cluster, f"127.0.0.1:{ports[1]}", folder)
        self._port = ports[0]

    def broker(self, settings: Mapping[str, str]) -> BrokerProcess:
        mqtt = f"127.0.0.1:{self._port}"
        return saps_broker(self.broker_name, self.cluster, mqtt, self.overlay, self.others, settings)

    def guest(self, settings: Mapping[str, str]) -> BrokerProcess:
        mqtt, overlay = (f"127.0.0.1:{port}" for port in free_ports(2, random.Random()))
        return saps_broker(f"{self.name}-guest", self.cluster, mqtt, overlay, [self.overlay, *self.others], settings)

    async def dial(self) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self._port)


class LabSite(Site):
    """A broker on a host of a lab, with its devices."""

    def __init__(self, lab: Lab, host: str, cluster: str, folder: Path) -> None:
        super().__init__(host, cluster, f"{lab.topology.host(host).ip}:{OVERLAY}", folder)
        self._space = lab.host(host)

    def broker(self, settings: Mapping[str, str]) -> BrokerProcess:
        return self._in_space(self.broker_name, f"127.0.0.1:{MQTT}", self.overlay, self.others, settings)

    def guest(self, settings: Mapping[str, str]) -> BrokerProcess:
        own = {name: value for name, value in settings.items() if not name.startswith("ofm.")}
        overlay = f"{self.overlay.rpartition(':')[0]}:{OVERLAY + 1}"
        return self._in_space(f"{self.name}-guest", f"127.0.0.1:{MQTT + 1}", overlay, [self.overlay, *self.others], own)

    def _in_space(
        self, name: str, mqtt: str, overlay: str, others: Sequence[str], settings: Mapping[str, str]
    ) -> BrokerProcess:
        own = {"links.plain": "true", **settings}
        plain = saps_broker(name, self.cluster, mqtt, overlay, others, own)
        return BrokerProcess(name, self._space.argv(plain.command), environment=plain.environment)

    async def dial(self) -> Streams:
        sock = self._space.socket()
        try:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", MQTT))
            return await asyncio.open_connection(sock=sock)
        except BaseException:
            sock.close()
            raise


class Ground:
    """The brokers of a run, and what is beside them. An async context manager: they are up inside, and gone after
    it."""

    def __init__(
        self,
        sites: Sequence[Site],
        settings: Mapping[str, str],
        disks: bool,
        openflow: OpenFlow | None = None,
        database: Database | None = None,
    ) -> None:
        """`disks`: each storage file gets a file system of its own (`disks.possible`). `openflow`: has some topics
        travel along trees. `database`: has the brokers' sessions; what others have missed stays beside the files."""
        self.sites = {site.name: site for site in sites}
        self.openflow = openflow
        self.database = database
        self.logs: Path | None = None
        self.disks = Disks([site.folder for site in sites]) if disks else None
        for number, site in enumerate(sites):
            site.settings = {"storage.sync": "off", "limits.maximum_queued": "100000", **settings}
            if database is not None:
                site.settings["storage.url"] = database.url
            if openflow is not None:
                site.way = WAYS[number % len(WAYS)]
                site.settings |= openflow.settings(site.name)

    def keep_logs(self, folder: Path) -> None:
        """Keep the brokers' logs of level debug in a folder, a file each."""
        folder.mkdir(parents=True, exist_ok=True)
        self.logs = folder
        for site in self.sites.values():
            site.log = folder / f"{site.name}.log"
            site.log.unlink(missing_ok=True)
            site.settings["log_level"] = "debug"

    async def wipe(self, site: Site) -> None:
        """The disk of a site is gone, and all that the database has of its broker. Its process has ended."""
        site.wipe()
        if self.database is not None:
            await self.database.wipe(site.broker_name)

    @property
    def last_words(self) -> list[tuple[str, str]]:
        """The name of each program, and the end of its log."""
        said = [(site.name, site.last_words) for site in self.sites.values()]
        return said if self.openflow is None else [*said, *self.openflow.last_words]

    @property
    def sides(self) -> tuple[frozenset[str], frozenset[str]]:
        """The names of the brokers of each cluster."""
        one, other = (frozenset(s.name for s in self.sites.values() if s.cluster == cluster) for cluster in CLUSTERS)
        return one, other

    async def __aenter__(self) -> Ground:
        try:
            for site in self.sites.values():
                site.folder.mkdir()
                site.clock.set(0)
            if self.disks is not None:
                await self.disks.mount()
            if self.database is not None:
                await self.database.start()
            if self.openflow is not None:
                await self.openflow.start()
            started: list[str] = []
            for site in self.sites.values():
                site.others = started[:1]
                await site.start()
                started.append(site.overlay)
            for site in self.sites.values():
                site.others = [address for address in started if address != site.overlay]
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        processes = [site.process for site in self.sites.values() if site.process is not None]
        for process in processes:
            process.signal(signal.SIGCONT)
        try:
            if self.openflow is not None:
                await self.openflow.stop()
            await asyncio.gather(*(process.stop() for process in processes))
        finally:
            await asyncio.gather(*(process.stop(0) for process in processes))
            if self.database is not None:
                await self.database.stop()
            if self.disks is not None:
                await self.disks.unmount()


def on_loopback(
    brokers: int,
    folder: Path,
    rng: random.Random,
    settings: Mapping[str, str],
    *,
    disks: bool = False,
    database: bool = False,
) -> Ground:
    """Brokers b0, b1, ... of this machine, in two clusters. `database`: they store in a PostgreSQL server. Raises
    `RuntimeError` if there are too few ports."""
    ports = free_ports(2 * brokers, rng)
    pairs = list(zip(ports[::2], ports[1::2], strict=True))
    return Ground(
        [LoopbackSite(f"b{n}", CLUSTERS[n % 2], pair, folder / f"b{n}") for n, pair in enumerate(pairs)],
        settings,
        disks,
        database=Database() if database else None,
    )


def topology(brokers: int) -> str:
    """The lab's topology for so many brokers, half of them behind each of two switches."""
    return f"line:2x{(brokers + 1) // 2}"


def in_lab(
    lab: Lab,
    folder: Path,
    settings: Mapping[str, str],
    *,
    disks: bool = True,
    openflow: bool = False,
    job: bool = False,
) -> Ground:
    """A broker on each host of a lab of that topology. `openflow`: some topics leave by OpenFlow multicast; `job`:
    with the Spark job."""
    switches = sorted({host.switch for host in lab.topology.hosts})
    clusters = dict(zip(switches, CLUSTERS, strict=True))
    hosts = lab.topology.hosts
    sites = [LabSite(lab, h.name, clusters[h.switch], folder / h.name) for h in hosts]
    return Ground(sites, settings, disks, OpenFlow(lab, sites[0].cluster, folder, job=job) if openflow else None)
