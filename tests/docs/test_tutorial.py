"""The tutorial and the README, typed by a test: their commands in one shell, in order, and what they are said to print.

Blocks marked ``sh`` are typed; of a block marked ``text`` each line must appear, as often as it stands there, after the
commands before it, where ``...`` is any text. Ports are others here, as those of the page may be taken.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 120.0
"""Seconds a test waits for what must come."""
LOOK = 0.05
SLOW = {"SAPS_OVERLAY__SUSPECT_AFTER": "60", "SAPS_OVERLAY__JOIN_TIMEOUT": "60"}
"""Brokers that get no processor for seconds are not dead. (One that is killed is: its links break.)"""
_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d{4,5}\b|(?<=-p )\d{4,5}\b")


def blocks(page: str) -> list[tuple[str, str]]:
    """Kind and text of the fenced blocks."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def other_ports(page: str) -> dict[str, str]:
    """Free ports instead of those of the page; neighbours stay neighbours."""
    wanted = sorted({int(port) for port in _PORT.findall(page)})
    for _ in range(1000):
        offset = random.SystemRandom().randrange(10_000, 30_000 - wanted[0])
        moved = {str(port): str(wanted[0] + offset + rank) for rank, port in enumerate(wanted)}
        if all(map(_free, moved.values())):
            return moved
    raise AssertionError("no free ports")


def _free(port: str) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("127.0.0.1", int(port)))
            except OSError:
                return False
    return True


class Terminal:
    """A shell at which somebody types."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "terminal.log"
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SAPS_")}
        path = f"{Path(sys.executable).parent}:{clean['PATH']}"
        with self._log.open("wb") as log:
            self._shell = subprocess.Popen(
                ["bash", "--noprofile", "--norc"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=clean | {"PATH": path, "COLUMNS": "160"} | SLOW,
                start_new_session=True,
            )
        self._typed_at = 0

    def type(self, commands: str) -> None:
        self._typed_at = self._log.stat().st_size
        assert self._shell.stdin is not None
        self._shell.stdin.write(commands.encode())
        self._shell.stdin.flush()

    def expect(self, lines: str) -> None:
        """Wait until all these lines have come since the last commands."""
        wanted = Counter(lines.splitlines())
        give_up = time.monotonic() + TIMEOUT
        while missing := [line for line, times in wanted.items() if self._came(line) < times]:
            if time.monotonic() > give_up or self._shell.poll() is not None:
                raise AssertionError(f"did not come: {missing[0]}\n--- the terminal ---\n{self.text()}")
            time.sleep(LOOK)

    def _came(self, line: str) -> int:
        pattern = ".*".join(map(re.escape, line.split("...")))
        return len(re.findall(f"^{pattern} *$", self.text(self._typed_at), re.MULTILINE))

    def text(self, start: int = 0) -> str:
        """All that has been printed, from a byte on."""
        return self._log.read_bytes()[start:].decode(errors="replace")

    def leave(self) -> int:
        """End the session; returns the shell's exit status."""
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        return self._shell.wait(TIMEOUT)

    def kill(self) -> None:
        """Nothing that was started here goes on."""
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait(TIMEOUT)


pytestmark = [
    pytest.mark.network,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        any(shutil.which(program) is None for program in ("bash", "curl", "mosquitto_pub", "mosquitto_sub")),
        reason="bash, curl or the mosquitto clients are missing",
    ),
]


class Typist:
    """Does what a page says, at a terminal in that folder."""

    def __init__(self, page: str, folder: Path) -> None:
        self.ports = other_ports(page)
        """Those that are taken, by those of the page."""
        self.terminal = Terminal(folder)
        self._blocks = blocks(_PORT.sub(lambda found: self.ports[found[0]], page))

    def do(self) -> None:
        for kind, text in self._blocks:
            (self.terminal.type if kind == "sh" else self.terminal.expect)(text)


def typed(page: str, folder: Path) -> None:
    """Do what a page says, to its end."""
    typist = Typist(page, folder)
    try:
        typist.do()
        assert typist.terminal.leave() == 0, typist.terminal.text()
        assert "Traceback" not in typist.terminal.text()
    finally:
        typist.terminal.kill()


def test_every_command_of_the_first_mesh_does_what_it_says(tmp_path: Path) -> None:
    typed((ROOT / "README.md").read_text(), tmp_path)


def test_every_command_of_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    typed((ROOT / "docs" / "tutorial.md").read_text(), tmp_path)
    for log in ("b2.log", "b3.log"):  # by ALM, by OFM, and by ALM again
        came = [int(line) for line in (tmp_path / log).read_text().splitlines()]
        assert came == sorted(set(came))
        assert len(came) > 20
