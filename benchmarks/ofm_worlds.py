"""Where `benchmarks.ofm_rates` measures: brokers, and hosts without, on Open vSwitch or ``saps switches``."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Protocol, Self

from benchmarks.processes import free_port
from lab import Lab, LabError
from lab.namespace import Namespace
from lab.programs import CALM, GRACE, MQTT, TIMEOUT, Mesh, Program
from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.datapath.driver.udp import mac_of
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.driver.client import Client
from saps.ofm.northbound.schema import OfmRequest
from saps.ofm.switch.host import Host, mac_for

RAW, RAW_PORT, UDP_PORT = "raw", 7500, 7400
"""Topic and UDP port of raw datagrams; UDP port of brokers."""
ROOM = 1 << 28
"""Bytes of a raw socket's buffer: all that comes waits there until it is read."""
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS, _IP_MTU_DISCOVER, _DO = 32, 33, 35, 10, 2


class End(Protocol):
    """A host that sends raw datagrams along a tree, and takes them in."""

    def send(self, payload: bytes) -> None:
        """One datagram."""

    def read(self) -> Iterator[tuple[bytes, int]]:
        """What waits: each payload, and when it came, in nanoseconds since 1970."""


class World(Protocol):
    """Brokers that are up, one a host."""

    @property
    def name(self) -> str:
        """Its switches."""

    @property
    def hosts(self) -> Sequence[str]:
        """Those with a broker."""

    @property
    def programs(self) -> Mapping[str, Program]:
        """Brokers by their host's name, and others."""

    def at(self, host: str) -> AbstractContextManager[int]:
        """Be where clients of the host's broker are. Gives its MQTT port."""

    def order(self, order: str) -> Any:
        """One order to OFGate. Raises `LabError`."""

    def exploit(self, topic: str) -> None:
        """Have the topic use OFM. Returns when it has its tree."""

    def release(self, topic: str) -> None:
        """Give it back to ALM."""

    def crossed(self) -> tuple[int, int]:
        """Packets and bytes on the links between clusters so far; 0 where ALM does not use these."""

    def raw(self) -> AbstractContextManager[list[End]]:
        """A tree from the first of the ends to all others."""


class OnLab:
    """Open vSwitch in namespaces. Needs root."""

    name = "Open vSwitch"

    def __init__(self, shape: str, *, stateless: bool = False) -> None:
        """`stateless`: topics use stateless delivery, and IPv6."""
        self._stack, self._shape, self._stateless = ExitStack(), shape, stateless

    def __enter__(self) -> Self:
        settings = {**CALM, "ofm.delivery": "stateless"} if self._stateless else dict(CALM)
        with ExitStack() as stack:
            self._lab = stack.enter_context(Lab(self._shape, ipv6=self._stateless))
            self._mesh = stack.enter_context(Mesh(self._lab, ofm=True, settings=settings))
            if self._stateless:
                told(self._mesh)
            self._stack = stack.pop_all()
        self.hosts, self.programs, self.order = self._mesh.hosts, self._mesh.programs, self._mesh.order
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @contextmanager
    def at(self, host: str) -> Iterator[int]:
        """See `World`, as for all that follow."""
        with self._lab.host(host).inside():
            yield MQTT

    def exploit(self, topic: str) -> None:
        self._mesh.exploit([topic])

    def release(self, topic: str) -> None:
        self._mesh.release([topic])

    def crossed(self) -> tuple[int, int]:
        found = self._lab.counters().inter_cluster
        return found.packets, found.bytes

    @contextmanager
    def raw(self) -> Iterator[list[End]]:
        with ExitStack() as stack:
            ends = [stack.enter_context(contextlib.closing(self._end(host))) for host in self.hosts]
            token = self._mesh.token.read_text().strip()
            _construct(self._mesh.northbounds[0], token, ends, self._lab.switches.socket)
            yield list(ends)

    def _end(self, host: str) -> _Socket:
        ip = self._lab.topology.host(host).ip
        with self._lab.host(host).inside():
            mac = mac_of(ip)
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        assert mac is not None
        made.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _DO)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(ip))
        made.bind((ip, RAW_PORT))
        return _Socket(made, BrokerAddress(ip, mac, RAW_PORT))


