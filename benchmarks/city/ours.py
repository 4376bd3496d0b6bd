"""SAPS as a peer: builds of it, features of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.request import urlopen

from benchmarks import peers
from benchmarks.city.brokers import Broker, Site, first_number
from benchmarks.city.kept import Result
from benchmarks.city.rows import Row
from benchmarks.city.traffic import display
from benchmarks.processes import Place, free_port
from saps.runtime.compiled import ASKED_FOR

SAPS = "SAPS"
OWN = Path(sys.executable).with_name("saps")
"""The program of the environment this runs in."""
TREED = display(1).topics
"""Topics with an OpenFlow tree."""
TREE = 8.0
"""Seconds until all publishers use it."""
DESIGN = 3.0
"""Seconds until an overlay has been designed, with a survey each second."""


class Saps(Broker):
    """``saps broker``; between brokers two that have joined."""

    guest = False

    def __init__(
        self,
        name: str = SAPS,
        program: Path = OWN,
        settings: tuple[str, ...] = (),
        *,
        said: str = "as `make setup` installs it, defaults",
        pure: bool = False,
        properties: bool | None = None,
        idle: float = 0.0,
    ) -> None:
        """`settings`: for ``--set``. `said`: the same for the table."""
        self.name = name
        self.settings = said
        self.properties = properties
        self.guest = self.slow = pure
        self.path = program
        self.chosen = settings
        self._saps = _Program(program, pure)
        self.idle = idle

    def version(self) -> str | None:
        return first_number(str(self.path), "--version") if self.path.exists() else None

    def launch(self, place: Place, row: Row, version: int) -> Site:
        site, _ = self._saps.joined(place, [self.chosen] * (2 if row.between else 1))
        return Site(*site)


class _Program(peers.Saps):
    def __init__(self, program: Path, pure: bool) -> None:
        super().__init__()
        self._program = program
        self._pure = pure

    def _command(self) -> list[str]:
        return (["env", f"{ASKED_FOR}=1"] if self._pure else []) + [str(self._program)]

    def joined(self, place: Place, settings: Sequence[tuple[str, ...]]) -> tuple[peers.Site, int]:
        """The brokers of one mesh, each with these settings. Returns the overlay port of the first, too."""
        ports, overlays = [free_port() for _ in settings], [free_port() for _ in settings]
        for number, (port, overlay, own) in enumerate(zip(ports, overlays, settings, strict=True)):
            self._start(place, f"b{number}", port, overlay, overlays[0] if number else None, own)
        return peers.Site(ports[0], ports[-1]), overlays[0]

    def run(self, place: Place, *words: str) -> str:
        """Start another program of SAPS. Returns its ready line."""
        log = place.start([*self._command(), *words])
        place.wait_until(lambda: "ready " in log.read_text())
        return next(line for line in log.read_text().splitlines() if line.startswith("ready "))


class Traced(Saps):
    """SAPS with a collector that takes its spans and drops them."""

    def launch(self, place: Place, row: Row, version: int) -> Site:
        port = free_port()
        place.start([sys.executable, "-m", "benchmarks.city.collector", str(port)])
        collector = place.pids[-1]
        settings = (*self.chosen, f"tracing.endpoint=http://127.0.0.1:{port}")
        site, _ = self._saps.joined(place, [settings] * (2 if row.between else 1))
        return Site(*site, (collector,))


class Treed(Saps):
    """SAPS with an OpenFlow tree for the topic of `display`: switches in software, controller and OFGate, which do not
    count, are beside the brokers."""

    def refusal(self, row: Row) -> str:
        return super().refusal(row) or ("" if row.shape().topics == TREED else "the one tree here is of another topic")

    def launch(self, place: Place, row: Row, version: int) -> Site:
        openflow, northbound, gate = (f"127.0.0.1:{free_port()}" for _ in range(3))
        self._saps.run(place, "controller", "--listen", openflow, "--northbound", northbound)
        ready = self._saps.run(place, "switches", "--topology", "tree:2x1", "--controller", openflow)
        ports = dict(word.split("=") for word in ready.split()[1:])
        beside = len(place.pids)
        own = [(f"ofm.listen=10.77.{n}.1:7400", f"ofm.attach={ports[f'c{n}b1']}") for n in (1, 2)]
        site, overlay = self._saps.joined(place, own)
        brokers = place.pids[beside:]
        words = ("--controller", f"http://{northbound}", "--overlay", gate, "--join", f"127.0.0.1:{overlay}")
        self._saps.run(place, "ofgate", *words, "--exploit", *TREED)
        return Site(
            *site, tuple(pid for pid in place.pids if pid not in brokers), partial(_carried, northbound, row.payload[0])
        )


def _carried(northbound: str, smallest: int, result: Result) -> str:
    """Why the messages did not go along the tree, if so: none is smaller than `smallest` bytes, and beside them there
    are only a few of the controller's own packets."""
    with urlopen(f"http://{northbound}/v1/ports", timeout=10) as answer:
        found = max((port["rx_bytes"] for port in json.load(answer)), default=0)
    if found <= result.messages * smallest:
        return f"{found} bytes came along the tree, with {result.messages} messages"
    return ""


def features(program: Path) -> list[Broker]:
    """Plain, and with one feature each."""
    return [
        Saps(SAPS, program, properties=False),
        Saps("SAPS, MQTT 5 properties", program, said="a content type and two user properties", properties=True),
        Saps(
            "SAPS, priority topics",
            program,
            ("priority.topics=city/#",),
            said="every topic goes first",
            properties=False,
        ),
        Saps(
            "SAPS, designed overlay",
            program,
            ("overlay.alm_order=designed", "overlay.design_interval=1"),
            said="`--alm designed`, a survey each second",
            properties=False,
            idle=DESIGN,
        ),
        Treed(
            "SAPS, OpenFlow tree",
            program,
            said="switches in software, which do not count",
            properties=False,
            idle=TREE,
        ),
        Traced("SAPS, tracing 1 %", program, ("tracing.share=0.01",), said="one message of 100", properties=False),
    ]
