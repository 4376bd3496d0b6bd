"""Runs the experiment of SDNPS's Tables 1 to 6 (2016, section 5.1) on Open vSwitch: delay and loss along a tree.

Each repetition visits all cells in an order of its own, so that other work on the machine affects all of them alike. In
every cell each publisher sends the paper's burst, and then some packets at a low rate, whose delays are those of single
packets. `saps controller` installs the trees and then ends, so that only the switches are measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from lab import Lab, LabError
from lab.programs import Program
from research.sdnps.tables import CELLS, FIRST_OF_ENTRIES, NODES, PACKETS, TOPOLOGY, Cell
from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.driver.client import AddrInfo, Client
from saps.ofm.northbound.schema import OfmRequest, Status

RUNS, QUICK_RUNS = 10, 2
QUICK_PACKETS = 2000
QUICK_ENTRIES = 1000
"""Most flow entries with ``--quick``; in Table 4 five times as many."""
BURST_RATE = 41_000.0
"""Packets a second of each publisher in a burst, from the 2,439 ms for 100,000 packets in Table 1's first row."""
STEADY_RATE, STEADY_PACKETS = 1000.0, 250
"""Packets a second and number of packets of the measurement of single packets' delays."""
PORT = 7000
OPENFLOW, NORTHBOUND = ("127.0.0.1", 6653), "127.0.0.1:8181"
TIMEOUT = 120.0
"""Most seconds to wait for an answer of a node or the controller."""
FILLER = 0x5F111E4
"""Cookie of the flow entries that only fill the tables."""
BROKER_PRIORITY = 0xA000
"""Priority of a broker's entry (`saps.ofm.flows.plan`), so that the fillers look like further brokers' entries."""


class Run(NamedTuple):
    """One test of a cell."""

    table: int
    row: int
    """Place of the cell in its table, from 0."""
    repetition: int
    packets: int
    """Packets of the burst that all subscribers should receive together."""
    received: int
    """Packets of the burst that all subscribers received together."""
    duration_ms: float
    """Time from the first packet sent to the last received by any subscriber in ms: the paper's delay."""
    delay_us: float
    """Median delay of single packets at the steady rate in µs."""
    delay_p99_us: float
    """99th percentile of the same delays in µs."""
    steady_sent: int
    """Packets at the steady rate that all subscribers should receive together."""
    steady_received: int
    """Packets at the steady rate that all subscribers received together."""

    @property
    def loss(self) -> float:
        """Lost packets of the burst, in per cent."""
        return 100 * (1 - self.received / self.packets)


