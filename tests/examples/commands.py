"""Examples as a user runs them: one command, its result from the JSON."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import msgspec

from examples.common.program import Result

ROOT = Path(__file__).parents[2]
TIMEOUT = 240.0
"""Seconds that a short run may take on a machine that is busy."""

R = TypeVar("R", bound=Result)


def command(name: str, *arguments: str) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", f"examples.{name}", "--plain", *arguments]


def run_example(name: str, kind: type[R], folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], R]:
    """Run it to its end; what it printed, and its result. A picture is drawn, too, as ``picture.svg`` in the folder."""
    file = folder / "result.json"
    argv = command(name, "--json", str(file), "--picture", str(folder / "picture.svg"), *arguments)
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert file.exists(), done.stdout + done.stderr
    return done, msgspec.json.decode(file.read_bytes(), type=kind)
