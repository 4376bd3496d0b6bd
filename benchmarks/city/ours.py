"""SAPS as a peer: builds of it, features of it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks import peers
from benchmarks.city.brokers import Broker, Site, first_number
from benchmarks.city.rows import Row
from benchmarks.processes import Place, free_port
from saps.compiled import ASKED_FOR

SAPS = "SAPS"
OWN = Path(sys.executable).with_name("saps")
"""The program of the environment this runs in."""
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
        wait: float = 0.0,
    ) -> None:
        """`settings`: for ``--set``. `said`: the same for the table. `wait`: seconds before it is measured."""
        self.name = name
        self.settings = said
        self.properties = properties
        self.guest = self.slow = pure
        self.path = program
        self.chosen = settings
        self._saps = _Program(program, pure)
        self._wait = wait

    def version(self) -> str | None:
        return first_number(str(self.path), "--version") if self.path.exists() else None

    def launch(self, place: Place, row: Row, version: int) -> Site:
        site = Site(*self._saps.joined(place, 2 if row.between else 1, self.chosen))
        time.sleep(self._wait)
        return site


class _Program(peers.Saps):
    def __init__(self, program: Path, pure: bool) -> None:
        super().__init__()
        self._program = program
        self._pure = pure

    def _command(self) -> list[str]:
        return (["env", f"{ASKED_FOR}=1"] if self._pure else []) + [str(self._program)]

    def joined(self, place: Place, count: int, settings: tuple[str, ...]) -> peers.Site:
        """One broker, or two of one mesh."""
        ports, overlays = [free_port() for _ in range(count)], [free_port() for _ in range(count)]
        for number, (port, overlay) in enumerate(zip(ports, overlays, strict=True)):
            self._start(place, f"b{number}", port, overlay, overlays[0] if number else None, settings)
        return peers.Site(ports[0], ports[-1])


class Traced(Saps):
    """SAPS with a collector that takes its spans and drops them."""

    def launch(self, place: Place, row: Row, version: int) -> Site:
        port = free_port()
        place.start([sys.executable, "-m", "benchmarks.city.collector", str(port)])
        collector = place.pids[-1]
        site = self._saps.joined(
            place, 2 if row.between else 1, (*self.chosen, f"tracing.endpoint=http://127.0.0.1:{port}")
        )
        return site_without(site, collector)


def site_without(site: peers.Site, pid: int) -> Site:
    """The site, with a process that does not count."""
    return Site(site.publish_port, site.subscribe_port, (pid,))


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
            wait=DESIGN,
        ),
        Traced("SAPS, tracing 1 %", program, ("tracing.share=0.01",), said="one message of 100", properties=False),
    ]
