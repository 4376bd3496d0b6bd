"""Authorizes clients by the broker's guard: a CONNECT waits for its password check, and the ACL sets the rights."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from saps.agents.user import Rights
from saps.frontend.mqtt.access.authorizer import Found, Proof
from saps.frontend.mqtt.access.guard import Admission, Guard, Login, Origin
from saps.frontend.mqtt.codec.packets import Connect
from saps.frontend.mqtt.codec.reasons import ProtocolError, Reason

if TYPE_CHECKING:
    from saps.frontend.mqtt.access.logins.scram import Exchange

logger = logging.getLogger(__name__)


class GuardedAuthorizer:
    """Authorizes one client of a broker with a guard. (A `saps.frontend.mqtt.access.authorizer.Authorizer`.)"""

    __slots__ = ("_exchange", "_guard", "_origin", "_proven", "_told", "admission", "method")

    def __init__(self, guard: Guard, origin: Origin) -> None:
        self._guard = guard
        self._origin = origin
        self._told = False
        self.method: str | None = None
        self._exchange: Exchange | None = None
        self._proven: Admission | None = None
        self.admission = Admission(None)
        """The client's current admission; anonymous before the first."""

    def identify(self, packet: Connect, wanted: Callable[[], bool], found: Found) -> bool:
        def decided(result: Admission | ProtocolError) -> None:
            if isinstance(result, Admission):
                self.admission = result
            found(result if isinstance(result, ProtocolError) else None)

        login = Login(packet, self._origin, wanted, decided)
        admission = self._guard.admit(login) if self._proven is None else self._guard.entitle(self._proven, login)
        if admission is not None:
            self.admission = admission
        return admission is not None

    def prove(self, method: str, data: bytes, named: str | None, first: bool) -> Proof:
        guard, before = self._guard, self._proven
        if first:
            self._exchange, self.method = guard.exchange(method), method
        exchange = self._exchange
        if exchange is None:
            raise ProtocolError("AUTH without an authentication under way")
        answer = guard.step(exchange, data, self._origin, before.user if before is not None else named)
        if exchange.done:
            self._exchange = None
            self._proven = Admission(exchange.user, exchange.stored, self._origin.certificate_ends)
            self.admission = self.admission._replace(stored=exchange.stored)
        return Proof(answer, exchange.done)

    @property
    def user(self) -> str | None:
        return self.admission.user

    @property
    def left(self) -> float:
        return self._guard.left(self.admission)

    @property
    def host(self) -> str:
        """The client's address."""
        return self._origin.host

    def authorise(self, client_id: str, owner: str | None) -> Rights | None:
        if owner != self.user:
            raise ProtocolError(f"the session of {client_id!r} is another user's", Reason.NOT_AUTHORIZED)
        return self._guard.rights(self.admission, client_id, self.host)

    def refused(self, label: str, topics: list[str]) -> None:
        self._guard.counts.publications += len(topics)
        if not self._told:
            self._told = True
            logger.warning("MQTT client %s may not publish to %r (logged once a connection)", label, topics[0])