class Node:
    """A node's process on a host (`research.sdnps.ends`)."""

    def __init__(self, lab: Lab, number: int) -> None:
        host = lab.topology.host(NODES[number])
        self.address = BrokerAddress(host.ip, host.mac, PORT)
        self._process: subprocess.Popen[str] = lab.host(host.name).popen(
            [sys.executable, "-m", "research.sdnps.ends", host.ip, str(PORT)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self._line()

    def tell(self, order: str) -> None:
        """Send the process an order."""
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Return the answer to the oldest order. Raises `LabError` without an answer in `TIMEOUT` seconds."""
        found: dict[str, Any] = json.loads(self._line())
        return found

    def _line(self) -> str:
        output = self._process.stdout
        assert output is not None
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            if not selector.select(TIMEOUT) or not (line := output.readline()):
                raise LabError("a node of the experiment does not answer")
        return line

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Bench:
    """The lab with its nodes and trees; `send` makes a measurement."""

    def __init__(self, lab: Lab, nodes: dict[int, Node], trees: dict[tuple[tuple[int, ...], ...], OfmAddress]) -> None:
        self._lab, self._nodes, self._trees = lab, nodes, trees
        self._runs = 0
        self._filled = 0

    def fill(self, entries: int) -> None:
        """Set the number of flow entries of other brokers in each switch to `entries`. Raises `LabError`."""
        if entries == self._filled:
            return
        with tempfile.NamedTemporaryFile("w", suffix=".flows") as file:
            file.writelines(_fillers(entries))
            file.flush()
            for switch in self._lab.topology.switches:
                self._ofctl("del-flows", switch.name, f"cookie={FILLER:#x}/-1")
                if entries:
                    self._ofctl("--bundle", "add-flows", switch.name, file.name)
        self._filled = entries

    def _ofctl(self, *arguments: str) -> None:
        try:
            self._lab.switches.run(["ovs-ofctl", "-O", "OpenFlow13", *arguments], capture_output=True, text=True)
        except subprocess.CalledProcessError as error:
            raise LabError(f"ovs-ofctl {arguments[0]}: {error.stderr.strip()}") from None

    def entries(self) -> list[int]:
        """Return the number of flow entries of other brokers in each switch, as the switch counts them."""
        found = []
        for switch in self._lab.topology.switches:
            command = ["ovs-ofctl", "-O", "OpenFlow13", "dump-aggregate", switch.name, f"cookie={FILLER:#x}/-1"]
            text = self._lab.switches.run(command, capture_output=True, text=True).stdout
            found.append(int(text.rpartition("flow_count=")[2]))
        return found

    def send(self, cell: Cell, packets: int, rate: float) -> tuple[float, list[dict[str, Any]]]:
        """Have each publisher of a cell send `packets` packets at `rate` a second.

        Returns the seconds by the paper's definition, and each subscriber's answer (`research.sdnps.ends.count`).
        Raises `LabError`."""
        self._runs += 1
        to = self._trees[cell.publishers, cell.subscribers]
        publishers = [self._nodes[number] for number in cell.publishers]
        subscribers = [self._nodes[number] for number in cell.subscribers]
        for node in subscribers:
            node.tell(f"count {packets * len(publishers)} {self._runs}")
            node.answer()
        for node in publishers:
            node.tell(f"send {to.ip} {to.port} {packets} {rate} {self._runs}")
        began = min(node.answer()["began"] for node in publishers)
        for node in subscribers:
            node.tell("over")
        got = [node.answer() for node in subscribers]
        return (max(each["last"] for each in got) - began) / 1e9, got


def _fillers(entries: int) -> Iterator[str]:
    """Yield flow entries, in the syntax of `ovs-ofctl`, for brokers that do not exist."""
    for number in range(entries):
        source = f"10.78.{number >> 8 & 255}.{number & 255}"
        yield (
            f"cookie={FILLER:#x},priority={BROKER_PRIORITY},udp,in_port=1,nw_src={source},nw_dst=239.77.255.255,"
            f"tp_src={PORT},tp_dst={5000 + (number >> 16)},actions=drop\n"
        )


@contextmanager
def bench(cells: Iterable[Cell]) -> Iterator[Bench]:
    """Yield a lab with the trees that these cells need; it is up inside the block. Raises `LabError`."""
    wanted = sorted({(cell.publishers, cell.subscribers) for cell in cells})
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="saps-sdnps-")))
        lab = stack.enter_context(
            Lab(TOPOLOGY, name=f"sdnps{os.getpid()}", controller=OPENFLOW, directory=folder / "labs")
        )
        nodes: dict[int, Node] = {}
        for number in NODES:
            nodes[number] = Node(lab, number)
            stack.callback(nodes[number].end)
        yield Bench(lab, nodes, _install(lab, nodes, wanted, folder))


def _install(
    lab: Lab, nodes: dict[int, Node], wanted: Sequence[tuple[tuple[int, ...], ...]], folder: Path
) -> dict[tuple[tuple[int, ...], ...], OfmAddress]:
    """Have a controller construct a tree for each pair of publishers and subscribers, and return the trees' addresses.

    The controller then ends, and the trees stay. Raises `LabError`."""
    token = folder / "token"
    token.write_text(secrets.token_hex(16))
    options = ["--listen", "{}:{}".format(*OPENFLOW), "--northbound", NORTHBOUND, "--token-file", str(token)]
    program = Program("controller", lab.switches, ["controller", *options], folder)
    try:
        program.ready()

        def inside(info: AddrInfo) -> socket.socket:
            return lab.switches.socket(info[0], info[1], info[2])

        async def ask() -> dict[tuple[tuple[int, ...], ...], OfmAddress]:
            async with Client(f"http://{NORTHBOUND}", token=token.read_text(), sockets=inside) as client:
                return {pair: await _tree(client, nodes, *pair) for pair in wanted}

        return asyncio.run(ask())
    finally:
        program.signal(signal.SIGTERM)
        program.end(time.monotonic() + TIMEOUT)
        lab.set_controller(None)


async def _tree(
    client: Client, nodes: dict[int, Node], publishers: tuple[int, ...], subscribers: tuple[int, ...]
) -> OfmAddress:
    request = OfmRequest(
        f"from/{publishers}/to/{subscribers}".replace(", ", "-"),
        [nodes[number].address for number in subscribers],
        senders=[nodes[number].address for number in publishers],
    )
    state = await client.put(request, wait=TIMEOUT / 2)
    if state.status is not Status.CONSTRUCTED or state.address is None:
        raise LabError(f"the controller does not make the tree of {state.topic}: {state.status}, {state.reason}")
    return OfmAddress.parse(state.address)


def chosen(*, quick: bool) -> list[Cell]:
    """Return the cells to measure.

    With `quick` these are the first and last rows of Tables 1 to 3, two rows of Table 4, and one of Tables 5 and 6."""
    return [cell for cell in CELLS if not quick or (cell.hops != 2 if not cell.entries else _few(cell))]


def _few(cell: Cell) -> bool:
    return cell.entries <= QUICK_ENTRIES * (5 if cell.table == FIRST_OF_ENTRIES else 1)


class Settings(NamedTuple):
    """The parameters of the measurement."""

    runs: int = RUNS
    packets: int = PACKETS
    """Packets of each publisher in a burst."""
    rate: float = BURST_RATE
    """Packets a second of each publisher in a burst; 0: as fast as possible."""
    seed: int = 1


def measure(cells: Sequence[Cell], settings: Settings, progress: Callable[[int, int], None]) -> list[Run]:
    """Measure each cell `settings.runs` times. Raises `LabError`.

    `progress` is called with the number of tests done and of all."""
    rng = random.Random(settings.seed)
    rows = {cell: sum(other.table == cell.table for other in cells[:place]) for place, cell in enumerate(cells)}
    found: list[Run] = []
    with bench(cells) as made:
        for cell in cells:
            made.send(cell, 10, STEADY_RATE)  # warms the switches' caches, so that the first test equals later ones
        for repetition in range(settings.runs):
            for cell in _order(cells, rng):
                made.fill(cell.entries)
                found.append(_test(made, cell, rows[cell], repetition, settings))
                progress(len(found), settings.runs * len(cells))
    return found


def _order(cells: Sequence[Cell], rng: random.Random) -> list[Cell]:
    """Return all cells in a random order, in which cells with the same number of flow entries are adjacent.

    Exchanging the entries takes longer than a test."""
    sizes = sorted({cell.entries for cell in cells})
    rng.shuffle(sizes)
    order = []
    for size in sizes:
        alike = [cell for cell in cells if cell.entries == size]
        rng.shuffle(alike)
        order += alike
    return order


def _test(made: Bench, cell: Cell, row: int, repetition: int, settings: Settings) -> Run:
    seconds, got = made.send(cell, settings.packets, settings.rate)
    _, single = made.send(cell, STEADY_PACKETS, STEADY_RATE)
    delays = sorted(delay for each in single for delay in each["delays"])
    if not delays or not any(each["got"] for each in got):
        raise LabError(f"nothing arrives: table {cell.table}, {cell.label}")
    copies = len(cell.publishers) * len(cell.subscribers)
    return Run(
        table=cell.table,
        row=row,
        repetition=repetition,
        packets=settings.packets * copies,
        received=sum(each["got"] for each in got),
        duration_ms=1000 * seconds,
        delay_us=statistics.median(delays),
        delay_p99_us=delays[int(0.99 * (len(delays) - 1))],
        steady_sent=STEADY_PACKETS * copies,
        steady_received=sum(each["got"] for each in single),
    )
