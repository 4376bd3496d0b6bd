"""The brokers that are compared, and how each is set up to do its best without losing a message."""

from __future__ import annotations

import getpass
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from benchmarks import client
from benchmarks.processes import START_TIMEOUT, Place, free_port


class Site(NamedTuple):
    """Where to attach: the same broker twice, or the two ends of a connected pair."""

    publish_port: int
    subscribe_port: int


class Peer(Protocol):
    """One kind of broker."""

    name: str
    settings: str
    """What was set and why, in a sentence."""

    def version(self) -> str | None:
        """The version installed, or None if the broker is missing."""

    def launch(self, place: Place, kind: str) -> Site:
        """One broker in `place`, ready for clients, set up for a measurement of `kind` (see load.Load).
        Raises StartError."""


def executable(name: str) -> str | None:
    """The path of a program, also where Debian puts daemons."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


def _said_by(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    return (done.stdout + done.stderr).strip()


def _listening(place: Place, port: int) -> None:
    place.wait_until(lambda: client.accepts_clients(port))


def _joined(publish_port: int, subscribe_port: int) -> Site:
    client.wait_for_path(publish_port, subscribe_port, time.monotonic() + START_TIMEOUT)
    return Site(publish_port, subscribe_port)


class Mosquitto:
    """Eclipse Mosquitto, from the Debian package."""

    name = "Mosquitto"
    settings = (
        "no persistence, no log; max_queued_messages 0 and max_inflight_messages 0 (no limit), so that it "
        "never drops; set_tcp_nodelay false, its default, which nearly doubles its throughput, except for "
        "latency"
    )

    def version(self) -> str | None:
        program = executable("mosquitto")
        return _said_by([program, "-h"]).split("\n")[0].split()[2] if program else None

    def launch(self, place: Place, kind: str) -> Site:
        port = free_port()
        self._start(place, port, nodelay=kind == "latency")
        return Site(port, port)

    def _start(
        self, place: Place, port: int, *, nodelay: bool, bridge: str = "", persistence: str = "persistence false"
    ) -> None:
        config = place.folder / f"mosquitto-{port}.conf"
        config.write_text(
            f"""\
listener {port} 127.0.0.1
user {getpass.getuser()}
allow_anonymous true
{persistence}
max_queued_messages 0
max_inflight_messages 0
set_tcp_nodelay {str(nodelay).lower()}
log_type none
sys_interval 0
{bridge}"""
        )
        place.start([executable("mosquitto") or "mosquitto", "-c", str(config)])
        _listening(place, port)


class Nats:
    """nats-server with its MQTT listener, from the Debian package."""

    name = "NATS"
    settings = (
        "JetStream, which its MQTT needs, with its store on tmpfs; max_ack_pending 65535, since the default "
        "of 1024 limits QoS 1. It writes QoS 1 messages to JetStream, which the others do not"
    )

    def version(self) -> str | None:
        program = executable("nats-server")
        return _said_by([program, "--version"]).split()[-1].lstrip("v") if program else None

    def launch(self, place: Place, kind: str) -> Site:
        port = free_port()
        config = place.folder / "nats.conf"
        config.write_text(
            f"""\
server_name: bench
host: 127.0.0.1
port: {free_port()}
jetstream {{ store_dir: "{place.folder}/store" }}
mqtt {{ host: 127.0.0.1, port: {port}, max_ack_pending: 65535 }}
"""
        )
        place.start([executable("nats-server") or "nats-server", "-c", str(config)])
        _listening(place, port)
        return Site(port, port)


class Saps:
    """SAPS, from this working tree."""

    name = "SAPS"
    settings = "defaults"

    def __init__(self) -> None:
        self._program = Path(sys.executable).with_name("saps")

    def version(self) -> str | None:
        return _said_by([str(self._program), "--version"]).split()[-1] if self._program.exists() else None

    def launch(self, place: Place, kind: str) -> Site:
        port = free_port()
        self._start(place, "bench", port, free_port(), join=None)
        return Site(port, port)

    def launch_pair(self, place: Place) -> Site:
        near, far, overlay = free_port(), free_port(), free_port()
        self._start(place, "near", near, overlay, join=None)
        self._start(place, "far", far, free_port(), join=overlay)
        return _joined(near, far)

    def launch_mesh(self, place: Place, count: int, settings: Sequence[str] = (), *, stored: bool = False) -> list[int]:
        """So many brokers, all of which take clients, with settings as for ``--set``; `stored`: each with a file.
        Returns their ports. Raises StartError."""
        ports, overlays = [free_port() for _ in range(count)], [free_port() for _ in range(count)]
        for number, (port, overlay) in enumerate(zip(ports, overlays, strict=True)):
            own = [*settings, *([f"storage.file={place.folder / f'{number}.db'}"] if stored else [])]
            self._start(place, f"b{number}", port, overlay, join=overlays[0] if number else None, settings=own)
        return ports

    def _command(self) -> list[str]:
        """What runs the program ``saps``."""
        return [str(self._program)]

    def _start(
        self, place: Place, name: str, mqtt: int, overlay: int, join: int | None, settings: Sequence[str] = ()
    ) -> None:
        argv = [*self._command(), "broker", "--name", name, "--cluster", "bench"]
        argv += ["--mqtt", f"127.0.0.1:{mqtt}", "--overlay", f"127.0.0.1:{overlay}"]
        if join is not None:
            argv += ["--join", f"127.0.0.1:{join}"]
        for setting in settings:
            argv += ["--set", setting]
        log = place.start(argv)
        place.wait_until(lambda: "ready name=" in log.read_text())
        _listening(place, mqtt)


class BareRelay:
    """The relay of `benchmarks.broadcaster`: no broker, but what the generator can carry."""

    name = "bare relay"
    settings = "copies bytes without any MQTT work: not a broker, but a lower bound of what the generator can carry"

    def version(self) -> str | None:
        return "-"

    def launch(self, place: Place, kind: str) -> Site:
        port = free_port()
        place.start([sys.executable, "-m", "benchmarks.relay", str(port)])
        _listening(place, port)
        return Site(port, port)


BASE = Mosquitto.name
"""The peer the others are compared with."""

ALL: tuple[Peer, ...] = (Mosquitto(), Nats(), Saps(), BareRelay())
