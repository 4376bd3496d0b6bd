"""Decides which pages may send requests to the broker: a browser lets any page reach any address, with the rights of
the machine it runs on."""

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
"""Seconds for which a browser may cache the answer to a preflight."""
TOLD = 100
"""Most refused origins that the log names, once each."""
OPEN = ("/mqtt", "/healthz", "/readyz")
"""Paths without a check here: they check the origin themselves, or reveal nothing."""


class Origins:
    """Checks the origins of requests at a Web port, and counts refusals."""

    def __init__(self, origins: tuple[str, ...]) -> None:
        """`origins`: foreign origins whose pages may send requests; ``*`` for all."""
        self._origins = origins
        self.refused = 0
        """Requests refused because of their page's origin."""
        self._told: set[str] = set()
        self._hosts = {urlsplit(origin).netloc for origin in origins}

    def answer(self, request: web.Request) -> web.Response | None:
        """Check a request. Returns the answer to a preflight, or None if the request may be handled. Raises
        `ProblemError` (403 for a foreign page, 421 for an unknown host name).

        A page whose origin is the requested host is admitted if it sends credentials. After DNS rebinding, a foreign
        page has the right name, but no password.
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
        """Return whether a page of this origin may send requests to `host`. Counts a refusal, and logs each origin's
        first one."""
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
        """Add the headers that let a page of an allowed foreign origin read the answer (CORS)."""
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and ("*" in self._origins or origin in self._origins):
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
            response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = "*"
            response.headers[hdrs.VARY] = hdrs.ORIGIN

    def _rebound(self, request: web.Request) -> bool:
        """Return whether the request may come from a page after DNS rebinding: it comes over loopback, names an unknown
        host, and has no password. Such a page must not get the rights of loopback."""
        peer = request.get_extra_info("peername")
        local = isinstance(peer, tuple) and is_loopback(str(peer[0]))
        named = not _is_literal(_parts(f"//{request.host}").hostname or "") and request.host not in self._hosts
        return local and named and "*" not in self._origins and hdrs.AUTHORIZATION not in request.headers


def origin_allowed(origin: str | None, host: str, origins: tuple[str, ...]) -> bool:
    """Return whether a page of this origin may send requests. `host`: header Host, with the port. `origins`: as in
    `Origins`.

    Any page can open a WebSocket to any address, with the rights of the machine that shows the page. A page counts as
    the broker's own only by an IP address or as localhost: a foreign DNS name may point to the broker.
    """
    if origin is None or "*" in origins or origin in origins:
        return True
    page = _parts(origin)
    return page.netloc == host and _is_literal(page.hostname or "")


def _parts(url: str) -> SplitResult:
    """Return the parts of a URL, all empty if it is invalid."""
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
