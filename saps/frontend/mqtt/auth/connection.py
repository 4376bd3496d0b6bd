"""Connections of a broker that has a guard: CONNECT waits for its password, and an ACL is obeyed.

A broker that lets everyone in uses neither class, one without ACL only the first: what is not needed costs nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from saps.frontend.mqtt.auth.guard import Admission, Guard, Origin
from saps.frontend.mqtt.connect import refuse_level
from saps.frontend.mqtt.connection import Connection
from saps.frontend.mqtt.packets import Connect
from saps.frontend.mqtt.reasons import MqttError, ProtocolError, Reason
from saps.hub import Route
from saps.mesh import TopicRoute
from saps.plain import first_packet

if TYPE_CHECKING:
    from saps.frontend.mqtt.auth.acl import Rights
    from saps.frontend.mqtt.frontend import Frontend
    from saps.frontend.mqtt.sender import Port
    from saps.hub import Publication
    from saps.messages import Message

logger = logging.getLogger(__name__)

Early = tuple[int, bytes, int, int]
"""A packet that came before CONNECT was answered, as `Connection._handle` takes it."""


_EARLY_COST = 128
"""Bytes it takes to keep one, beside its own."""


class GuardedConnection(Connection):
    """A client that has to say who it is."""

    __slots__ = ("_early", "_early_bytes", "admission", "guard", "origin", "rights", "user")

    def __init__(self, frontend: Frontend, port: Port, peer: str, guard: Guard, origin: Origin) -> None:
        super().__init__(frontend, port, peer)
        self.guard = guard
        self.origin = origin
        self.admission = Admission(None)
        """As whom it was let in."""
        self.user: str | None = None
        self.rights: Rights | None = None
        self._early: list[Early] | None = None
        """While its password is checked: what the client has sent meanwhile (it need not wait for CONNACK, 3.1.4)."""
        self._early_bytes = 0

    def _greet(self, first: int, data: bytes, body: int, end: int) -> None:
        if self._early is None:
            super()._greet(first, data, body, end)
            return
        self._early_bytes += end - body + _EARLY_COST
        if self._early_bytes > self.frontend.limits.maximum_packet_size:
            raise ProtocolError("too much before CONNACK", Reason.QUOTA_EXCEEDED)
        self._early.append((first, data, body, end))

    def _admit(self, packet: Connect) -> None:
        """Go on as soon as it is known who this is."""
        admission = self.guard.admit(
            packet, self.origin, lambda: not self.closing, lambda found: self._resume(packet, found)
        )
        if admission is not None:
            self._enter(packet, admission)
        else:
            self._early = []
            self.port.pause_reading()

    def _enter(self, packet: Connect, admission: Admission | None) -> None:
        if admission is None:
            raise self.guard.refusal(f"wrong user name or password (user {packet.username!r})")
        self.admission = admission
        self.user = admission.user
        super()._admit(packet)

    def _resume(self, packet: Connect, admission: Admission | None) -> None:
        """The password has been checked: answer CONNECT, and handle what came after it."""
        early, self._early = self._early or [], None
        if self.closing:
            return
        self.port.resume_reading()
        try:
            self._enter(packet, admission)
            for entry in early:
                if not self.closing:
                    self._handle(*entry)
        except MqttError as error:
            if self.session is None:
                refuse_level(self, error.reason, packet.version)
            self.close(error.reason, str(error))
        except Exception:  # a fault of ours must not take down the other clients
            self.close_as_faulty()
        if not self.closing:
            self.receive(b"")

    def authorise(self, client_id: str, packet: Connect) -> None:
        session = self.frontend.sessions.get(client_id)
        if session is not None and session.user != self.user:
            raise ProtocolError(f"the session of {client_id!r} is another user's", Reason.NOT_AUTHORIZED)
        rights = self.guard.rights(self.user, client_id)
        if rights is not None and packet.will is not None and not rights.may_publish(packet.will.topic):
            raise ProtocolError(f"the will's topic {packet.will.topic!r} is not permitted", Reason.NOT_AUTHORIZED)
        self.rights = rights


class AuthorisedConnection(GuardedConnection):
    """A client whose publications are looked at: topics known to be permitted take the hot paths, others the long way.

    A publication that is not permitted is dropped. The answer of QoS 1 and 2 says so in MQTT 5; MQTT 3.1.1 has no way
    to say it and gets a positive answer (MQTT-3.3.5-2): a client cut off instead would connect and publish it again.
    """

    __slots__ = ("_told",)

    def __init__(self, frontend: Frontend, port: Port, peer: str, guard: Guard, origin: Origin) -> None:
        super().__init__(frontend, port, peer, guard, origin)
        self._told = False

    def _publish_alone(self, data: bytes) -> bool:
        session = self.session
        if session is None or len(data) < 7:
            return False
        topic = (data[1] >> 7) + 4  # where it stands if the packet is plain; if it is not, `super` finds out
        end = topic + (data[topic - 2] << 8 | data[topic - 1])
        rights = session.rights
        return (rights is None or data[topic:end] in rights.publishable) and super()._publish_alone(data)

    def _publish_run(self, data: bytes, pos: int) -> int:
        session, first = self.session, first_packet(data, pos)
        if session is None or first is None:
            return 0
        rights = session.rights
        if rights is not None and data[first.topic + 2 : first.end] not in rights.publishable:
            return 0
        return super()._publish_run(data, pos)

    def _look_up(self, topic: bytes) -> Route | None:
        rights = self._session.rights
        return super()._look_up(topic) if rights is None or topic in rights.publishable else None

    def _find_route(self, topic: bytes, name: str) -> Route:
        """A topic that may not be published to leaves nothing behind, here or in the mesh."""
        rights = self._session.rights
        if rights is None or rights.may_publish(name):
            return super()._find_route(topic, name)
        return Route(name, TopicRoute(name), ())

    def _publish_qos_0(self, route: Route, message: Message) -> None:
        if self._may_publish(message.topic):
            super()._publish_qos_0(route, message)

    def _publish_with_id(self, route: Route, publication: Publication, packet_id: int) -> None:
        message = publication.message
        repeated = message.qos == 2 and packet_id in (self._session.incoming or ())
        if repeated or self._may_publish(message.topic):
            super()._publish_with_id(route, publication, packet_id)
        else:
            self._answer(packet_id, message.qos, Reason.NOT_AUTHORIZED)

    def _may_publish(self, topic: str) -> bool:
        rights = self._session.rights
        if rights is None or rights.may_publish(topic):
            return True
        self.guard.counts.publications += 1
        if not self._told:
            self._told = True
            logger.warning("MQTT client %s may not publish to %r (said once a connection)", self._label, topic)
        return False
