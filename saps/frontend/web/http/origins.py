"""What pages may ask of a broker, which a browser lets ask any address with the rights of the machine it runs on."""

from __future__ import annotations

import contextlib
import logging
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from aiohttp import hdrs, web

from saps.frontend.mqtt.access.origin import is_loopback
from saps.frontend.web.http.problems import ProblemError

logger = logging.getLogger(__name__)

METHODS = "GET, POST, DELETE, OPTIONS"
ALLOWED_HEADERS = "Authorization, Content-Type, Last-Event-ID, Saps-*"
PREFLIGHT = 600
"""Seconds for which a browser may remember what it was allowed."""
TOLD = 100
"""Origins that were refused, of which the log has a line each."""
OPEN = ("/mqtt", "/healthz", "/readyz")
"""Paths that are not guarded here: they look themselves, or have nothing to tell."""


class Origins:
    """Decides for a Web port."""

    def __init__(self, origins: tuple[str, ...]) -> None:
        """`origins`: of pages elsewhere that may ask; ``*``: all."""
        self._origins = origins
        self.refused = 0
        """Requests of pages that may not ask."""
        self._told: set[str] = set()
        self._hosts = {urlsplit(origin).netloc for origin in origins}

    def answer(self, request: web.Request) -> web.Response | None:
        """The answer to a browser's question what it may ask (a preflight); None: go on. Raises `ProblemError`.

        A page of the name that was asked may go on with a password: one whose name was pointed here has none.
        """
        if request.path in OPEN:
            return None
        origin = request.headers.get(hdrs.ORIGIN)
        named = origin is not None and _parts(origin).netloc == request.host and hdrs.AUTHORIZATION in request.headers
        if not named and not self.allows(origin, request.host):
            raise ProblemError(403, "Foreign page", f"pages of {origin} are refused (web.origins)", field="Origin")
        if origin is None and self._rebound(request):
            detail = f"the broker is not known as {request.host}: ask by IP address, or name it in web.origins"
            raise ProblemError(421, "Unknown host", detail, field="Host")
        if request.method == hdrs.METH_OPTIONS and hdrs.ACCESS_CONTROL_REQUEST_METHOD in request.headers:
            headers = {
                hdrs.ACCESS_CONTROL_ALLOW_METHODS: METHODS,
                hdrs.ACCESS_CONTROL_ALLOW_HEADERS: request.headers.get(
                    hdrs.ACCESS_CONTROL_REQUEST_HEADERS, ALLOWED_HEADERS
                ),
                hdrs.ACCESS_CONTROL_MAX_AGE: str(PREFLIGHT),
            }
            return web.Response(status=204, headers=headers)
        return None

    def allows(self, origin: str | None, host: str) -> bool:
        """May a page of this origin attach, which has asked `host`? If not, it is counted, and the log says so once."""
        if origin_allowed(origin, host, self._origins):
            return True
        self.refused += 1
        if len(self._told) < TOLD and origin is not None and origin not in self._told:
            self._told.add(origin)
            logger.warning(
                "pages of origin %s are refused at %s: add it to web.origins if they are yours", origin, host
            )
        return False

    async def tell(self, request: web.Request, response: web.StreamResponse) -> None:
        """Let a page of another origin that may ask read the answer."""
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and ("*" in self._origins or origin in self._origins):
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
            response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = "*"
            response.headers[hdrs.VARY] = hdrs.ORIGIN

    def _rebound(self, request: web.Request) -> bool:
        """May this be a page whose own name was pointed here (DNS rebinding)? It would have the trust in loopback,
        but no password."""
        peer = request.get_extra_info("peername")
        local = isinstance(peer, tuple) and is_loopback(str(peer[0]))
        named = not _is_literal(_parts(f"//{request.host}").hostname or "") and request.host not in self._hosts
        return local and named and "*" not in self._origins and hdrs.AUTHORIZATION not in request.headers


def origin_allowed(origin: str | None, host: str, origins: tuple[str, ...]) -> bool:
    """May a page of this origin attach? `host`: whom the browser believes to have asked, with the port.

    Any page can open a WebSocket to any address, with the rights of the machine it is looked at from. A page counts as
    this broker's own only by an IP address or as localhost: a foreign name may have been pointed here.
    """
    if origin is None or "*" in origins or origin in origins:
        return True
    page = _parts(origin)
    return page.netloc == host and _is_literal(page.hostname or "")


def _parts(url: str) -> SplitResult:
    """The parts of what should be a URL; nothing in them if it is none."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")


def _is_literal(name: str) -> bool:
    if name == "localhost":
        return True
    with contextlib.suppress(ValueError):
        ip_address(name)
        return True
    return False
