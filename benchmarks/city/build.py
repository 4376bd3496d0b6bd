"""The C programs of this package, compiled when they are first needed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parent / ".peers"
"""What is compiled and installed for these measurements; git ignores it."""


class BuildError(Exception):
    """A program cannot be compiled; the message says why."""


def program(name: str) -> Path:
    """The program of ``NAME.c``, compiled anew if a source has changed. Raises BuildError."""
    sources = [HERE / "mqtt.h", HERE / f"{name}.c"]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    target = CACHE / f"{name}-{digest}"
    if target.exists():
        return target
    compiler = shutil.which("cc")
    if compiler is None:
        raise BuildError("there is no C compiler (cc)")
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        made = Path(folder) / name
        done = subprocess.run(
            [compiler, "-O2", "-Wall", "-Wextra", "-o", str(made), str(sources[1])],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BuildError(done.stderr.strip() or f"cc ended with status {done.returncode}")
        for old in CACHE.glob(f"{name}-" + "[0-9a-f]" * 16):
            old.unlink(missing_ok=True)
        os.replace(made, target)
    return target
