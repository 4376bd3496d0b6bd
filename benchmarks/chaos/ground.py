"""Where a run takes place: brokers as processes, on loopback or each on a host of a lab, and what can be done to them.

On loopback there is no network to disturb. In a lab (root, Open vSwitch) the clusters are joined by one link, and all
that is done to it is done inside the lab's own namespaces.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.chaos.devices import Streams
from benchmarks.chaos.schedule import VERSIONS
from examples.smart_city.processes import BrokerProcess, free_ports, saps_broker
from saps.lab import Lab
from saps.lab.programs import MQTT, OVERLAY

DISK = "32m"
"""Size of the file system under a broker's storage file, if it has one of its own."""
CLUSTERS = ("east", "west")
START = 90.0
"""Seconds a broker may take to be ready: it may have to wait until the mesh has buried its former life."""


class Site(ABC):
    """One broker, to be started again and again at the same addresses and with the same file."""

    def __init__(self, name: str, cluster: str, overlay: str, folder: Path) -> None:
        self.name, self.cluster, self.overlay, self.folder = name, cluster, overlay, folder
        self.settings: dict[str, str] = {}
        self.others: list[str] = []
        """Where it may join."""
        self.version = VERSIONS[-1]
        self.process: BrokerProcess | None = None

    async def start(self) -> None:
        """A new life. Raises `BrokerError`."""
        own = {"storage.file": str(self.folder / "broker.db"), "links.highest_version": str(self.version)}
        self.process = self.broker({**own, **self.settings})
        await self.process.start(START)

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
    async def dial(self) -> Streams:
        """A client's connection to it. Raises `OSError`."""


class LoopbackSite(Site):
    """A broker at ports of this machine."""

    def __init__(self, name: str, cluster: str, ports: tuple[int, int], folder: Path) -> None:
        super().__init__(name, cluster, f"127.0.0.1:{ports[1]}", folder)
        self._port = ports[0]

    def broker(self, settings: Mapping[str, str]) -> BrokerProcess:
        return saps_broker(self.name, self.cluster, f"127.0.0.1:{self._port}", self.overlay, self.others, settings)

    async def dial(self) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self._port)


class LabSite(Site):
    """A broker on a host of a lab, with its devices."""

    def __init__(self, lab: Lab, host: str, cluster: str, folder: Path) -> None:
        super().__init__(host, cluster, f"{lab.topology.host(host).ip}:{OVERLAY}", folder)
        self._space = lab.host(host)

    def broker(self, settings: Mapping[str, str]) -> BrokerProcess:
        own = {"links.plain": "true", **settings}
        plain = saps_broker(self.name, self.cluster, f"127.0.0.1:{MQTT}", self.overlay, self.others, own)
        return BrokerProcess(self.name, self._space.argv(plain.command), environment=plain.environment)

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
    """The brokers of a run. An async context manager: they are up inside, and gone after it."""

    def __init__(self, sites: Sequence[Site], settings: Mapping[str, str], disks: bool) -> None:
        """`disks`: each storage file gets a file system of its own (root)."""
        self.sites = {site.name: site for site in sites}
        self._disks = disks
        self._mounted: list[Path] = []
        for site in sites:
            site.settings = {"storage.sync": "off", "limits.maximum_queued": "100000", **settings}

    @property
    def sides(self) -> tuple[frozenset[str], frozenset[str]]:
        """The names of the brokers of each cluster."""
        one, other = (frozenset(s.name for s in self.sites.values() if s.cluster == cluster) for cluster in CLUSTERS)
        return one, other

    async def __aenter__(self) -> Ground:
        try:
            for site in self.sites.values():
                site.folder.mkdir()
                if self._disks:
                    self._mount(site.folder)
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
            await asyncio.gather(*(process.stop() for process in processes))
        finally:
            await asyncio.gather(*(process.stop(0) for process in processes))
            self._unmount()

    def _unmount(self) -> None:
        while self._mounted:
            subprocess.run(("umount", "--lazy", str(self._mounted.pop())), check=False)

    def _mount(self, folder: Path) -> None:
        subprocess.run(("mount", "-t", "tmpfs", "-o", f"size={DISK}", "saps-chaos", str(folder)), check=True)
        self._mounted.append(folder)


def on_loopback(
    brokers: int, folder: Path, rng: random.Random, settings: Mapping[str, str], *, disks: bool = False
) -> Ground:
    """Brokers b0, b1, ... of this machine, in two clusters. Raises `RuntimeError` if there are too few ports."""
    ports = free_ports(2 * brokers, rng)
    pairs = list(zip(ports[::2], ports[1::2], strict=True))
    return Ground(
        [LoopbackSite(f"b{n}", CLUSTERS[n % 2], pair, folder / f"b{n}") for n, pair in enumerate(pairs)],
        settings,
        disks,
    )


def topology(brokers: int) -> str:
    """The lab's topology for so many brokers, half of them behind each of two switches."""
    return f"line:2x{(brokers + 1) // 2}"


def in_lab(lab: Lab, folder: Path, settings: Mapping[str, str], *, disks: bool = True) -> Ground:
    """A broker on each host of a lab of that topology."""
    switches = sorted({host.switch for host in lab.topology.hosts})
    clusters = dict(zip(switches, CLUSTERS, strict=True))
    hosts = lab.topology.hosts
    return Ground([LabSite(lab, h.name, clusters[h.switch], folder / h.name) for h in hosts], settings, disks)


class Cable:
    """The one link between a lab's two clusters. The methods block for some milliseconds."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        (link,) = lab.topology.links
        self._ends = (link.a, link.b) if link.a < link.b else (link.b, link.a)
        self._devices = {link.a: link.name, link.b: link.reverse}

    def cut(self) -> Callable[[], None]:
        """Nothing passes. What it gives repairs it, as with the others."""
        self._lab.set_link(*self._ends, up=False)
        return lambda: self._lab.set_link(*self._ends, up=True)

    def slow(self, bits: int, *, forth: bool) -> Callable[[], None]:
        """So many bits a second, one way."""
        a, b = self._ends if forth else self._ends[::-1]
        self._lab.set_rate(a, b, bits)
        return lambda: self._lab.set_rate(a, b, None)

    def lose(self, share: float, *, forth: bool) -> Callable[[], None]:
        """So much of what passes is lost at random, one way."""
        device = self._devices[self._ends[0] if forth else self._ends[1]]
        self._tc(f"qdisc add dev {device} clsact")
        self._tc(f"filter add dev {device} egress bpf direct-action bytecode", lottery(share))
        return lambda: self._tc(f"qdisc delete dev {device} clsact")

    def _tc(self, line: str, *more: str) -> None:
        self._lab.switches.run(["tc", *line.split(), *more], capture_output=True)


def lottery(share: float) -> str:
    """A packet filter (classic BPF, as `tc` takes it) that drops this share of the packets. `netem`, made for this, is
    not in every kernel; this is."""
    load, jump, give = 0x20, 0x35, 0x06
    passed, dropped = 0, 2  # TC_ACT_OK, TC_ACT_SHOT
    random_word = 0xFFFFF000 + 56  # SKF_AD_OFF + SKF_AD_RANDOM
    threshold = min(round(share * 2**32), 2**32 - 1)
    program = [(load, 0, 0, random_word), (jump, 0, 1, threshold), (give, 0, 0, passed), (give, 0, 0, dropped)]
    return ",".join([str(len(program)), *(" ".join(map(str, line)) for line in program)])
