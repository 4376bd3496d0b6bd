"""Adds the routes for the operators' work on clients."""

from __future__ import annotations

from saps.frontend.web.http.application import WebServer
from saps.frontend.web.http.visitors import Visitors
from saps.frontend.web.operations.audit import AuditRoutes
from saps.frontend.web.operations.bans import BanRoutes
from saps.frontend.web.operations.clients import Call, ClientRoutes
from saps.frontend.web.operations.follow import FollowRoutes
from saps.frontend.web.operations.retained import Publish, RetainedRoutes
from saps.operations.roles import Role


def add_operations(site: WebServer, visitors: Visitors, call: Call, bans: BanRoutes, retain: Publish) -> None:
    """Add the routes, each with the role it needs. To be called before the server listens."""
    site.add("/v1/follow", visitors.only(FollowRoutes(call, visitors.note).handle, Role.OPERATOR))
    retained = RetainedRoutes(call, retain)
    site.add("/v1/retained", visitors.only(retained.browse, Role.OPERATOR))
    site.add("/v1/retained/{topic:.+}", visitors.changes("delete retained", retained.delete), "DELETE")
    site.add("/v1/bans", visitors.only(bans.show))
    site.add("/v1/bans", visitors.changes("ban", bans.ban, Role.ADMINISTRATOR), "POST")
    lift = visitors.changes("lift ban", bans.lift, Role.ADMINISTRATOR)
    site.add("/v1/bans/{kind}/{name:.+}", lift, "DELETE")
    clients = ClientRoutes(call)
    site.add("/v1/clients", visitors.only(clients.find))
    site.add("/v1/clients/{client:.+}", visitors.only(clients.show))
    site.add("/v1/audit", visitors.only(AuditRoutes(call).latest, Role.ADMINISTRATOR))
    site.add("/v1/clients/{client:.+}", visitors.changes("disconnect", clients.disconnect), "DELETE")
