"""Questions to a broker's Web port, one at a time (`docs/web.md` has the answers)."""

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

PATIENCE = 15.0
"""Seconds until an answer is given up: longer than a broker waits for the others."""
LOCAL = "127.0.0.1:8080"
"""The Web port that is asked unless another one is named; that of the examples."""

T = TypeVar("T")


class AskError(Exception):
    """No answer that can be used; the text says in one line why, and what to do."""


class SilentError(AskError):
    """Nobody answers."""


class Answer(NamedTuple):
    """What came back, whatever its status."""

    status: int
    headers: Message
    body: bytes


class _Problem(msgspec.Struct):
    """Problem details (RFC 9457), as far as they are shown."""

    title: str = ""
    detail: str | None = None
    field: str | None = None


class WebPort:
    """A broker's Web port."""

    def __init__(self, url: str, authorization: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        """`url`: as `url_of` gives it. `authorization`: the header. `tls`: for https, if not the system's."""
        self.url = url
        self._headers = {"Authorization": authorization} if authorization else {}
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]  # a broker is no web site
        if tls is not None:
            handlers.append(urllib.request.HTTPSHandler(context=tls))
        self._opener = urllib.request.build_opener(*handlers)

    def get(self, path: str, kind: type[T], **query: str | int | None) -> T:
        """The answer to a question, in the form wanted; None leaves a parameter out. Raises `AskError`."""
        return self._read(self.ask(_with(path, query)), kind)

    def lines(self, path: str, **query: str | int | None) -> Iterator[bytes]:
        """The lines of an answer that comes bit by bit, never silent for long. Raises `AskError`."""
        request = urllib.request.Request(self.url + _with(path, query), headers=self._headers)
        try:
            with self._opener.open(request, timeout=PATIENCE) as response:
                yield from response
        except urllib.error.HTTPError as error:
            with error:
                raise AskError(f"{self.url}: {_refusal(Answer(error.code, error.headers, error.read()))}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise SilentError(f"no broker answers at {self.url}: {_cause(error)}") from None

    def post(self, path: str, body: object, kind: type[T]) -> T:
        """The answer to an order, sent as JSON. Raises `AskError`."""
        return self._read(self.ask(path, msgspec.json.encode(body)), kind)

    def delete(self, path: str, kind: type[T]) -> T:
        """The answer to an order to take something away. Raises `AskError`."""
        return self._read(self.ask(path, method="DELETE"), kind)

    def _read(self, answer: Answer, kind: type[T]) -> T:
        if answer.status != 200:
            raise AskError(f"{self.url}: {_refusal(answer)}")
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except msgspec.MsgspecError as error:
            raise AskError(f"what answers at {self.url} is no broker of this version: {error}") from None

    def ask(self, path: str, body: bytes | None = None, method: str | None = None) -> Answer:
        """Whatever the broker answers, with a `body` to a POST unless another `method` is named. Raises
        `SilentError` if nobody does."""
        headers = self._headers | ({"Content-Type": "application/json"} if body is not None else {})
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        try:
            with self._opener.open(request, timeout=PATIENCE) as response:
                return Answer(response.status, response.headers, response.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.headers, error.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise SilentError(f"no broker answers at {self.url}: {_cause(error)}") from None


def _with(path: str, query: Mapping[str, str | int | None]) -> str:
    """The path with what is asked; None is left out."""
    asked = urlencode({name.rstrip("_"): value for name, value in query.items() if value is not None})
    return f"{path}?{asked}" if asked else path


def topic_path(topic: str) -> str:
    """A topic as the end of a path."""
    return quote(topic, safe="/")


def url_of(text: str) -> str:
    """The URL of a Web port: from a URL, or from HOST:PORT, of several joined by commas the first, as a broker takes
    them. Raises `AskError`."""
    first = text.partition(",")[0].strip()
    url = first if "://" in first else f"http://{first}"
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not parts.query
    except ValueError:
        good = False
    if not good:
        raise AskError(f"--web: {text!r} is not of the form http://127.0.0.1:8080 or 127.0.0.1:8080")
    return url.rstrip("/")


def basic(user: str, password: str) -> str:
    """The header Authorization for a user of the password file."""
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def _cause(error: Any) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return f"nothing came within {PATIENCE:g} s"
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
