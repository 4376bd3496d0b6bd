"""Opens a connection: handles CONNECT and sends CONNACK (MQTT 5.0, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from saps.agents.user import Rights
from saps.frontend.mqtt.codec.decode import decode
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import (
    V5,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Will,
)
from saps.frontend.mqtt.codec.properties import Property, PropertyMap
from saps.frontend.mqtt.codec.publish_cut import received_properties
from saps.frontend.mqtt.codec.reasons import CONNACK_REASONS, RETURN_CODES_311, MqttError, ProtocolError, Reason
from saps.frontend.mqtt.connection.permission import PermissionRequest
from saps.frontend.mqtt.session.session import FOREVER, LastWill
from saps.mesh import Arrival
from saps.messages import Message
from saps.topics import topic_fault

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection
    from saps.frontend.mqtt.limits import Limits

KEEP_ALIVE_GRACE = 1.5
"""Number of keep-alive intervals without a packet after which the client is lost (3.1.2.10)."""

HEADROOM = 1 << 16
"""Most bytes that subscription identifiers add to a packet on its way to a subscriber."""


class Greeting(NamedTuple):
    """The decisions about an accepted CONNECT."""

    client_id: str
    expiry: int
    """The requested session expiry interval in seconds."""
    will: LastWill | None
    rights: Rights | None
    """The client's rights; None: all."""
    answer: PropertyMap
    """The properties of the CONNACK."""


