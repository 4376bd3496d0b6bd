"""The paths by which operators manage clients."""

from __future__ import annotations

from saps.frontend.web.http.application import WebServer
from saps.frontend.web.http.visitors import Visitors
from saps.frontend.web.operations.audit import AuditRoutes
from saps.frontend.web.operations.clients import Call, ClientRoutes
from saps.operations.roles import Role


def add_operations(site: WebServer, visitors: Visitors, call: Call) -> None:
    """To be called before the server listens."""
    clients = ClientRoutes(call)
    site.add("/v1/clients", visitors.only(clients.find))
    site.add("/v1/clients/{client:.+}", visitors.only(clients.show))
    site.add("/v1/audit", visitors.only(AuditRoutes(call).latest, Role.ADMINISTRATOR))
    site.add("/v1/clients/{client:.+}", visitors.changes("disconnect", clients.disconnect), "DELETE")
