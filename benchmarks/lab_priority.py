"""An alert beside bulk traffic on a narrow link: ``python -m benchmarks.lab_priority``. Needs root and Open vSwitch.

Two clusters, a broker each, joined by a link of a few Mbit/s that is full of bulk messages, all of them by ALM. Every
now and then there is an alert the same way: without priority, as a priority topic, and as one that uses OFM. The link
sends packets that have a class selector in their DSCP first, as a router or switch with queues does. Measured is the
time from the alert's PUBLISH to its arrival at a subscriber, once idle and once under load.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks import packets
from benchmarks.client import connected, read_exactly, subscribed
from benchmarks.section import update_page
from examples.smart_city.latency import percentile
from lab import Lab, LabError
from lab.programs import CALM, MQTT, Mesh

PAGE = Path("docs/decisions/034-priority-topics-on-their-own-connection.md")
ALERT, BULK = "alert/fire", "bulk/cameras"
PIECE = 4096
"""Bytes of a bulk message: more than fits into a datagram."""
ALERT_BYTES = 200
TIMEOUT = 120.0
"""Seconds an alert may take."""
FULL = 1 << 18
"""Bytes of bulk that have come through the link before it is taken for full."""
PAUSE = 0.1
"""Seconds between two alerts."""


class Row(msgspec.Struct, frozen=True):
    """Latencies of alerts in milliseconds."""

    way: str
    idle_p50: float
    idle_p99: float
    loaded_p50: float
    loaded_p99: float


class Scene:
    """Clients at both ends of the link. `begin` fills it."""

    def __init__(self, lab: Lab, mesh: Mesh, stack: contextlib.ExitStack) -> None:
        self.lab, self.mesh = lab, mesh
        with lab.host("c1b1").inside():
            self._alerting = stack.enter_context(connected(MQTT))
            self._bulk = stack.enter_context(connected(MQTT))
        with lab.host("c2b1").inside():
            self._alerted = stack.enter_context(subscribed(MQTT, ALERT, 0))
            self._sink = stack.enter_context(subscribed(MQTT, BULK, 0))
        self._sink.setblocking(False)
        self._alerted.settimeout(TIMEOUT)
        self._bulk.settimeout(TIMEOUT)
        self._over = threading.Event()
        self._serial = 0
        self.published = 0
        """Bytes of bulk handed to the broker so far."""
        self.arrived = 0
        """Bytes of bulk that have come through, as of the last look."""

    def alert(self) -> float:
        """Publish an alert: the seconds until it is there. Raises TimeoutError."""
        self._serial += 1
        packet = packets.publish(ALERT, self._serial.to_bytes(8, "big").ljust(ALERT_BYTES, b"."), 0, 0)
        began = time.monotonic()
        self._alerting.sendall(packet)
        assert read_exactly(self._alerted, len(packet)) == packet
        return time.monotonic() - began

    def begin(self, ahead: int = 0) -> None:
        """Fill the link, and keep it full. Returns when it is, and at least `ahead` bytes wait."""
        threading.Thread(target=self._publish_bulk, daemon=True).start()
        deadline = time.monotonic() + TIMEOUT
        while self.look() < FULL or self.published - self.arrived < ahead:
            if time.monotonic() > deadline:
                raise LabError("the bulk traffic does not come through")
            time.sleep(0.01)

    def look(self) -> int:
        """How many bytes of bulk have come through so far."""
        with contextlib.suppress(BlockingIOError):
            while data := self._sink.recv(1 << 16):
                self.arrived += len(data)
        return self.arrived

    def end(self) -> None:
        """Publish no more."""
        self._over.set()

    def _publish_bulk(self) -> None:
        packet = packets.publish(BULK, bytes(PIECE), 0, 0)
        with contextlib.suppress(OSError):  # the broker goes first
            while not self._over.is_set():
                self._bulk.sendall(packet)
                self.published += len(packet)


@contextmanager
def scene(bits: int, *, priority: bool, ofm: bool = False, name: str | None = None) -> Iterator[Scene]:
    """The lab with everything in it; the link takes `bits` a second from the first cluster to the second."""
    settings = dict(CALM) | ({"priority.topics": "alert/#"} if priority else {})
    with (
        Lab("tree:2x1", name=name) as lab,
        Mesh(lab, ofm=ofm, settings=settings) as mesh,
        contextlib.ExitStack() as stack,
    ):
        made = Scene(lab, mesh, stack)
        made.alert()
        if ofm:
            mesh.exploit([ALERT])
            _until_by_tree(made)
        lab.set_rate("core", "s2", bits, by_priority=True)
        try:
            yield made
        finally:
            made.end()


def _until_by_tree(made: Scene) -> None:
    """Returns once alerts leave as datagrams: the broker hears its loopback packet."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        before = made.lab.counters()
        made.alert()
        seen = made.lab.counters() - before
        if seen.to_host("c1b1").bytes > ALERT_BYTES:
            return
        if time.monotonic() > deadline:
            raise LabError("alerts do not go by the tree")


def measure(way: str, bits: int, alerts: int, *, priority: bool, ofm: bool = False) -> Row:
    """One row."""
    with scene(bits, priority=priority, ofm=ofm) as made:
        idle = _latencies(made, alerts)
        made.begin()
        loaded = _latencies(made, alerts)
    found = [percentile(sorted(times), percent) or 0.0 for times in (idle, loaded) for percent in (50, 99)]
    return Row(way, *(round(1000 * seconds, 2) for seconds in found))


def _latencies(made: Scene, alerts: int) -> list[float]:
    times = []
    for _ in range(alerts):
        times.append(made.alert())
        made.look()
        time.sleep(PAUSE)
    return times


def markdown(rows: Sequence[Row], bits: int, alerts: int) -> str:
    """As a table."""
    lines = [
        f"{alerts} alerts of {ALERT_BYTES} bytes each, idle and beside bulk traffic that fills a link of "
        f"{bits / 1e6:g} Mbit/s\n(`python -m benchmarks.lab_priority`):",
        "",
        "| alerts go | idle: p50 | p99 | under load: p50 | p99 |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {row.way} | {row.idle_p50:.1f} ms | {row.idle_p99:.1f} ms | {row.loaded_p50:.1f} ms "
        f"| {row.loaded_p99:.1f} ms |"
        for row in rows
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lab_priority", description=__doc__)
    parser.add_argument("--mbit", type=float, default=8.0, help="of the link (default: 8)")
    parser.add_argument("--alerts", type=int, default=50, help="in each state (default: 50)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--markdown", action="store_true", help=f"write them into {PAGE}")
    chosen = parser.parse_args(arguments)
    bits = round(chosen.mbit * 1e6)
    try:
        rows = [
            measure("by ALM, without priority", bits, chosen.alerts, priority=False),
            measure("by ALM, priority topic", bits, chosen.alerts, priority=True),
            measure("by OFM, priority topic", bits, chosen.alerts, priority=True, ofm=True),
        ]
    except LabError as error:
        print(f"lab_priority: {error}", file=sys.stderr)
        return 2
    text = markdown(rows, bits, chosen.alerts)
    print(text)
    if chosen.json is not None:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows)) + b"\n")
    if chosen.markdown:
        update_page(PAGE, "figures", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