class Opening:
    """Opens one connection, from CONNECT to CONNACK.

    The CONNACK may wait for a password check, and for the client's session to migrate from another broker.
    """

    __slots__ = ("_connection", "_proof", "_proving", "accepted", "asked", "waiting")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._proving: Connect | None = None
        """The CONNECT whose enhanced authentication is under way (4.12)."""
        self._proof: PropertyMap = {}
        """The properties that a finished enhanced authentication adds to the CONNACK."""
        self.accepted = False
        """Whether the CONNECT is accepted. Its session may still have to migrate here."""
        self.waiting = False
        """Whether the CONNECT waits for an answer."""
        self.asked: tuple[str, str | None] | None = None
        """Client identifier and user name of the CONNECT; None before the CONNECT."""

    def begin(self, first: int, data: bytes, body: int, end: int) -> None:
        """Handle the client's first packet, or the next packet of an enhanced authentication.

        `first` is the packet's first byte, and `data[body:end]` its body. Raises `MqttError`.
        """
        connection = self._connection
        if self._proving is not None:
            self._continue(self._proving, first, decode(first, data, body, end, V5))
            return
        if first >> 4 != PacketType.CONNECT:
            raise ProtocolError("the first packet is not CONNECT")
        packet = decode(first, data, body, end, V5)
        assert isinstance(packet, Connect)
        connection.outbound.version = packet.version
        self.asked = packet.client_id, packet.username
        _check_banned(connection, packet.client_id, None)
        method = packet.properties.get(Property.AUTHENTICATION_METHOD)
        if method is None:
            self._identify(packet)
            return
        _adopt_limits(connection, packet)
        self._proving = packet
        self._prove(packet, packet.properties.get(Property.AUTHENTICATION_DATA, b""), first=True)

    def _continue(self, connect: Connect, first: int, packet: Packet) -> None:
        """Handle a packet during an enhanced authentication. Only AUTH and DISCONNECT are allowed (MQTT-3.1.2-30)."""
        method = connect.properties[Property.AUTHENTICATION_METHOD]
        if isinstance(packet, Disconnect):
            self._connection.end(with_will=False)
            return
        try:
            if not isinstance(packet, Auth) or packet.reason != Reason.CONTINUE_AUTHENTICATION:
                raise ProtocolError(f"{PacketType(first >> 4).name} in the middle of an authentication")
            if packet.properties.get(Property.AUTHENTICATION_METHOD) != method:
                raise ProtocolError("AUTH of another method")
            self._prove(connect, packet.properties.get(Property.AUTHENTICATION_DATA, b""))
        except MqttError as error:
            if first >> 4 != PacketType.CONNECT:  # `Connection._fail` answers a CONNECT
                refuse_level(self._connection, error.reason, V5)
            raise

    def _prove(self, connect: Connect, data: bytes, first: bool = False) -> None:
        connection, method = self._connection, connect.properties[Property.AUTHENTICATION_METHOD]
        proof = connection.authorizer.prove(method, data, connect.username, first)
        properties: PropertyMap = {Property.AUTHENTICATION_METHOD: method, Property.AUTHENTICATION_DATA: proof.data}
        if proof.done:
            self._proving, self._proof = None, properties
            self._identify(connect)
        elif not connection.outbound.answer(Auth(Reason.CONTINUE_AUTHENTICATION, properties)):
            raise ProtocolError("AUTH is larger than the client takes", Reason.PACKET_TOO_LARGE)

    def _identify(self, packet: Connect) -> None:
        """Authenticate the client and admit it, or wait for the result of the authentication."""
        connection = self._connection
        known = connection.authorizer.identify(
            packet,
            lambda: not connection.closing,
            lambda refusal: self._go_on(packet.version, lambda: self._admit(packet, refusal)),
        )
        if known:
            self._admit(packet, None)
        else:
            self._wait()

    def _wait(self) -> None:
        """Stop reading until `_go_on` answers the CONNECT."""
        self.waiting = True
        self._connection.port.pause_reading()

    def _go_on(self, version: int, enter: Callable[[], None]) -> None:
        """Resume a waiting CONNECT by `enter`, which answers it or waits again; then handle the packets after it."""
        connection = self._connection
        self.waiting = False
        if connection.closing:
            return
        connection.port.resume_reading()
        try:
            enter()
        except MqttError as error:
            if connection.session is None:
                refuse_level(connection, error.reason, version)
            connection.close(error.reason, str(error))
        except Exception:  # a fault of the broker must not take down the other clients
            connection.close_as_faulty()
        if not connection.closing:
            connection.receive(b"")

    def _admit(self, packet: Connect, refusal: ProtocolError | None) -> None:
        """Check the CONNECT of an authenticated client, and go on with its will and session.

        Raises the `refusal`, if any, and `ProtocolError` if the CONNECT is not acceptable.
        """
        connection, frontend = self._connection, self._connection.frontend
        if refusal is not None:
            raise refusal
        _check(packet)
        will = _last_will(packet.will, frontend.limits) if packet.will is not None else None
        _adopt_limits(connection, packet)
        client_id = packet.client_id or frontend.sessions.assign_client_id()
        expiry = _requested_expiry(packet)
        _check_banned(connection, client_id, connection.user)
        frontend.fairness.admit(client_id, keeps=expiry > 0 or not packet.clean_start)
        rights = self._authorise(client_id)
        if (
            expiry
            and frontend.storage.refusal is not None
            and (client_id not in frontend.sessions or frontend.storage.broken)
        ):
            raise ProtocolError("its session cannot be stored", frontend.storage.refusal)
        self.accepted = True
        connection.keep_alive.stop()
        greeting = Greeting(
            client_id, expiry, will, rights, _answer(connection, packet, client_id, expiry, self._proof)
        )
        self._check_will(packet, greeting, PermissionRequest(frontend.timers, frontend.clock, "publish"))

    def _authorise(self, client_id: str) -> Rights | None:
        connection = self._connection
        session = connection.frontend.sessions.get(client_id)
        return connection.authorizer.authorise(client_id, connection.user if session is None else session.user)

    def _check_will(self, packet: Connect, greeting: Greeting, permission: PermissionRequest) -> None:
        """Go on with the session if the client may publish its will, or wait for the decision.

        Raises `ProtocolError` if the client may not publish the will.
        """
        will, rights = greeting.will, greeting.rights

        def check_again() -> None:
            self._check_will(packet, greeting._replace(rights=self._authorise(greeting.client_id)), permission)

        if will is not None and rights is not None:
            topic = will.message.topic
            if rights.asker is not None and not permission.settled(
                rights.asker, [topic], lambda: self._go_on(packet.version, check_again)
            ):
                self._wait()
                return
            if not rights.may_publish(topic):
                raise ProtocolError(f"the will's topic {topic!r} is not permitted", Reason.NOT_AUTHORIZED)
        self._find_session(packet, greeting)

    def _find_session(self, packet: Connect, greeting: Greeting) -> None:
        """Enter the session, or wait until it has migrated from another broker."""
        connection, frontend = self._connection, self._connection.frontend
        client_id, expiry = greeting.client_id, greeting.expiry
        migration = frontend.sessions.migration
        if migration is None or not migration.must_wait(client_id, not packet.client_id, expiry):
            self._enter(packet, greeting)
            return
        self._wait()
        migration.wait(
            connection,
            client_id,
            packet.clean_start,
            expiry,
            lambda arrival: self._go_on(packet.version, lambda: self._arrive(packet, greeting, arrival)),
        )

    def _arrive(self, packet: Connect, greeting: Greeting, arrival: Arrival) -> None:
        """Enter the session after the mesh has located it and moved it here.

        Raises `ProtocolError` if the session is another user's, or still moving.
        """
        connection = self._connection
        session = connection.frontend.sessions.get(greeting.client_id)
        if arrival is Arrival.FORBIDDEN or (session is not None and session.user != connection.user):
            raise ProtocolError(f"the session of {greeting.client_id!r} is another user's", Reason.NOT_AUTHORIZED)
        if arrival is Arrival.BUSY:
            raise ProtocolError(f"the session of {greeting.client_id!r} is moving", Reason.SERVER_BUSY)
        if arrival is Arrival.LATER:  # a later connection of the client has taken the session over
            connection.outbound.answer(Connack(not packet.clean_start, Reason.SUCCESS, greeting.answer))
            if packet.version == V5:
                connection.outbound.answer(Disconnect(Reason.SESSION_TAKEN_OVER))
            connection.close(Reason.SESSION_TAKEN_OVER)
            return
        self._enter(packet, greeting, moved=arrival is Arrival.MOVED)

    def _enter(self, packet: Connect, greeting: Greeting, moved: bool = False) -> None:
        """Open the session, send the CONNACK and resume the session. `moved`: it has migrated from another broker."""
        connection, frontend = self._connection, self._connection.frontend
        client_id, expiry, will, rights, answer = greeting
        session, present = frontend.sessions.open(connection, client_id, packet.clean_start, expiry, rights)
        connection.entered(session)
        if frontend.orders.witness is not None:
            frontend.orders.witness.entered(connection)
        if moved and present:
            session.obey(session.rights)
            frontend.hub.forget_agent_routes(session)
        if will is not None:
            session.will = will
            frontend.hub.guard_will(client_id, will.message, min(will.delay, session.expiry))
        session.persist()
        connection.outbound.answer(Connack(present, Reason.SUCCESS, answer))
        session.resume()


