"""HTTP connections to an aiohttp application, without sockets: requests as bytes in, the statuses of answers out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tests.fuzzing.pipes import Pipe, settle
from tests.fuzzing.supply import Supply

_HEAD = re.compile(rb"HTTP/1\.[01] (\d{3}) [^\r]*\r\n(.*?)\r\n\r\n", re.DOTALL)
_LENGTH = re.compile(rb"(?i)^content-length: (\d+)", re.MULTILINE)
HOSTS = ["127.0.0.1:2", "x", "[", "[::1]:2", "[::1", "", "localhost", "x:y", "\xff"]
MAY_FAIL = (503,)
"""Of 500 and above: what is asked for is not there now. Any other is a fault of the server."""


class Visit:
    """One connection. `handler`: makes the server's protocol."""

    def __init__(self, handler: Callable[[], Any]) -> None:
        self.pipe = Pipe(handler())
        self.answers = bytearray()

    async def say(self, data: bytes) -> list[int]:
        """Send bytes. The statuses of what is answered to them; raises AssertionError for an internal error."""
        if not self.pipe.closed:
            self.pipe.feed(data)
        await settle()
        found = statuses(self.pipe.taken())
        assert all(status < 500 or status in MAY_FAIL for status in found), found
        return found


def statuses(written: bytes) -> list[int]:
    """Of the answers that begin in these bytes, until one whose end they do not tell."""
    found, at = [], 0
    while (head := _HEAD.match(written, at)) is not None:
        found.append(int(head[1]))
        length = _LENGTH.search(head[2])
        at = head.end() + (int(length[1]) if length is not None else 0)
        if length is None and found[-1] not in (101, 204, 304):
            break
    return found


def request(
    supply: Supply,
    methods: Sequence[str],
    paths: Sequence[str],
    names: Sequence[str],
    values: Sequence[str],
    headers: Sequence[str],
    body: Callable[[Supply], bytes],
) -> bytes:
    """A request, mostly a sound one: some method, path, parameters and headers, and a body."""
    path = supply.one(paths)
    if supply.byte() % 8 == 0:
        path += supply.chunk().decode("latin-1").translate(_VISIBLE)
    asked = [f"{supply.one(names)}={supply.one(values)}" for _ in range(supply.byte() % 4)]
    host = supply.byte()
    head = [f"{supply.one(methods)} {path}{'?' * bool(asked)}{'&'.join(asked)} HTTP/1.1"]
    head.append(f"Host: {HOSTS[host] if host < len(HOSTS) else HOSTS[0]}")
    head += [supply.one(headers) for _ in range(supply.byte() % 4)]
    content = body(supply)
    if content or supply.byte() % 2:
        head.append(f"Content-Length: {len(content)}")
    return "\r\n".join([*head, "", ""]).encode("latin-1", "replace") + content


_VISIBLE = {code: f"%{code:02X}" for code in (*range(33), *range(127, 256), ord("?"), ord("#"))}
