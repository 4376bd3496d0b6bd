"""Sends requests to a broker's Web port, one at a time (`docs/web.md` describes the answers)."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping
from email.message import Message
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

TIMEOUT = 15.0
"""Timeout of a request in seconds, longer than a broker waits for the other brokers."""
LOCAL = "127.0.0.1:8080"
"""Default Web port, the one of the examples."""

T = TypeVar("T")


class AskError(Exception):
    """There is no usable answer; the text says in one line why, and what to do."""


class SilentError(AskError):
    """Nobody answers at the Web port."""


class Answer(NamedTuple):
    """A response with any status."""

    status: int
    headers: Message
    body: bytes


class _Problem(msgspec.Struct):
    """The members of problem details (RFC 9457) that are shown."""

    title: str = ""
    detail: str | None = None
    field: str | None = None


class WebPort:
    """Sends requests to the Web port of one broker."""

    def __init__(self, url: str, authorization: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        """`url` is a result of `url_of`, and `authorization` the value of that header.

        `tls` is the context for https; None: the system's."""
        self.url = url
        self._headers = {"Authorization": authorization} if authorization else {}
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]  # never by a proxy
        if tls is not None:
            handlers.append(urllib.request.HTTPSHandler(context=tls))
        self._opener = urllib.request.build_opener(*handlers)

    def get(self, path: str, kind: type[T], **query: str | int | None) -> T:
        """Send a GET and return the answer, decoded as `kind`. A parameter of None is left out. Raises `AskError`."""
        return self._read(self.ask(_with(path, query)), kind)

    def lines(self, path: str, **query: str | int | None) -> Iterator[bytes]:
        """Send a GET and yield the lines of the answer as they come. Raises `AskError`.

        A silence of `TIMEOUT` seconds ends it with `SilentError`."""
        request = urllib.request.Request(self.url + _with(path, query), headers=self._headers)
        try:
            with self._opener.open(request, timeout=TIMEOUT) as response:
                yield from response
        except urllib.error.HTTPError as error:
            with error:
                raise AskError(f"{self.url}: {_refusal(Answer(error.code, error.headers, error.read()))}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise SilentError(f"no broker answers at {self.url}: {_cause(error)}") from None

    def post(self, path: str, body: object, kind: type[T]) -> T:
        """Send a POST with `body` as JSON and return the answer, decoded as `kind`. Raises `AskError`."""
        return self._read(self.ask(path, msgspec.json.encode(body)), kind)

    def delete(self, path: str, kind: type[T]) -> T:
        """Send a DELETE and return the answer, decoded as `kind`. Raises `AskError`."""
        return self._read(self.ask(path, method="DELETE"), kind)

    def _read(self, answer: Answer, kind: type[T]) -> T:
        if answer.status != 200:
            raise AskError(f"{self.url}: {_refusal(answer)}")
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except msgspec.MsgspecError as error:
            raise AskError(f"what answers at {self.url} is no broker of this version: {error}") from None

    def ask(self, path: str, body: bytes | None = None, method: str | None = None) -> Answer:
        """Send a request and return the answer with any status. Raises `SilentError` if nobody answers.

        The method is POST with a `body` and GET without, unless `method` names another."""
        headers = self._headers | ({"Content-Type": "application/json"} if body is not None else {})
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        try:
            with self._opener.open(request, timeout=TIMEOUT) as response:
                return Answer(response.status, response.headers, response.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.headers, error.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise SilentError(f"no broker answers at {self.url}: {_cause(error)}") from None


def _with(path: str, query: Mapping[str, str | int | None]) -> str:
    """Return the path with a query. Parameters of None are left out; a trailing underscore of a name is removed."""
    asked = urlencode({name.rstrip("_"): value for name, value in query.items() if value is not None})
    return f"{path}?{asked}" if asked else path


def topic_path(topic: str) -> str:
    """Return a topic quoted for the end of a path; slashes stay."""
    return quote(topic, safe="/")


def url_of(text: str) -> str:
    """Return the URL of a Web port from a URL or ``HOST:PORT``. Raises `AskError` for any other text.

    Of several joined by commas, as a broker's setting may have them, the first counts."""
    first = text.partition(",")[0].strip()
    url = first if "://" in first else f"http://{first}"
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not parts.query
        good = good and ("://" in first or parts.port is not None)
    except ValueError:
        good = False
    if not good:
        raise AskError(f"--web: {text!r} is not of the form http://127.0.0.1:8080 or 127.0.0.1:8080")
    return url.rstrip("/")


def basic(user: str, password: str) -> str:
    """Return the value of the header Authorization for a user of the password file (Basic, RFC 7617)."""
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def _cause(error: Any) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return f"nothing came within {TIMEOUT:g} s"
    return str(getattr(reason, "strerror", None) or reason or type(reason).__name__)


def _refusal(answer: Answer) -> str:
    try:
        problem = msgspec.json.decode(answer.body, type=_Problem)
    except msgspec.MsgspecError:
        problem = _Problem()
    title = problem.title or http.client.responses.get(answer.status, "")
    detail = f": {problem.detail}" if problem.detail else ""
    if answer.status == 401:
        return f"401 {title}{detail} (give --user or --token-file)"
    return f"{answer.status} {title}{f' ({problem.field})' if problem.field else ''}{detail}"
