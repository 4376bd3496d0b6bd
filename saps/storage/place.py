"""Where a site's database is: ``postgresql://user@db.example/saps``, as libpq reads it."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

_HOST = r"(?:\[[0-9A-Fa-f:.%]+\]|[^\[\]:,@/?#]*)(?::\d*)?"
_URL = re.compile(
    rf"(?P<scheme>postgres(?:ql)?)://(?:(?P<user>[^:@/?#]*)(?::[^@/?#]*)?@)?(?P<hosts>{_HOST}(?:,{_HOST})*)"
    r"(?P<path>/[^@/?#]*)?(?:\?(?P<query>[^#]*))?"
)
_SHOWN = frozenset(("host", "port", "dbname", "user", "sslmode", "options", "service"))
"""Parameters of a URL that are no secrets."""


class Server(NamedTuple):
    """The rows of one broker in a database. Its `str` is for logs and has no password."""

    url: str
    broker: str
    """Whose rows."""
    password: str = ""
    """In place of the one in the URL; empty: that one, or what libpq finds (``PGPASSFILE``)."""

    def __str__(self) -> str:
        return f"{shown(self.url)}, broker {self.broker!r}"

    def __repr__(self) -> str:
        return f"Server({self})"


def shown(url: str) -> str:
    """The URL without its secrets."""
    found = _URL.fullmatch(url)
    if found is None:
        return "the database"
    user = f"{found['user']}@" if found["user"] else ""
    known = [(name, value) for name, value in parse_qsl(found["query"] or "") if name in _SHOWN]
    query = f"?{urlencode(known, safe='/')}" if known else ""
    return f"{found['scheme']}://{user}{found['hosts']}{found['path'] or ''}{query}"


def url_fault(url: str) -> str | None:
    """Why `url` cannot name a database, never with the URL in it; None if it can. The empty text stands for none."""
    if url and _URL.fullmatch(url) is None:
        return "is not a URL such as postgresql://saps@db.example/saps (in a password, '@', '/', '?', '#' are %40 ...)"
    return None
