"""The HTTP service that knows users and rights, asked: a bounded number of questions at a time."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from saps.frontend.mqtt.access.logins.service import Answer, Service, read_answer
from saps.frontend.mqtt.access.options import HttpOptions
from saps.frontend.mqtt.driver.access_files import Files
from saps.frontend.mqtt.driver.hashing import ONE_HOST
from saps.frontend.mqtt.driver.http_client import AnswerError, HttpClient
from saps.local.token_bucket import TokenBucket

logger = logging.getLogger(__name__)

CONNECTIONS = 32
"""To the service, at the same time."""
LINES, LINES_AT_ONCE = 0.2, 5.0
"""Log lines a second about a service that does not answer, and at once after a pause."""


class Callout:
    """From `start` to `close`."""

    def __init__(self, options: HttpOptions, service: Service) -> None:
        self._options = options
        self._service = service
        self._token = ""
        """What the broker shows the service; empty: nothing."""
        self._client: HttpClient | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: Counter[str] = Counter()
        """Questions under way, by the client's address."""
        self._lines = TokenBucket(LINES, LINES_AT_ONCE)

    def reload(self, files: Files) -> None:
        """Take a new token, and ask anew."""
        self._token = files.service_token
        self._service.forget()

    def start(self) -> None:
        """To be called in the loop."""
        self._client = HttpClient(self._options.ca_file, self._options.timeout, CONNECTIONS)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    def ask(self, url: str, body: bytes, host: str, done: Callable[[Answer | None], None]) -> bool:
        """See `saps.frontend.mqtt.access.logins.service.Ask`."""
        most = self._options.waiting
        if self._client is None or len(self._tasks) >= most or self._waiting[host] >= max(1, most // ONE_HOST):
            return False
        self._waiting[host] += 1
        task = asyncio.get_running_loop().create_task(self._ask(self._client, url, body, host, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _ask(
        self, client: HttpClient, url: str, body: bytes, host: str, done: Callable[[Answer | None], None]
    ) -> None:
        found = None
        try:
            found = read_answer(*await client.ask(url, body, self._token))
        except (AnswerError, ValueError) as error:
            if self._lines.take(asyncio.get_running_loop().time()):
                logger.warning("auth.http: no answer of %s that can be used, clients are refused: %s", url, error)
        finally:
            self._waiting[host] -= 1
            if not self._waiting[host]:
                del self._waiting[host]
        done(found)
