"""Sends HTTP requests about clients. Connections and the size of answers are bounded; redirects are not followed."""

from __future__ import annotations

import ssl
from typing import NamedTuple

LARGEST = 1 << 20
"""Largest accepted answer in bytes."""


class AnswerError(Exception):
    """The request got no answer, or one that is too large."""


class Answer(NamedTuple):
    status: int
    body: bytes


class HttpClient:
    """Sends requests to services over persistent connections."""

    def __init__(self, ca_file: str, timeout: float, connections: int) -> None:
        """Make a client; call this in the event loop, and `close` at the end.

        `ca_file`: path of trusted CA certificates (PEM); empty: the system's. `timeout`: limit of a whole request in
        seconds. `connections`: most simultaneous connections.
        """
        import aiohttp  # here: most brokers send no requests

        context = ssl.create_default_context(cafile=ca_file or None)
        self._timeout = timeout
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, ssl=context),
            timeout=aiohttp.ClientTimeout(total=timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def ask(self, url: str, body: bytes | None = None, token: str = "") -> Answer:
        """Send a GET, or a POST with the JSON `body`, and return the answer. `token` is the bearer token, if any.

        Raises `AnswerError` without an answer in time, or if the answer is too large.
        """
        import aiohttp

        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            async with self._session.request(
                "GET" if body is None else "POST", url, data=body, headers=headers, allow_redirects=False
            ) as response:
                found = b""
                async for chunk in response.content.iter_any():
                    found += chunk
                    if len(found) > LARGEST:
                        raise AnswerError(f"an answer of more than {LARGEST} bytes")
                return Answer(response.status, found)
        except TimeoutError:
            raise AnswerError(f"no answer within {self._timeout:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise AnswerError(str(error) or type(error).__name__) from None

    async def close(self) -> None:
        await self._session.close()
