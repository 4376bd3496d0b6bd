"""The HTTP server of a broker. Other modules add their routes before it starts, among them MQTT over WebSocket.

Every error becomes a problem (`saps.frontend.web.http.problems`). Each request is checked for pages of other origins.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from saps.frontend.mqtt.driver.tls_listener import TlsListener
from saps.frontend.web.http.origins import Origins
from saps.frontend.web.http.problems import Problem, ProblemError, answer_problem

logger = logging.getLogger(__name__)

BACKLOG = 1024
LONGEST_LINE = 256 << 10
"""Bytes of the longest request line: a topic of 64 KiB with every byte percent-encoded, and the rest."""
SHUTDOWN = 5.0
"""Seconds that requests in progress have to finish when the server stops."""

PAGE = "Saps-Page"
"""Header of requests from the operator's page."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebServer:
    """Serves one application on any number of addresses, with or without TLS."""

    def __init__(
        self,
        timeout: float = 10.0,
        maximum_connections: int = 50_000,
        largest_body: int = 1 << 20,
        origins: tuple[str, ...] = (),
    ) -> None:
        """- `timeout`: seconds that a connection may wait for its first or next request before it is closed.
        - `maximum_connections`: beyond it, new connections are closed at once.
        - `largest_body`: most bytes of a request's body.
        - `origins`: foreign origins whose pages may send requests; ``*`` for all.
        """
        self._timeout = timeout
        self._maximum_connections = maximum_connections
        self.origins = Origins(origins)
        self._app = web.Application(middlewares=[self._around], client_max_size=largest_body)
        self._app.on_response_prepare.append(self.origins.tell)
        self._runner = web.AppRunner(
            self._app,
            access_log=None,
            keepalive_timeout=timeout,
            max_line_size=LONGEST_LINE,
            shutdown_timeout=SHUTDOWN,
        )
        self._silent: set[RequestHandler] = set()
        """Connections without a request so far."""
        self._plain: list[asyncio.Server] = []
        self._tls: list[TlsListener] = []
        self.addresses: list[tuple[str, int]] = []
        """Host and port of each listener, in the order of the calls of `listen`."""

    def add(self, path: str, handler: Handler, method: str = "GET") -> None:
        """Answer requests for a path (in aiohttp's syntax) by a handler. To be called before `listen`."""
        self._app.router.add_route(method, path, handler)

    @property
    def routes(self) -> set[tuple[str, str]]:
        """Method and path of all routes."""
        found = set()
        for route in self._app.router.routes():
            resource = route.resource
            if resource is not None and route.method not in ("HEAD", "OPTIONS"):
                found.add((route.method, resource.canonical))
        return found

    async def listen(self, host: str, port: int = 0, context: ssl.SSLContext | None = None) -> None:
        """Listen on an address, with TLS if there is a context. Raises `OSError` if the address is not available."""
        if self._runner.server is None:
            await self._runner.setup()
        if context is None:
            server = await asyncio.get_running_loop().create_server(
                self._connection, host, port, backlog=BACKLOG, start_serving=False
            )
            self._plain.append(server)
            await server.start_serving()
            self.addresses.append(server.sockets[0].getsockname()[:2])
        else:
            listener = TlsListener(self._connection, self._timeout)
            self._tls.append(listener)
            await listener.open(host, port, context)
            self.addresses.append(listener.address)

    async def renew_tls(self, context: ssl.SSLContext) -> None:
        """Use this context for new TLS connections. Raises `OSError`, like `TlsListener.renew`."""
        for listener in self._tls:
            await listener.renew(context)

    def stop_listening(self) -> None:
        """Accept no more connections."""
        for server in self._plain:
            server.close()
        for listener in self._tls:
            listener.close()

    async def close(self) -> None:
        """Close all listeners and connections. Clients on these connections must have been closed before."""
        self.stop_listening()
        await self._runner.cleanup()
        self._plain.clear()
        self._tls.clear()

    def _connection(self) -> asyncio.Protocol:
        """Return the protocol of a new connection, and schedule the check that a request has come."""
        server = self._runner.server
        assert server is not None
        handler = server()
        self._silent.add(handler)
        full = len(server.connections) >= self._maximum_connections
        asyncio.get_running_loop().call_later(0 if full else self._timeout, self._close_if_silent, handler)
        return handler

    def _close_if_silent(self, handler: RequestHandler) -> None:
        if handler in self._silent:
            self._silent.discard(handler)
            handler.force_close()

    @web.middleware
    async def _around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle every request: mark its connection as used, check its origin, and turn errors into problems."""
        self._silent.discard(request.protocol)
        try:
            return self.origins.answer(request) or await handler(request)
        except ProblemError as error:
            found = answer_problem(error.problem)
            if PAGE in request.headers:  # the page has its own form, so the browser must not ask for a password
                found.headers.popall("WWW-Authenticate", None)
            return found
        except web.HTTPException as error:
            if error.status < 400:
                raise
            headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            return answer_problem(Problem(status=error.status, title=error.reason), headers)
        except web.RequestPayloadError as error:
            return answer_problem(Problem(status=400, title="Bad body", detail=str(error)))
        except ConnectionError:
            if request.transport is not None and not request.transport.is_closing():
                raise
            return web.Response(status=499)  # the client has gone
        except Exception:
            logger.exception("%s %s", request.method, request.path)
            return answer_problem(Problem(status=500, title="Internal error"))
