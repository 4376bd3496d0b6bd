"""A broker of several processes (``--workers N``): one supervisor, and workers that share the listening addresses.

Each worker is a broker of its own, NAME.1, NAME.2, ..., and all are of one cluster; the kernel deals new connections
out among them (SO_REUSEPORT). The supervisor carries no message. It starts the workers, starts those again that died,
hands SIGHUP on to them, and ends them.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from saps import process
from saps.config import Address, BrokerSettings, SettingError
from saps.drain.signals import DRAINING
from saps.drain.values import Order
from saps.logs import configure_logging
from saps.service_manager import announce, announce_status

logger = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a worker that died is started again: doubled each time, unless it lived longer than the longest."""
ENDING = 15.0
"""Seconds a worker may take to end, beside what its settings allow for leaving, before it is killed."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """A worker's first words: it serves clients."""

    overlay: str
    """Where other brokers reach it."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """A worker's last words: a setting cannot be used."""

    setting: str
    message: str


class Asked(msgspec.Struct, frozen=True, tag=True):
    """Somebody has told a worker what all of them are to do."""

    order: Order


class WorkerError(Exception):
    """A worker ended before it was ready; the message says how."""


class Pauses:
    """How long to wait before a worker that died is started again."""

    def __init__(self) -> None:
        self._next = FIRST_PAUSE

    def after(self, lived: float) -> float:
        """Seconds to wait after a life of `lived` seconds."""
        pause = self._next = FIRST_PAUSE if lived > LONGEST_PAUSE else self._next
        self._next = min(2 * pause, LONGEST_PAUSE)
        return pause


class Reserved(NamedTuple):
    """An address kept for the workers while the supervisor lives, also between two of their lives."""

    address: Address
    """With the port that was chosen, if the system was to choose one."""
    sockets: list[socket.socket]
    """Bound, but not listening: they get no connection."""


def reserve(address: Address) -> Reserved:
    """Keep an address for processes that share it. Raises `OSError` if another program, or another broker, has it.

    The second would be let in silently, as all who share are; so the first look is as one who does not.
    """
    held: list[socket.socket] = []
    host, port = address
    try:
        for family, kind, _, _, at in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE):
            where = (at[0], port or at[1], *at[2:])
            with _bound(family, kind, where, shared=False) as alone:
                where = alone.getsockname()
            held.append(_bound(family, kind, where, shared=True))
            port = where[1]
    except OSError:
        for sock in held:
            sock.close()
        raise
    return Reserved(Address(*held[0].getsockname()[:2]), held)


def _bound(family: int, kind: int, where: tuple[object, ...], *, shared: bool) -> socket.socket:
    sock = socket.socket(family, kind)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(where)
    except OSError:
        sock.close()
        raise
    return sock


def settings_of(settings: BrokerSettings, number: int) -> BrokerSettings:
    """The settings of one worker, numbered from 1. Only the first has the overlay address, and the upstream."""
    replace = msgspec.structs.replace
    own = replace(settings, name=f"{settings.name}.{number}")
    if settings.storage.file:
        file = Path(settings.storage.file)
        own = replace(own, storage=replace(settings.storage, file=str(file.with_stem(f"{file.stem}.{number}"))))
    if number == 1:
        return own
    overlay = replace(settings.overlay, listen=Address(settings.overlay.listen.host, 0))
    return replace(own, overlay=overlay, upstream=replace(settings.upstream, url=""))


