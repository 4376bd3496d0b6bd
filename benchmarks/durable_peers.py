"""Brokers that differ in what becomes of a QoS 1 message they have acknowledged, while it waits for its subscriber."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import BareRelay, Mosquitto, Peer, Saps, Site
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


def _fresh(folder: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=folder))


BASE = "Mosquitto, autosave each 1800 s"
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
            mosquitto("autosave each second", "autosave_interval 1"),
            "`kill -9`, but for up to 1 s",
        ),
        Keeper(
            mosquitto("autosave on each change", "autosave_on_changes true", "autosave_interval 1"),
            "`kill -9`, but for the last changes",
        ),
        Keeper(Saps(), "nothing"),
        Keeper(DurableSaps(folder, "off"), "`kill -9`"),
        Keeper(DurableSaps(folder, "normal"), "`kill -9`"),
        Keeper(DurableSaps(folder, "full"), "loss of power"),
        Keeper(BareRelay(), ""),
    ]
