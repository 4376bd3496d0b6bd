"""Keeps the key set of tokens current while the broker runs: watches a file, or asks a URL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from saps.frontend.mqtt.access.logins.tokens import Keys, TokenError, Tokens
from saps.frontend.mqtt.access.logins.urls import is_url
from saps.frontend.mqtt.access.options import JwtOptions
from saps.frontend.mqtt.driver.access_files import Files
from saps.frontend.mqtt.driver.http_client import AnswerError, HttpClient

logger = logging.getLogger(__name__)

LOOK = 1.0
"""Interval between two checks of a file, in seconds."""
AGAIN = 10.0
"""Shortest interval between two requests because of tokens with an unknown key, in seconds."""
RETRY = 5.0
"""Seconds until the next request after one without a valid answer. The old keys stay in force meanwhile."""
TIMEOUT = 10.0
"""Limit of a request in seconds."""

Stamp = tuple[int, int, int] | None


class KeySource:
    """Sets the keys of `Tokens`, from `start` to `close`. (A `saps.frontend.mqtt.access.guard.Keys`.)"""

    def __init__(self, options: JwtOptions, tokens: Tokens, most_waiting: int) -> None:
        """Make a source of keys. `most_waiting`: most clients that wait for newer keys at a time."""
        self._options = options
        self._tokens = tokens
        self._most_waiting = most_waiting
        self._stamp: Stamp = None
        """Stamp of the file at the last check. None makes the first check read the file, which may have changed."""
        self._waiting: list[Callable[[], None]] = []
        self._wanted: asyncio.Event = asyncio.Event()
        self._asked = float("-inf")
        """Time of the last request to the URL, in seconds on the loop's clock."""
        self._task: asyncio.Task[None] | None = None

    def reload(self, files: Files) -> None:
        """Use the keys of the reloaded file, or ask the URL at once."""
        if files.keys is not None and files.keys != self._tokens.keys:
            self._tokens.keys = files.keys
        self._wanted.set()

    def start(self) -> None:
        """Start to watch the file, or to ask the URL. Call this in the event loop."""
        work = self._watch_url() if is_url(self._options.keys) else self._watch_file()
        self._task = asyncio.get_running_loop().create_task(work)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def newer(self, done: Callable[[], None]) -> bool:
        """Fetch newer keys, then call `done` (`saps.frontend.mqtt.access.guard.Keys`)."""
        loop = asyncio.get_running_loop()
        if not is_url(self._options.keys):
            if not self._look():
                return False
            loop.call_soon(done)
            return True
        if len(self._waiting) >= self._most_waiting or (not self._waiting and loop.time() < self._asked + AGAIN):
            return False
        self._waiting.append(done)
        self._wanted.set()
        return True

    # ---- a file

    async def _watch_file(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            self._look()

    def _look(self) -> bool:
        """Read the file if it has changed. Returns whether it had changed to a valid key set, now in force."""
        found = stamp(self._options.keys)
        if found == self._stamp:
            return False
        self._stamp = found
        try:
            text = Path(self._options.keys).read_bytes()
        except OSError as error:
            logger.error("auth.jwt.keys: cannot read %s: %s; the old keys stay", self._options.keys, error.strerror)
            return False
        return self._take(text)

    # ---- a URL

    async def _watch_url(self) -> None:
        loop, options = asyncio.get_running_loop(), self._options
        client = HttpClient(options.ca_file, TIMEOUT, 1)
        try:
            while True:
                self._wanted.clear()
                self._asked = loop.time()
                good = await self._ask(client)
                waiting, self._waiting = self._waiting, []
                for done in waiting:
                    done()
                with suppress(TimeoutError):
                    await asyncio.wait_for(
                        self._wanted.wait(), options.refresh if good else min(RETRY, options.refresh)
                    )
        finally:
            await client.close()

    async def _ask(self, client: HttpClient) -> bool:
        try:
            answer = await client.ask(self._options.keys)
        except AnswerError as error:
            logger.warning("auth.jwt.keys: %s: %s", self._options.keys, error)
            return False
        if answer.status != 200:
            logger.warning("auth.jwt.keys: %s answers %d", self._options.keys, answer.status)
            return False
        return self._take(answer.body)

    def _take(self, text: bytes) -> bool:
        try:
            keys = Keys(text)
        except TokenError as error:
            logger.error("auth.jwt.keys: %s %s; the old keys stay", self._options.keys, error)
            return False
        if self._tokens.keys is None or keys != self._tokens.keys:
            self._tokens.keys = keys
            logger.info("auth.jwt.keys: %d keys from %s", len(keys), self._options.keys)
        return True


def stamp(path: str) -> Stamp:
    """Return a value that changes with the file: modification time, size and inode. None without a file."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
