"""Sites to join: a Mosquitto process, saps broker processes, and clients that remember what they received."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import aiomqtt
import pytest

from benchmarks.processes import free_port
from examples.common.clients import NO_DELAY

TIMEOUT = 60.0
"""Seconds a test waits for what must come."""

SAPS = Path(sys.executable).with_name("saps")

_serial = itertools.count(1)


class Mosquitto:
    """A Mosquitto with persistence, which keeps its port and its store over restarts. An async context manager."""

    def __init__(self, folder: Path, *lines: str) -> None:
        """`lines`: further lines of its configuration."""
        binary = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if binary is None:
            pytest.skip("mosquitto is not installed (Debian package mosquitto)")
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._binary = binary
        self._configuration = folder / "mosquitto.conf"
        common = (
            f"listener {self.port} 127.0.0.1",
            "user root",
            "persistence true",
            f"persistence_location {folder}/",
            "max_queued_messages 0",
            "set_tcp_nodelay true",  # as the brokers do: two small packets need not wait for an acknowledgement
            "log_type none",
        )
        anonymous = () if any(line.startswith("password_file") for line in lines) else ("allow_anonymous true",)
        self._configuration.write_text("\n".join([*common, *anonymous, *lines, ""]))
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Returns when it accepts connections."""
        self._process = await asyncio.create_subprocess_exec(self._binary, "-c", str(self._configuration))
        async with asyncio.timeout(TIMEOUT):
            while True:
                assert self._process.returncode is None, "mosquitto ended"
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.02)  # between two attempts, not instead of a signal
                    continue
                writer.close()
                return

    def signal(self, number: int) -> None:
        """Send the process a signal, such as SIGSTOP."""
        assert self._process is not None
        self._process.send_signal(number)

    async def stop(self) -> None:
        """SIGTERM: it saves its store."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()


class Saps:
    """A `saps broker` process. An async context manager, which kills it; `start` and `stop` restart it at the same
    addresses."""

    def __init__(self, name: str, *arguments: str, join: Saps | None = None, upstream: str | None = None) -> None:
        self.port, self.overlay = free_port(), free_port()
        self.command = [
            *(
                str(Path(sys.executable).with_name("saps")),
                "broker",
                "--name",
                name,
                "--mqtt",
                f"127.0.0.1:{self.port}",
            ),
            *("--overlay", f"127.0.0.1:{self.overlay}", "--set", "upstream.retry_limit=0.5", *arguments),
        ]
        if join is not None:
            self.command += ["--join", f"127.0.0.1:{join.overlay}"]
        if upstream is not None:
            self.command += ["--upstream", upstream]
        self.log: list[str] = []
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._logged = asyncio.Event()
        self._mark = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop(signal.SIGKILL)

    async def start(self) -> None:
        """Returns when it is ready."""
        self._mark = len(self.log)
        self._process = await asyncio.create_subprocess_exec(
            *self.command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        self._reader = asyncio.create_task(self._read(self._process))
        assert self._process.stdout is not None
        async with asyncio.timeout(TIMEOUT):
            line = await self._process.stdout.readline()
        assert line.startswith(b"ready "), self.log

    async def connected(self, times: int = 1) -> None:
        """Wait until it has said, since its start, that it is connected to its upstream."""
        await self.logs(lambda lines: sum("connected to the upstream" in line for line in lines) >= times)

    async def logs(self, condition: Callable[[list[str]], bool]) -> None:
        """Wait until the log lines since its start fulfil the condition."""
        async with asyncio.timeout(TIMEOUT):
            while not condition(self.log[self._mark :]):
                self._logged.clear()
                await self._logged.wait()

    async def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
            try:
                await asyncio.wait_for(self._process.wait(), TIMEOUT)
            except TimeoutError:
                self._process.kill()
                raise
        if self._reader is not None:
            await self._reader

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while line := await process.stderr.readline():
            self.log.append(line.decode())
            self._logged.set()


class Peer:
    """A client of any broker, MQTT 5.0; `received` has everything, in order of arrival. An async context manager."""

    def __init__(self, port: int, **options: Any) -> None:
        self.name = f"peer{next(_serial)}"
        self.received: list[aiomqtt.Message] = []
        self._counts: dict[str, Counter[str]] = {}
        self._client = aiomqtt.Client(
            "127.0.0.1",
            port,
            identifier=self.name,
            protocol=aiomqtt.ProtocolVersion.V5,
            socket_options=NO_DELAY,  # a publication need not wait for an ACK
            **options,
        )
        self._changed = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._reader is not None
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        with suppress(aiomqtt.MqttError):  # its broker went first
            await self._client.__aexit__(None, None, None)

    async def subscribe(self, topic_filter: str, qos: int = 2) -> None:
        """Returns after SUBACK."""
        await self._client.subscribe(topic_filter, qos=qos)

    async def publish(self, topic: str, payload: str, qos: int = 1, retain: bool = False) -> None:
        """Returns, with QoS 1 or 2, when the broker has confirmed."""
        await self._client.publish(topic, payload.encode(), qos=qos, retain=retain, timeout=TIMEOUT)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; it is looked at after each arrival. Raises TimeoutError."""
        async with asyncio.timeout(TIMEOUT):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def has(self, topic: str, *payloads: str) -> None:
        """Wait until all these have come on the topic."""
        wanted = set(payloads)
        await self.until(lambda: wanted <= self.counted(topic).keys())

    def counted(self, topic: str) -> Counter[str]:
        """How often each payload has come on the topic."""
        return self._counts.get(topic, Counter())

    async def _read(self) -> None:
        with suppress(aiomqtt.MqttError):
            async for message in self._client.messages:
                self.received.append(message)
                self._counts.setdefault(message.topic.value, Counter())[
                    bytes(message.payload).decode(errors="replace")
                ] += 1
                self._changed.set()
