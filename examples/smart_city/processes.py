"""Brokers and other programs as processes: start one, wait until it is ready, watch it, end it in order, leave none."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

START_TIMEOUT = 60.0
"""Seconds a broker may take until its ready line, on a machine that is busy."""

STOP_TIMEOUT = 8.0
"""Seconds a broker may take from SIGTERM to its end, before it is killed."""

KEPT_LINES = 40
"""How many of its last lines on standard error are kept for a report."""

LINE_LIMIT = 1 << 20
"""Longest line a broker may write, in bytes."""

PORTS = range(20_000, 32_000)
"""Where free ports are looked for: below Linux's ephemeral range, so that no client takes one meanwhile."""

_reserved: list[socket.socket] = []
"""Bound to the ports given out."""


class BrokerError(Exception):
    """A broker did not start or ended unasked. The text: one clear line, then its standard error."""


class BrokerProcess:
    """One broker, or another program with a ready line, in its own process and session: Ctrl-C in the terminal reaches
    only whoever started it.

    Use as an async context manager: starts it, waits for its ready line, ends it when left. On Linux it also
    ends when the thread that started it ends.
    """

    def __init__(
        self, name: str, command: Sequence[str], *, environment: Mapping[str, str] | None = None, kind: str = "broker"
    ) -> None:
        """`kind` and `name` together name it in errors."""
        self.name = name
        self.label = f"{kind} {name}".strip()
        self.command = tuple(command)
        self.ready_line = ""
        self.environment = dict(environment if environment is not None else os.environ)
        self.log: Path | None = None
        """Where what it says on standard error is kept, each line behind the seconds of `time.monotonic`."""
        self._process: asyncio.subprocess.Process | None = None
        self._errors: deque[str] = deque(maxlen=KEPT_LINES)
        self._readers: list[asyncio.Task[None]] = []
        self._ready = asyncio.Event()
        self._stopping = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def pid(self) -> int | None:
        """The process id; None before the start."""
        return self._process.pid if self._process is not None else None

    @property
    def running(self) -> bool:
        """It has been started and has not ended."""
        return self._process is not None and self._process.returncode is None

    @property
    def exit_status(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self._process.returncode if self._process is not None else None

    @property
    def errors(self) -> str:
        """Its last lines on standard error."""
        return "\n".join(self._errors)

    async def start(self, seconds: float = START_TIMEOUT) -> None:
        """Start it and wait so many `seconds` for its ready line. BrokerError if not; it is gone then."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                *_dies_with_parent(self.command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self.environment,
                start_new_session=True,
                limit=LINE_LIMIT,
            )
        except OSError as error:
            raise BrokerError(f"{self.label} cannot be started: {error}") from None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = [
            asyncio.create_task(self._read_output(self._process.stdout)),
            asyncio.create_task(self._read_errors(self._process.stderr)),
        ]
        try:
            await self._wait_ready(seconds)
        except BaseException:
            await self.stop(seconds=0)
            raise

    async def ended_unasked(self) -> BrokerError:
        """Returns only when the broker has ended without `stop`: an error that says how."""
        assert self._process is not None
        await self._process.wait()
        await asyncio.gather(*self._readers)
        if self._stopping:
            await asyncio.get_running_loop().create_future()
        return BrokerError(self._report(f"ended during the run, {_ending(self._process.returncode)}"))

    async def stop(self, seconds: float = STOP_TIMEOUT) -> int | None:
        """End it by SIGTERM, after so many `seconds` by SIGKILL. The exit status; None if never started."""
        self._stopping = True
        if self._process is None:
            return None
        try:
            if seconds > 0:
                self.signal(signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._process.wait()
        finally:
            self.signal(signal.SIGKILL)
        status = await self._process.wait()
        await asyncio.gather(*self._readers)
        return status

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.running:
            assert self._process is not None
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _wait_ready(self, seconds: float) -> None:
        assert self._process is not None
        waits = [asyncio.create_task(self._ready.wait()), asyncio.create_task(self._process.wait())]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._ready.is_set():
            return
        if self.running:
            raise BrokerError(self._report(f"was not ready after {seconds:g} s"))
        await asyncio.gather(*self._readers)
        raise BrokerError(self._report(f"did not start, {_ending(self._process.returncode)}"))

    def _report(self, what: str) -> str:
        """One clear line, then the broker's own words, indented."""
        words = self._errors or ["(nothing on standard error)"]
        return "\n    ".join([f"{self.label} {what}; its last output:", *words])

    async def _read_output(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            if line.startswith(b"ready"):
                self.ready_line = line.decode(errors="replace").strip()
                self._ready.set()

    async def _read_errors(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            self._errors.append(line.decode(errors="replace").rstrip())
            self._keep(self._errors[-1])

    def _keep(self, line: str) -> None:
        if self.log is not None:
            with self.log.open("a", encoding="utf-8") as log:
                log.write(f"{time.monotonic():.3f} {line}\n")


async def stop_all(processes: Sequence[BrokerProcess], seconds: float = STOP_TIMEOUT) -> list[str]:
    """End all within so many `seconds`, one after another: a mesh hands over fastest if not everybody leaves at once.

    Gives a line for each that had been ready and did not end with exit status 0.
    """
    deadline = time.monotonic() + seconds
    running = [process for process in processes if process.running]
    begun = [process for process in running if process.ready_line]
    try:
        for process in running:
            await process.stop(max(0.1, deadline - time.monotonic()))
    finally:
        await asyncio.gather(*(process.stop(0) for process in processes))
    return [
        f"{process.label} did not stop in order, {_ending(process.exit_status)}"
        for process in begun
        if process.exit_status != 0
    ]


def saps_program(
    name: str, *arguments: str, kind: str = "", environment: Mapping[str, str] | None = None
) -> BrokerProcess:
    """``saps ARGUMENTS...``, not yet started; SAPS_ variables are kept from it, others may be added."""
    command = [str(Path(sys.executable).with_name("saps")), *arguments]
    own = {key: value for key, value in os.environ.items() if not key.startswith("SAPS_")}
    return BrokerProcess(name, command, environment=own | dict(environment or {}), kind=kind)


def saps_broker(
    name: str,
    cluster: str,
    mqtt: str,
    overlay: str,
    join: Iterable[str] = (),
    settings: Mapping[str, str] | None = None,
) -> BrokerProcess:
    """A `saps broker`, not yet started. Addresses are ``host:port``; `settings` are what else is set."""
    arguments = ["broker", "--name", name, "--cluster", cluster, "--mqtt", mqtt, "--overlay", overlay]
    for address in join:
        arguments += ["--join", address]
    for setting, value in (settings or {}).items():
        arguments += ["--set", f"{setting}={value}"]
    return saps_program(name, *arguments, kind="broker")


def free_ports(count: int, rng: random.Random) -> list[int]:
    """Different TCP ports on loopback that nobody uses. On Linux no other call gives them until this process ends: it
    keeps a socket bound to each, which lets only sockets with SO_REUSEADDR bind, as servers have. RuntimeError if
    there are too few."""
    ports: list[int] = []
    for port in rng.sample(PORTS, len(PORTS)):
        if len(ports) == count:
            return ports
        probe = socket.socket()
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            probe.close()
            continue
        ports.append(port)
        if sys.platform == "linux":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _reserved.append(probe)
        else:
            probe.close()
    raise RuntimeError(f"no {count} free TCP ports on 127.0.0.1")


def _dies_with_parent(command: Sequence[str]) -> list[str]:
    """The command so that Linux ends it even if whoever started it is killed outright."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", *command] if setpriv else list(command)


def _ending(status: int | None) -> str:
    if status is not None and status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit status {status}"