class Worker:
    """One worker's process, and those that come after it."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.overlay: Address | None = None
        """Where other brokers reach it; None while it is not ready."""
        self._process: asyncio.subprocess.Process | None = None
        self._since = 0.0
        self._listening: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._since

    async def launch(self) -> None:
        """Start the process. It does nothing before `start`, but gets ready to: the dearest part."""
        self._since = time.monotonic()
        # A session of its own: Ctrl-C reaches only the supervisor, and each worker is told once.
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "saps.worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    async def start(self, join: Sequence[Address]) -> None:
        """Have it serve clients; returns when it does. Raises `SettingError`, `WorkerError`; it has ended then."""
        assert self._process is not None
        orders, report = self._process.stdin, self._process.stdout
        assert orders is not None
        assert report is not None
        orders.write(msgspec.json.encode(msgspec.structs.replace(self.settings, join=tuple(join))) + b"\n")
        line = await report.readline()
        if not line:
            raise WorkerError(f"worker {self.name} ended before it was ready: {_described(await self._process.wait())}")
        said = msgspec.json.decode(line, type=Ready | Refused)
        if isinstance(said, Refused):
            await self._process.wait()
            raise SettingError(said.setting, said.message)
        self.overlay = Address.parse(said.overlay)

    def order(self, order: Order) -> None:
        """Have it drained, or serve again, if it is ready."""
        if self._process is not None and self._process.stdin is not None and self.overlay is not None:
            self._process.stdin.write(msgspec.json.encode(order) + b"\n")

    def listen(self, asked: Callable[[Order], None]) -> None:
        """From now on `asked` is told what it hands up."""
        self._listening = asyncio.create_task(self._listen(asked))

    async def _listen(self, asked: Callable[[Order], None]) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            asked(msgspec.json.decode(line, type=Asked).order)

    async def ended(self) -> int:
        """Its exit status, once it has one; negative for a signal."""
        assert self._process is not None
        status = await self._process.wait()
        self.overlay = None
        return status

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self._process is not None and self.running:
            self._process.send_signal(number)

    async def stop(self, patience: float) -> bool:
        """End it in order, and kill it after `patience` seconds. False if it did not end in order."""
        if not self.running:
            return True
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(patience):
                return await self.ended() in (0, -signal.SIGTERM)  # the second: it had hardly been started
        except TimeoutError:
            logger.error("worker %s does not end; it is killed", self.name)
            self.signal(signal.SIGKILL)
            await self.ended()
            return False


class Supervisor:
    """All workers of one broker, their addresses, and who keeps them alive."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._given = settings
        self._reserved: list[socket.socket] = []
        self._workers: list[Worker] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._founding = asyncio.Lock()
        self._drain: Order | None = None
        """All workers are to leave."""
        self._left: set[str] = set()
        """Those that have."""
        self._serving = asyncio.Event()
        self._serving.set()
        self.drained = asyncio.Event()
        """All workers have left, as they were told."""

    async def start(self) -> None:
        """Reserve the addresses and start all workers. Raises `SettingError`, `WorkerError`."""
        self._given = self._with_addresses(self._given)
        self._workers = [Worker(settings_of(self._given, 1 + n)) for n in range(self._given.workers)]
        first, *others = self._workers
        await asyncio.gather(*(worker.launch() for worker in self._workers))
        await self._start(first)
        await asyncio.gather(*map(self._start, others))
        self._keepers = [asyncio.create_task(self._keep(worker)) for worker in self._workers]

    def ready_line(self) -> str:
        """As of a single broker, with the first worker's overlay address, and how many there are."""
        settings = self._given
        return (
            f"ready name={settings.name} cluster={settings.cluster} mqtt={settings.mqtt} "
            f"overlay={self._workers[0].overlay}"
            + "".join(f" mqtts={address}" for address in settings.tls.listen)
            + "".join(f" web={address}" for address in settings.web.listen)
            + f" workers={settings.workers}"
        )

    def reload(self) -> None:
        """Have each worker read its access files again. One that is just starting reads them anyway."""
        for worker in self._workers:
            if worker.overlay is not None:
                worker.signal(signal.SIGHUP)

    def order(self, order: Order) -> None:
        """Drain all workers, or have them serve again: those that have left are started anew."""
        self._drain = None if order.cancel else order
        if order.cancel:
            self._serving.set()
        else:
            self._serving.clear()
        announce_status("serving" if order.cancel else "draining")
        for worker in self._workers:
            worker.order(order)

    async def stop(self) -> bool:
        """End all workers, each as it is. False if one did not end in order."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        patience = self._given.overlay.leave_timeout + self._given.limits.linger + ENDING
        orderly = await asyncio.gather(*(worker.stop(patience) for worker in self._workers))
        for sock in self._reserved:
            sock.close()
        return all(orderly)

    def _with_addresses(self, settings: BrokerSettings) -> BrokerSettings:
        replace = msgspec.structs.replace
        tls = replace(settings.tls, listen=tuple(self._reserve("tls.listen", at) for at in settings.tls.listen))
        web = replace(settings.web, listen=tuple(self._reserve("web.listen", at) for at in settings.web.listen))
        return replace(settings, mqtt=self._reserve("mqtt", settings.mqtt), tls=tls, web=web)

    def _reserve(self, setting: str, address: Address) -> Address:
        try:
            reserved = reserve(address)
        except OSError as error:
            raise SettingError(setting, process.refused(address, error)) from None
        self._reserved += reserved.sockets
        return Address(address.host, reserved.address.port)

    async def _start(self, worker: Worker) -> None:
        """Have a worker serve, and join those that are there, or else those that all were told to join."""
        async with self._founding:  # whoever has nobody to join begins the mesh, and the next one joins it
            contacts = self._contacts(worker)
            if not contacts:
                await worker.start(())
        if contacts:
            await worker.start(contacts)
        worker.listen(self.order)
        if self._drain is not None:
            worker.order(self._drain)

    def _contacts(self, worker: Worker) -> list[Address]:
        there = [other.overlay for other in self._workers if other is not worker and other.overlay is not None]
        return [*there, *self._given.join]

    async def _keep(self, worker: Worker) -> None:
        """Start it again whenever it has died, until cancelled."""
        pauses = Pauses()
        while True:
            status = await worker.ended()
            if self._drain is not None and not status:
                await self._until_wanted(worker)
            else:
                pause = pauses.after(worker.age)
                logger.error("worker %s ended: %s; started again in %g s", worker.name, _described(status), pause)
                await asyncio.sleep(pause)
            try:
                await worker.launch()
                await self._start(worker)
            except (SettingError, WorkerError) as error:
                logger.error("worker %s cannot be started: %s", worker.name, error)
            else:
                logger.warning("worker %s is back", worker.name)

    async def _until_wanted(self, worker: Worker) -> None:
        """A worker has left as it was told: returns if it is to come back."""
        logger.info("worker %s has left", worker.name)
        self._left.add(worker.name)
        if len(self._left) == len(self._workers):
            self.drained.set()
        await self._serving.wait()
        self._left.discard(worker.name)


def _described(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"


def run(settings: BrokerSettings) -> int:
    """Run a broker of several workers until SIGTERM or SIGINT. Returns the exit status: 1 if a worker did not start, or
    did not end in order. Raises `SettingError` if it cannot start."""
    configure_logging(settings.log_level)
    return process.run(lambda stop: _supervise(settings, stop))


async def _either(*events: asyncio.Event) -> None:
    """Returns when one of them is set."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for each in waiting:
        each.cancel()


async def _supervise(settings: BrokerSettings, stop: asyncio.Event) -> int:
    supervisor = Supervisor(settings)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, supervisor.reload)
    for number, order in DRAINING.items():
        loop.add_signal_handler(number, supervisor.order, order)
    try:
        if await process.started(supervisor.start(), stop):
            announce(supervisor.ready_line(), stop)
            await _either(stop, supervisor.drained)
            stop.set()
            logger.info("%s leaves", settings.name)
    except WorkerError as error:
        logger.error("%s", error)
        await supervisor.stop()
        return 1
    except SettingError:
        await supervisor.stop()
        raise
    return int(not await supervisor.stop())