def _check_banned(connection: Connection, client_id: str, user: str | None) -> None:
    """Check that the client is not banned. Raises `ProtocolError` if it is."""
    bouncer = connection.frontend.orders.bouncer
    if bouncer is not None and (why := bouncer.banned(client_id, user, connection.address)) is not None:
        raise ProtocolError(why, Reason.BANNED)


def _check(packet: Connect) -> None:
    """Check the combination of a CONNECT's fields. Raises `ProtocolError` if it is not allowed."""
    properties = packet.properties
    if Property.AUTHENTICATION_DATA in properties and Property.AUTHENTICATION_METHOD not in properties:
        raise ProtocolError("authentication data without an authentication method")
    if not packet.client_id and packet.version == V311 and not packet.clean_start:
        raise ProtocolError("a session to keep needs a client identifier", Reason.CLIENT_IDENTIFIER_NOT_VALID)


def _answer(connection: Connection, packet: Connect, client_id: str, expiry: int, proof: PropertyMap) -> PropertyMap:
    """Return the properties of the CONNACK. `proof` are those of an enhanced authentication.

    Raises `ProtocolError` if the CONNACK exceeds the client's maximum packet size.
    """
    frontend, limits = connection.frontend, connection.frontend.limits
    if packet.version != V5:
        return {}
    answer: PropertyMap = {
        Property.RECEIVE_MAXIMUM: limits.receive_maximum,
        Property.MAXIMUM_PACKET_SIZE: limits.maximum_packet_size,
        Property.TOPIC_ALIAS_MAXIMUM: limits.topic_alias_maximum,
        **proof,
    }
    if not packet.client_id:
        answer[Property.ASSIGNED_CLIENT_IDENTIFIER] = client_id
    if (granted := frontend.sessions.granted_expiry(expiry, connection.user)) != expiry:
        answer[Property.SESSION_EXPIRY] = granted
    if (keep_alive := _keep_alive(limits, packet)) != packet.keep_alive:
        answer[Property.SERVER_KEEP_ALIVE] = keep_alive
    room = connection.outbound.maximum_packet_size
    if room and len(encode(Connack(True, Reason.SUCCESS, answer), V5)) > room:
        raise ProtocolError(f"a maximum packet size of {room} bytes", Reason.PACKET_TOO_LARGE)
    return answer


