"""HTTP requests about clients: few at a time, answers of bounded size, no redirections."""

from __future__ import annotations

import ssl
from typing import NamedTuple

LARGEST = 1 << 20
"""Bytes of an answer that are taken."""


class AnswerError(Exception):
    """There is no answer that can be used."""


class Answer(NamedTuple):
    status: int
    body: bytes


class HttpClient:
    """Connections to services, kept open between requests; made when there is the first."""

    def __init__(self, ca_file: str, timeout: float, connections: int) -> None:
        """`ca_file`: certificates (PEM) to trust; empty: those of the system. `timeout`: seconds for a request as a
        whole."""
        import aiohttp  # here: most brokers ask nobody

        context = ssl.create_default_context(cafile=ca_file or None)
        self._timeout = timeout
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, ssl=context),
            timeout=aiohttp.ClientTimeout(total=timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def ask(self, url: str, body: bytes | None = None, token: str = "") -> Answer:
        """GET, or POST of a JSON body, with `token` as bearer. Raises `AnswerError`."""
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
