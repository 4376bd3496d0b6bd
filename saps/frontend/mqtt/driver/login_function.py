"""Asks the program around an embedded broker about logins, as an HTTP service would be asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from saps.frontend.mqtt.access.logins.service import Answer as Decision
from saps.frontend.mqtt.access.logins.service import Client
from saps.frontend.mqtt.driver.http_client import Answer, AnswerError

logger = logging.getLogger(__name__)

PROGRAM = "the program"
"""In the place of the URL that is asked about logins (`HttpOptions.login`)."""
Authenticate = Callable[[str, str], Awaitable[bool]]
"""Coroutine function (user, password) that returns whether the client may log in."""


class FunctionClient:
    """Has the interface of `HttpClient` towards `Callout`."""

    def __init__(self, authenticate: Authenticate, timeout: float) -> None:
        """`timeout`: limit of a whole answer in seconds."""
        self._authenticate = authenticate
        self._timeout = timeout

    async def ask(self, _url: str, body: bytes | None = None, _token: str = "") -> Answer:
        """Ask about the login in `body`. Raises `AnswerError` if the program fails, or does not answer in time."""
        login = msgspec.json.decode(body or b"", type=Client)
        try:
            async with asyncio.timeout(self._timeout):
                allow = await self._authenticate(login.user or "", login.password or "")
        except TimeoutError:
            raise AnswerError(f"no answer within {self._timeout:g} s") from None
        except Exception as error:  # the program's own, of any kind
            logger.exception("authenticate has failed")
            raise AnswerError(f"{type(error).__name__}: {error}") from None
        return Answer(200, msgspec.json.encode(Decision(allow=allow is True)))

    async def close(self) -> None:
        """Nothing is held."""
