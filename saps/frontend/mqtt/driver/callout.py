"""Sends requests to the HTTP service for users and rights, a bounded number at a time."""

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
from saps.frontend.mqtt.driver.login_function import Authenticate, FunctionClient
from saps.routing.token_bucket import TokenBucket

logger = logging.getLogger(__name__)

CONNECTIONS = 32
"""Most simultaneous connections to the service."""
LINES, LINES_AT_ONCE = 0.2, 5.0
"""Rate (lines a second) and size of the token bucket for log lines about a service that does not answer."""


class Callout:
    """Sends the requests of a `Service` from `start` to `close`."""

    def __init__(self, options: HttpOptions, service: Service, program: Authenticate | None = None) -> None:
        """`program`: the function of the program around the broker that answers in the service's place."""
        self._options = options
        self._service = service
        self._program = program
        self._token = ""
        """Bearer token for the service; empty: none."""
        self._client: HttpClient | FunctionClient | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: Counter[str] = Counter()
        """By client address: the number of requests under way."""
        self._lines = TokenBucket(LINES, LINES_AT_ONCE)

    def reload(self, files: Files) -> None:
        """Use a new bearer token, and clear the cached answers."""
        self._token = files.service_token
        self._service.forget()

    def start(self) -> None:
        """Allow requests. Call this in the event loop."""
        if self._program is not None:
            self._client = FunctionClient(self._program, self._options.timeout)
        else:
            self._client = HttpClient(self._options.ca_file, self._options.timeout, CONNECTIONS)

    async def close(self) -> None:
        """Cancel the requests under way, and close the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    def ask(self, url: str, body: bytes, host: str, done: Callable[[Answer | None], None]) -> bool:
        """Send a request to the service (`saps.frontend.mqtt.access.logins.service.Ask`)."""
        most = self._options.waiting
        if self._client is None or len(self._tasks) >= most or self._waiting[host] >= max(1, most // ONE_HOST):
            return False
        self._waiting[host] += 1
        task = asyncio.get_running_loop().create_task(self._ask(self._client, url, body, host, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _ask(
        self,
        client: HttpClient | FunctionClient,
        url: str,
        body: bytes,
        host: str,
        done: Callable[[Answer | None], None],
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
