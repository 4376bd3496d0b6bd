"""Reads the parameters of a query: admits only known ones, checks each, and names the fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import web

from saps.frontend.web.http.problems import ProblemError
from saps.topics import filter_fault


class Parameters:
    """The parameters of a request. All methods raise `ProblemError` (400) for an invalid value."""

    def __init__(self, request: web.Request, known: Sequence[str], headers: Sequence[str] = ()) -> None:
        """`known`: names permitted in the query. `headers`: names that may also be given as a header ``Saps-Name``.
        Raises `ProblemError` for an unknown parameter."""
        for name in request.query:
            if name not in known:
                there_are = f"there are: {', '.join(known)}" if known else "there are none"
                raise ProblemError(400, "Unknown parameter", there_are, field=name)
        self._query = request.query
        self._headers = {n: value for n in headers if (value := request.headers.get(f"Saps-{n}")) is not None}

    def all(self, name: str) -> list[str]:
        """Return all values of a parameter in the query, in their order."""
        return list(self._query.getall(name, []))

    def get(self, name: str) -> str | None:
        """Return the value from the query or else the header, or None if it is not given."""
        values = self._query.getall(name, [])
        if len(values) > 1:
            raise ProblemError(400, "Bad parameter", "it is given more than once", field=name)
        return values[0] if values else self._headers.get(name)

    def text(self, name: str) -> str:
        """Return the value, or an empty text if it is not given."""
        return self.get(name) or ""

    def number(self, name: str, most: int, *, least: int = 0) -> int | None:
        """Return the value as an integer from `least` to `most`, or None if it is not given."""
        text = self.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
            raise ProblemError(400, "Bad parameter", f"{text!r} is not a number from {least} to {most}", field=name)
        return int(text)

    def flag(self, name: str) -> bool:
        """Return whether the value is ``true`` or ``1``; False if it is not given."""
        text = self.get(name)
        if text not in (None, "true", "false", "1", "0"):
            raise ProblemError(400, "Bad parameter", f"{text!r} is neither true nor false", field=name)
        return text in ("true", "1")


def check_filter(topic_filter: str | None, fault: Callable[[str], str | None] = filter_fault) -> None:
    """Raise `ProblemError` (400) if `fault` finds one in the parameter ``filter``; None: it is not given."""
    if topic_filter is not None and (found := fault(topic_filter)) is not None:
        raise ProblemError(400, "Bad parameter", f"{topic_filter!r}: {found}", field="filter")
