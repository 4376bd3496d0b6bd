"""The HTTP server of a broker. Parts add their routes before it starts: MQTT over WebSocket is one of them.

Every fault becomes a problem (`saps.frontend.web.http.problems`). What pages of other origins may do is decided here.
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
"""Bytes of the longest request line: a topic of 64 KiB, every byte percent-encoded."""
SHUTDOWN = 5.0
"""Seconds that requests under way have when the server stops."""

PAGE = "Saps-Page"
"""Header of requests of the operator's page."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebServer:
    """Listens on any number of addresses, plain or with TLS, for one application."""

    def __init__(
        self,
        patience: float = 10.0,
        maximum_connections: int = 50_000,
        largest_body: int = 1 << 20,
        origins: tuple[str, ...] = (),
    ) -> None:
        """`patience`: seconds until a connection without a complete request, its first or the next, is closed.
        `maximum_connections`: beyond it new ones are closed at once. `largest_body`: bytes. `origins`: of pages
        elsewhere that may ask; ``*``: all."""
        self._patience = patience
        self._maximum_connections = maximum_connections
        self.origins = Origins(origins)
        self._app = web.Application(middlewares=[self._around], client_max_size=largest_body)
        self._app.on_response_prepare.append(self.origins.tell)
        self._runner = web.AppRunner(
            self._app,
            access_log=None,
            keepalive_timeout=patience,
            max_line_size=LONGEST_LINE,
            shutdown_timeout=SHUTDOWN,
        )
        self._silent: set[RequestHandler] = set()
        """Connections on which no request has come yet."""
        self._plain: list[asyncio.Server] = []
        self._tls: list[TlsListener] = []
        self.addresses: list[tuple[str, int]] = []
        """Where it listens, in the order of the calls."""

    def add(self, path: str, handler: Handler, method: str = "GET") -> None:
        """Answer requests for the path. To be called before `listen`."""
        self._app.router.add_route(method, path, handler)

    @property
    def routes(self) -> set[tuple[str, str]]:
        """Method and path of all that is answered."""
        found = set()
        for route in self._app.router.routes():
            resource = route.resource
            if resource is not None and route.method not in ("HEAD", "OPTIONS"):
                found.add((route.method, resource.canonical))
        return found

    async def listen(self, host: str, port: int = 0, context: ssl.SSLContext | None = None) -> None:
        """Listen, with TLS if there is a context. Raises `OSError` if the address cannot be had."""
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
            listener = TlsListener(self._connection, self._patience)
            self._tls.append(listener)
            await listener.open(host, port, context)
            self.addresses.append(listener.address)

    async def renew_tls(self, context: ssl.SSLContext) -> None:
        """Use this context for new connections. Raises `OSError`, as `TlsListener.renew`."""
        for listener in self._tls:
            await listener.renew(context)

    def stop_listening(self) -> None:
        """Take no new connections."""
        for server in self._plain:
            server.close()
        for listener in self._tls:
            listener.close()

    async def close(self) -> None:
        """End all connections. What runs on them should have ended before."""
        self.stop_listening()
        await self._runner.cleanup()
        self._plain.clear()
        self._tls.clear()

    def _connection(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        server = self._runner.server
        assert server is not None
        handler = server()
        self._silent.add(handler)
        full = len(server.connections) >= self._maximum_connections
        asyncio.get_running_loop().call_later(0 if full else self._patience, self._close_if_silent, handler)
        return handler

    def _close_if_silent(self, handler: RequestHandler) -> None:
        if handler in self._silent:
            self._silent.discard(handler)
            handler.force_close()

    @web.middleware
    async def _around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Of every request: it has come, it may come, and what goes wrong is told."""
        self._silent.discard(request.protocol)
        try:
            return self.origins.answer(request) or await handler(request)
        except ProblemError as error:
            found = answer_problem(error.problem)
            if PAGE in request.headers:  # it has a form of its own: the browser is not to ask
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
            return web.Response(status=499)  # nobody is there any more to be answered
        except Exception:
            logger.exception("%s %s", request.method, request.path)
            return answer_problem(Problem(status=500, title="Internal error"))
