"""Installs what a `package-lock.json` names beside that file, without npm, whose Debian package needs 300 others.

    python3 scripts/setup_js.py FOLDER

Each package is fetched from npm's registry, checked against the lock's SHA-512, and unpacked at the lock's path. No
install scripts are run. Exit status 3: it could not be fetched, and nothing has changed.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
import tarfile
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.request import urlopen

REGISTRY = "https://registry.npmjs.org"
INSIDE = "node_modules/"
TIMEOUT = 60.0
"""Seconds."""


class Locked(NamedTuple):
    """One package of the lock."""

    path: str
    version: str
    sha512: bytes

    @property
    def url(self) -> str:
        """Where the registry has it; of a scoped name, `@types/node`, the file's name is the latter part."""
        name = self.path.rpartition(INSIDE)[2]
        return f"{REGISTRY}/{name}/-/{name.rpartition('/')[2]}-{self.version}.tgz"


def locked(text: str) -> list[Locked]:
    """The packages of a lock file, version 3; a nested one has a path inside another's."""
    return [
        Locked(path, each["version"], b64decode(each["integrity"].removeprefix("sha512-")))
        for path, each in json.loads(text)["packages"].items()
        if path
    ]


def fetch(package: Locked) -> bytes:
    """Raises OSError if it cannot be had, or is another than the lock's."""
    with urlopen(package.url, timeout=TIMEOUT) as response:
        archive: bytes = response.read()
    if hashlib.sha512(archive).digest() != package.sha512:
        raise OSError(f"{package.url} is not what package-lock.json says")
    return archive


def files(archive: bytes) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Its regular files; the first part of each name, mostly `package`, is not the file's."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            path = PurePosixPath(*PurePosixPath(member.name).parts[1:])
            if (content := tar.extractfile(member) if member.isfile() else None) is not None:
                if ".." in path.parts:
                    raise OSError(f"{member.name} leads out of its package")
                yield path, content.read()


def install(folder: Path) -> None:
    """Raises OSError; `node_modules` is there whole, or as it was."""
    packages = locked((folder / "package-lock.json").read_text())
    with tempfile.TemporaryDirectory(dir=folder) as temporary, ThreadPoolExecutor(8) as pool:
        for package, archive in zip(packages, pool.map(fetch, packages), strict=True):
            for path, content in files(archive):
                target = Path(temporary, package.path, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        shutil.rmtree(folder / INSIDE, ignore_errors=True)
        Path(temporary, INSIDE).rename(folder / INSIDE)


if __name__ == "__main__":
    try:
        install(Path(sys.argv[1]))
    except OSError as error:
        print(f"setup: MQTT.js could not be fetched, its tests are skipped: {error}", file=sys.stderr)
        sys.exit(3)
