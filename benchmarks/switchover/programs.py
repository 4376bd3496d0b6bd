"""Processes in the hosts of a lab, their ready lines and answers; what they log goes to files."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from lab.namespace import Namespace

SAPS = str(Path(sys.executable).parent / "saps")
TIMEOUT = 180.0
"""Seconds a process may take for its ready line, an answer or its end."""


class ProgramError(Exception):
    """A process did not start, or does not answer; the message ends with the last line it has logged."""


class Program:
    """A `saps` process in a namespace. It is not ended by itself: call `kill` or `stop`."""

    def __init__(self, space: Namespace, arguments: Sequence[str], log: Path) -> None:
        self.log = log
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        with log.open("ab") as errors:
            self.process: subprocess.Popen[str] = space.popen(
                [SAPS, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ready(self) -> dict[str, str]:
        """Wait for the ready line. Gives its fields. Raises `ProgramError`."""
        line = self._line()
        if not line.startswith("ready "):
            raise self._error(f"said {line!r}")
        return dict(field.split("=", 1) for field in line.split()[1:])

    def ask(self, order: str) -> Any:
        """Give an order on standard input (OFGate). Returns the answer. Raises `ProgramError`."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(order + "\n")
            self.process.stdin.flush()
        except OSError:
            raise self._error("has ended") from None
        return msgspec.json.decode(self._line())

    def kill(self) -> None:
        """`kill -9`."""
        self.process.kill()
        self._over()

    def stop(self) -> int:
        """SIGTERM. Gives the exit status. Raises `ProgramError` if it does not end."""
        self.process.send_signal(signal.SIGTERM)
        return self._over()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def _over(self) -> int:
        try:
            status = self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            raise self._error("does not end") from None
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # what was not flushed has no reader any more
                    continue
        return status

    def _line(self) -> str:
        try:
            line = self._lines.get(timeout=TIMEOUT)
        except queue.Empty:
            raise self._error(f"says nothing for {TIMEOUT:.0f} s") from None
        if line is None:
            raise self._error("has ended")
        return line

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _error(self, what: str) -> ProgramError:
        said = self.log.read_text(errors="replace").strip().splitlines() or ["it has logged nothing"]
        return ProgramError(f"{self.log.stem} {what}: {said[-1]}")