def _keep_alive(limits: Limits, packet: Connect) -> int:
    """Return the keep-alive interval in seconds. A 3.1.1 client keeps its own, as CONNACK cannot tell it another."""
    most = limits.maximum_keep_alive
    if most and packet.version == V5 and not 0 < packet.keep_alive <= most:
        return most
    return packet.keep_alive


def refuse(connection: Connection, reason: Reason, start: bytes) -> None:
    """Answer a refused CONNECT that begins with the bytes `start`.

    Sends nothing if these bytes do not tell which CONNACK the client understands.
    """
    name = start.find(b"\0\4MQTT")
    if start[:1] != b"\x10" or (name < 0 and b"MQIsdp" not in start):
        return
    refuse_level(connection, reason, start[name + 6] if 0 <= name < len(start) - 6 else V311)


def refuse_level(connection: Connection, reason: Reason, level: int) -> None:
    """Answer a refused CONNECT of protocol level `level`."""
    if level >= V5:
        allowed = reason if reason in CONNACK_REASONS else Reason.UNSPECIFIED_ERROR
        room = connection.outbound.maximum_packet_size
        for properties in (connection.frontend.orders.elsewhere(connection, reason), {}):
            packet = encode(Connack(False, allowed, properties), V5)
            if not room or len(packet) <= room:
                connection.output.write(packet)
                return
    elif reason in RETURN_CODES_311:
        connection.output.write(encode(Connack(False, RETURN_CODES_311[reason]), V311))


def _adopt_limits(connection: Connection, packet: Connect) -> None:
    """Adopt the client's limits for outgoing packets."""
    limits, properties, outbound = connection.frontend.limits, packet.properties, connection.outbound
    outbound.send_maximum = min(limits.send_maximum, properties.get(Property.RECEIVE_MAXIMUM, 0xFFFF))
    outbound.maximum_packet_size = properties.get(Property.MAXIMUM_PACKET_SIZE, 0)
    outbound.alias_limit = min(limits.outgoing_topic_aliases, properties.get(Property.TOPIC_ALIAS_MAXIMUM, 0))
    if outbound.maximum_packet_size > limits.maximum_packet_size + HEADROOM:
        outbound.maximum_packet_size = 0
    connection.keep_alive.interval = _keep_alive(limits, packet) * KEEP_ALIVE_GRACE
    connection.output.tell_problems = bool(properties.get(Property.REQUEST_PROBLEM_INFORMATION, 1))


def _requested_expiry(packet: Connect) -> int:
    """Return the session expiry interval that the client requests, in seconds; `FOREVER` for a kept 3.1.1 session."""
    if packet.version == V311:
        return 0 if packet.clean_start else FOREVER
    expiry: int = packet.properties.get(Property.SESSION_EXPIRY, 0)
    return expiry


def _last_will(will: Will, limits: Limits) -> LastWill:
    fault = topic_fault(will.topic)
    if fault is None and will.topic.count("/") >= limits.maximum_topic_levels:
        fault = "a topic of too many levels"
    if fault is not None:
        raise ProtocolError(f"will: {fault}", Reason.TOPIC_NAME_INVALID)
    message = Message(will.topic, will.payload, will.qos, will.retain, received_properties(will.properties))
    return LastWill(message, will.properties.get(Property.WILL_DELAY, 0))
