"""The address of a site's database: a URL as libpq reads it, such as ``postgresql://user@db.example/saps``."""

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
"""Query parameters of a URL that are safe to log."""


class Server(NamedTuple):
    """The place of one broker's rows in a database. `str` and `repr` leave out the password, for logs."""

    url: str
    broker: str
    """Name of the broker that owns the rows."""
    password: str = ""
    """Overrides the password in the URL. If empty, libpq uses that one, or its own sources (``PGPASSFILE``)."""

    def __str__(self) -> str:
        return f"{shown(self.url)}, broker {self.broker!r}"

    def __repr__(self) -> str:
        return f"Server({self})"


def shown(url: str) -> str:
    """Return the URL without its secrets, or "the database" if it cannot be parsed."""
    found = _URL.fullmatch(url)
    if found is None:
        return "the database"
    user = f"{found['user']}@" if found["user"] else ""
    known = [(name, value) for name, value in parse_qsl(found["query"] or "") if name in _SHOWN]
    query = f"?{urlencode(known, safe='/')}" if known else ""
    return f"{found['scheme']}://{user}{found['hosts']}{found['path'] or ''}{query}"


def url_fault(url: str) -> str | None:
    """Return why `url` cannot name a database, or None if it can. The reason never contains the URL. An empty `url`
    means no database and is valid."""
    if url and _URL.fullmatch(url) is None:
        return "is not a URL such as postgresql://saps@db.example/saps (in a password, '@', '/', '?', '#' are %40 ...)"
    return None