class OnSwitches:
    """``saps switches`` and all programs as processes of this machine. ALM goes over loopback."""

    name = "`saps switches`"

    def __init__(self, shape: str) -> None:
        if (found := re.fullmatch(r"tree:(\d+)x(\d+)", shape)) is None:
            raise LabError(f"{shape}: with `saps switches` it is to be tree:CxN")
        clusters, each = found.groups()
        self._brokers = [(c, n) for c in range(1, int(clusters) + 1) for n in range(1, int(each) + 1)]
        self._raw = [(c, n + int(each)) for c, n in self._brokers]
        self._topology = f"tree:{clusters}x{2 * int(each)}"
        self.hosts = tuple(f"c{c}b{n}" for c, n in self._brokers)
        self.programs: dict[str, Program] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="saps-rates-")
        self._clients = {host: free_port() for host in self.hosts}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        deadline = time.monotonic() + GRACE
        for program in reversed(self.programs.values()):
            program.signal(signal.SIGTERM)
        for program in reversed(self.programs.values()):
            program.end(deadline)
        self._folder.cleanup()

    def _start(self) -> None:
        openflow, northbound, gate, *overlays = (f"127.0.0.1:{free_port()}" for _ in range(3 + len(self.hosts)))
        self._northbound, self._token = f"http://{northbound}", secrets.token_hex(16)
        token = Path(self._folder.name, "token")
        token.write_text(self._token)
        token.chmod(0o600)
        self._run("controller", "--listen", openflow, "--northbound", northbound, "--token-file", str(token)).ready()
        switches = self._run("switches", "--topology", self._topology, "--controller", openflow)
        self._ports = switches.ready()
        calm = [word for setting in CALM.items() for word in ("--set", "=".join(setting))]
        for host, (cluster, number), overlay in zip(self.hosts, self._brokers, overlays, strict=True):
            listen = f"ofm.listen={_ip(cluster, number)}:{UDP_PORT}"
            words = ["--name", host, "--cluster", f"c{cluster}", "--overlay", overlay, "--set", listen, *calm]
            words += ["--mqtt", f"127.0.0.1:{self._clients[host]}", "--set", f"ofm.attach={self._ports[host]}"]
            words += [] if overlay == overlays[0] else ["--join", overlays[0]]
            self._run("broker", *words, name=host).ready()
        words = ["--controller", self._northbound, "--token-file", str(token), "--overlay", gate]
        self._run("ofgate", *words, "--join", overlays[0]).ready()
        self._until(lambda status: bool(status["leading"]), "leading OFGate")

    def _run(self, command: str, *words: str, name: str = "") -> Program:
        found = self.programs[name or command] = Program(
            name or command, _Here(), [command, *words], Path(self._folder.name)
        )
        return found

    def _until(self, true: Any, what: str) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not true(status := self.order("status")):
            if time.monotonic() > deadline:
                raise LabError(f"no {what}: {status}")
            time.sleep(0.05)

    @contextmanager
    def at(self, host: str) -> Iterator[int]:
        """See `World`, as for all that follow."""
        yield self._clients[host]

    def order(self, order: str) -> Any:
        return self.programs["ofgate"].ask(order)

    def exploit(self, topic: str) -> None:
        self.order(f"exploit {topic}")
        self._until(lambda status: any(t["status"] == "constructed" for t in status["topics"]), f"tree of {topic}")

    def release(self, topic: str) -> None:
        self.order(f"release {topic}")
        self._until(lambda status: not status["topics"], f"end of the tree of {topic}")

    def crossed(self) -> tuple[int, int]:
        return 0, 0

    @contextmanager
    def raw(self) -> Iterator[list[End]]:
        with ExitStack() as stack:
            ends = [stack.enter_context(contextlib.closing(self._end(*each))) for each in self._raw]
            _construct(self._northbound, self._token, ends)
            yield list(ends)

    def _end(self, cluster: int, number: int) -> _Cable:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.connect(OfmAddress.parse(self._ports[f"c{cluster}b{number}"]))
        ip = _ip(cluster, number)
        return _Cable(made, BrokerAddress(ip, mac_for(ip), RAW_PORT))


WORLDS: dict[str, type[OnLab | OnSwitches]] = {"lab": OnLab, "switches": OnSwitches}


class _Here(Namespace):
    """Where this program is, which must be the case for ``saps switches`` already."""

    def __init__(self) -> None:
        super().__init__("here")

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, **options)


class _Socket:
    """An `End` with an interface of its own."""

    def __init__(self, made: socket.socket, element: BrokerAddress) -> None:
        self.element, self.to = element, OfmAddress(element.ip, element.port)
        self._socket = made
        made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        for option, forced in ((socket.SO_SNDBUF, _SO_SNDBUFFORCE), (socket.SO_RCVBUF, _SO_RCVBUFFORCE)):
            made.setsockopt(socket.SOL_SOCKET, option, ROOM)
            with contextlib.suppress(PermissionError):
                made.setsockopt(socket.SOL_SOCKET, forced, ROOM)

    def close(self) -> None:
        """Send and take in no more."""
        self._socket.close()

    def send(self, payload: bytes) -> None:
        """See `End`."""
        self._socket.sendto(payload, (self.to.ip, self.to.port))

    def read(self) -> Iterator[tuple[bytes, int]]:
        """See `End`."""
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                data, [(_, _, came)], _, _ = self._socket.recvmsg(2048, 64)
                seconds, nanoseconds = struct.unpack_from("qq", came)
                yield data, seconds * 1_000_000_000 + nanoseconds


class _Cable(_Socket):
    """An `End` at a port of ``saps switches``: frames in UDP."""

    def __init__(self, made: socket.socket, element: BrokerAddress) -> None:
        super().__init__(made, element)
        self._host = Host(element)
        made.send(self._host.announcement())

    def send(self, payload: bytes) -> None:
        """See `End`."""
        self._socket.send(self._host.frame(int(ip_address(self.to.ip)), self.to.port, payload))

    def read(self) -> Iterator[tuple[bytes, int]]:
        """See `End`."""
        for frame, came in super().read():
            payload, _ = self._host.receive(frame)
            if payload is not None:
                yield payload, came


def _ip(cluster: int, number: int) -> str:
    return f"10.77.{cluster}.{number}"


def told(mesh: Mesh) -> None:
    """Returns once all brokers know the bits of all."""
    deadline = time.monotonic() + TIMEOUT
    while not all(each["reached"] == len(mesh.hosts) for each in mesh.order("brokers")):
        if time.monotonic() > deadline:
            raise LabError(f"no bits after {TIMEOUT:.0f} s: {mesh.order('brokers')}")
        time.sleep(0.1)


def _construct(url: str, token: str, ends: Sequence[_Socket], sockets: Any = None) -> None:
    """Have a tree made from the first to all others. Each end learns its address."""
    source, *others = [end.element for end in ends]

    async def put() -> str:
        found = None if sockets is None else lambda info: sockets(*info[:3])
        async with Client(url, token=token, sockets=found) as client:
            state = await client.put(OfmRequest(RAW, others, senders=[source]), wait=10.0)
        if state.address is None:
            raise LabError(f"no tree for raw datagrams: {state.reason}")
        return state.address

    address = OfmAddress.parse(asyncio.run(put()))
    for end in ends:
        end.to = address
