"""The bans of a running broker: spreads them over the mesh, compares them with neighbours, stores and enforces them."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from saps.agents.api import Answers
from saps.config import SettingError
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.frontend import Frontend
from saps.operations.audit import Audit
from saps.operations.bans import BANS, Ban, BanList, Bans, BansAgent
from saps.operations.bans_io import BanFileError, read_bans, write_bans

logger = logging.getLogger(__name__)

COMPARE = 10.0
"""Seconds between two comparisons with a neighbour. A broker that has missed a change learns of it after some."""


class Others(Protocol):
    """The other brokers."""

    def call(self, name: str, method: str, args: tuple[Any, ...], done: Callable[[Answers], None]) -> None:
        """Call a method of an agent; `done` gets the answers. Do nothing if this broker is not in the mesh."""

    def linked(self) -> list[str]:
        """Return the names of the brokers that this broker has overlay links to."""


class LiveBans:
    """The bans of one broker, in force once its MQTT server has started. Call `begin` after the mesh is joined."""

    def __init__(self, name: str, frontend: Frontend, others: Others, path: Path | None, audit: Audit) -> None:
        """`name` is this broker's name. `path` is the file of the bans, or None to keep them in memory only.

        Raises `SettingError` if the file cannot be read."""
        self._name = name
        self._frontend = frontend
        self._others = others
        self._path = path
        self._audit = audit
        self.table = Bans(time.time)
        self.agent = BansAgent(name, self.table, self._took)
        self._writing: asyncio.Task[None] | None = None
        self._unwritten = False
        self._file = threading.Lock()
        """Held while the file is written: by a thread, or as the broker stops."""
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._turn = 0
        for ban in self._read():
            self.table.put(ban)
        frontend.orders.bouncer = self

    def _read(self) -> list[Ban]:
        try:
            return read_bans(self._path) if self._path is not None else []
        except BanFileError as error:
            raise SettingError("operations.bans", str(error)) from None

    def banned(self, client: str, user: str | None, address: str) -> str | None:
        """Return why a client is banned, or None if it is not (`saps.frontend.mqtt.orders.Bouncer`)."""
        ban = self.table.banned(client, user, address)
        return None if ban is None else ban.words()

    # ---- changes

    def order(self, ban: Ban, done: Callable[[Answers], None]) -> None:
        """Send a new or lifted ban to all brokers; `done` gets their answers."""
        self._others.call(f"!{BANS}", "put", ([msgspec.to_builtins(ban)],), done)

    def _took(self, bans: list[Ban]) -> int:
        """Enforce changed bans, and write them to the file. Return the number of clients disconnected."""
        for ban in bans:
            if ban.broker != self._name:
                self._audit.record(
                    "ban lifted elsewhere" if ban.lifted else "ban from elsewhere",
                    who=ban.by or None,
                    source=ban.broker,
                    subject=f"{ban.kind} {ban.name}",
                    after=None if ban.lifted else ban.terms(),
                    change=ban.at,
                )
        if self._path is not None:
            self._unwritten = True
            if self._writing is None or self._writing.done():
                self._writing = asyncio.get_running_loop().create_task(self._write())
        return self._expel() if any(not ban.lifted for ban in bans) else 0

    def _expel(self) -> int:
        """Disconnect the clients that are banned now. Return their number."""
        found = 0
        for connection in list(self._frontend.connections):
            session = connection.session
            if session is None or connection.closing:
                continue
            if (why := self.banned(session.client_id, session.user, connection.address)) is not None:
                connection.close(Reason.ADMINISTRATIVE_ACTION, why)
                found += 1
        return found

    async def _write(self) -> None:
        while self._unwritten:
            self._unwritten = False
            await asyncio.to_thread(self._replace, BanList(at=time.time(), bans=self.table.all()))

    def _replace(self, found: BanList, last: bool = False) -> None:
        """Write the file, unless the `last` list has been written."""
        with self._file:
            if self._path is None or self._closed:
                return
            self._closed = last
            try:
                write_bans(self._path, found)
            except OSError as error:
                logger.error("operations.bans: cannot write %s: %s", self._path, error.strerror)

    # ---- comparisons

    def begin(self) -> None:
        """Compare the bans with a neighbour now, and then every `COMPARE` seconds."""
        self._compare()

    def _compare(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(COMPARE, self._compare)
        others = [name for name in self._others.linked() if name != self._name]
        if not others:
            return
        self._turn += 1
        other = others[self._turn % len(others)]
        self.table.forget()
        self._others.call(f"{other}!{BANS}", "compare", (self.table.digest,), partial(self._compared, other))

    def _compared(self, other: str, answers: Answers) -> None:
        """Handle a neighbour's bans, which come only if they differ: take newer ones, and send it those it lacks."""
        for answer in answers:
            if answer.error is not None or answer.value is None:
                continue  # the same bans, or a broker of an older version
            try:
                theirs = msgspec.convert(answer.value, list[Ban])
                self.agent.take(theirs)
            except ValueError as error:
                logger.warning("bans of %s are not taken: %s", other, error)
                continue
            if lacking := self.agent.newer(theirs):
                self._others.call(f"{other}!{BANS}", "put", (msgspec.to_builtins(lacking),), lambda answers: None)

    def close(self) -> None:
        """Stop the comparisons, and write unwritten bans."""
        if self._timer is not None:
            self._timer.cancel()
        if self._unwritten or (self._writing is not None and not self._writing.done()):
            self._replace(BanList(at=time.time(), bans=self.table.all()), last=True)
