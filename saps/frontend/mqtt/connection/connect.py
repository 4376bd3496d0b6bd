"""The opening of a connection: CONNECT and CONNACK (MQTT 5.0, sections 3.1 and 3.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, V311, Connack, Connect, Disconnect, Will
from saps.frontend.mqtt.codec.properties import Property, PropertyMap
from saps.frontend.mqtt.codec.publish_cut import received_properties
from saps.frontend.mqtt.codec.reasons import CONNACK_REASONS, RETURN_CODES_311, ProtocolError, Reason
from saps.frontend.mqtt.connection.redirect import elsewhere
from saps.frontend.mqtt.frontend import FOREVER
from saps.mesh import Arrival
from saps.messages import Message
from saps.topics import topic_fault

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection
    from saps.frontend.mqtt.limits import Limits

KEEP_ALIVE_GRACE = 1.5
"""Keep-alive intervals without a packet after which a client counts as lost (3.1.2.10)."""

HEADROOM = 1 << 16
"""Bytes a packet may grow on its way to a subscriber, at most: by subscription identifiers."""


def accept(connection: Connection, packet: Connect) -> None:
    """Open the session the client asks for, answer with CONNACK and continue the session; or have the connection wait
    until it has come from another broker. Raises `ProtocolError`."""
    properties = packet.properties
    if Property.AUTHENTICATION_METHOD in properties:
        raise ProtocolError("enhanced authentication is not supported", Reason.BAD_AUTHENTICATION_METHOD)
    if Property.AUTHENTICATION_DATA in properties:
        raise ProtocolError("authentication data without an authentication method")
    if not packet.client_id and packet.version == V311 and not packet.clean_start:
        raise ProtocolError("a session to keep needs a client identifier", Reason.CLIENT_IDENTIFIER_NOT_VALID)
    will = _will_message(packet.will, connection.frontend.limits) if packet.will is not None else None

    frontend = connection.frontend
    _adopt_limits(connection, packet)
    client_id = packet.client_id or frontend.assign_client_id()
    expiry = _requested_expiry(packet)
    frontend.admit(client_id, keeps=expiry > 0 or not packet.clean_start)
    connection.rights = connection.authorizer.authorise(connection, client_id, packet)
    if expiry and frontend.refusal is not None and (client_id not in frontend.sessions or frontend.broken):
        raise ProtocolError("its session cannot be stored", frontend.refusal)
    connection.accepted = True
    greeting = Greeting(client_id, expiry, will, _answer(connection, packet, client_id, expiry))
    roaming = frontend.roaming
    if roaming is None or not roaming.must_wait(client_id, not packet.client_id, expiry):
        _enter(connection, packet, greeting)
        return
    connection.wait()
    roaming.wait(
        connection,
        client_id,
        packet.clean_start,
        expiry,
        lambda arrival: connection.go_on(packet.version, lambda: _arrive(connection, packet, greeting, arrival)),
    )


class Greeting(NamedTuple):
    """What has been found out about a CONNECT that is accepted."""

    client_id: str
    expiry: int
    """The session expiry interval it asks for, in seconds."""
    will: Message | None
    answer: PropertyMap
    """What CONNACK is to tell."""


def _arrive(connection: Connection, packet: Connect, greeting: Greeting, arrival: Arrival) -> None:
    """It is known where in the mesh the client's session was, and it is here now. Raises `ProtocolError`."""
    session = connection.frontend.sessions.get(greeting.client_id)
    if arrival is Arrival.FORBIDDEN or (session is not None and session.user != connection.user):
        raise ProtocolError(f"the session of {greeting.client_id!r} is another user's", Reason.NOT_AUTHORIZED)
    if arrival is Arrival.BUSY:
        raise ProtocolError(f"the session of {greeting.client_id!r} is moving", Reason.SERVER_BUSY)
    if arrival is Arrival.LATER:  # first it was let in, then another connection took over
        connection.outbound.answer(Connack(not packet.clean_start, Reason.SUCCESS, greeting.answer))
        if packet.version == V5:
            connection.outbound.answer(Disconnect(Reason.SESSION_TAKEN_OVER))
        connection.close(Reason.SESSION_TAKEN_OVER)
        return
    _enter(connection, packet, greeting, moved=arrival is Arrival.MOVED)


def _enter(connection: Connection, packet: Connect, greeting: Greeting, moved: bool = False) -> None:
    """Open the session, answer with CONNACK and continue it. `moved`: it comes from another broker."""
    frontend, (client_id, expiry, will, answer) = connection.frontend, greeting
    session, present = frontend.open(connection, client_id, packet.clean_start, expiry)
    connection.entered(session)
    if moved and present:
        session.obey(session.rights)
        frontend.hub.forget_agent_routes(session)
    if packet.will is not None:
        session.will = will
        session.will_delay = packet.will.properties.get(Property.WILL_DELAY, 0)
        if will is not None:
            frontend.hub.entrust(client_id, will, min(session.will_delay, session.expiry))
    session.persist()
    connection.outbound.answer(Connack(present, Reason.SUCCESS, answer))
    session.resume()


def _answer(connection: Connection, packet: Connect, client_id: str, expiry: int) -> PropertyMap:
    """What CONNACK tells the client. Raises `ProtocolError` if it does not take a packet of that size."""
    frontend, limits = connection.frontend, connection.frontend.limits
    if packet.version != V5:
        return {}
    answer: PropertyMap = {
        Property.RECEIVE_MAXIMUM: limits.receive_maximum,
        Property.MAXIMUM_PACKET_SIZE: limits.maximum_packet_size,
        Property.TOPIC_ALIAS_MAXIMUM: limits.topic_alias_maximum,
    }
    if not packet.client_id:
        answer[Property.ASSIGNED_CLIENT_IDENTIFIER] = client_id
    if (granted := frontend.granted_expiry(expiry, connection.user)) != expiry:
        answer[Property.SESSION_EXPIRY] = granted
    if (keep_alive := _keep_alive(limits, packet)) != packet.keep_alive:
        answer[Property.SERVER_KEEP_ALIVE] = keep_alive
    room = connection.outbound.maximum_packet_size
    if room and len(encode(Connack(True, Reason.SUCCESS, answer), V5)) > room:
        raise ProtocolError(f"a maximum packet size of {room} bytes", Reason.PACKET_TOO_LARGE)
    return answer


def _keep_alive(limits: Limits, packet: Connect) -> int:
    """The keep-alive interval in force, in seconds. A 3.1.1 client cannot be told another one than its own."""
    most = limits.maximum_keep_alive
    if most and packet.version == V5 and not 0 < packet.keep_alive <= most:
        return most
    return packet.keep_alive


def refuse(connection: Connection, reason: Reason, start: bytes) -> None:
    """Answer a CONNECT that cannot be accepted, as far as its first bytes tell which CONNACK the client understands."""
    name = start.find(b"\0\4MQTT")
    if start[:1] != b"\x10" or (name < 0 and b"MQIsdp" not in start):
        return
    refuse_level(connection, reason, start[name + 6] if 0 <= name < len(start) - 6 else V311)


def refuse_level(connection: Connection, reason: Reason, level: int) -> None:
    """Answer a CONNECT of this protocol level that cannot be accepted."""
    if level >= V5:
        allowed = reason if reason in CONNACK_REASONS else Reason.UNSPECIFIED_ERROR
        room = connection.outbound.maximum_packet_size
        for properties in (elsewhere(connection, reason), {}):
            packet = encode(Connack(False, allowed, properties), V5)
            if not room or len(packet) <= room:
                connection.outbound.write(packet)
                return
    elif reason in RETURN_CODES_311:
        connection.outbound.write(encode(Connack(False, RETURN_CODES_311[reason]), V311))


def _adopt_limits(connection: Connection, packet: Connect) -> None:
    """Keep to what the client allows."""
    limits, properties, outbound = connection.frontend.limits, packet.properties, connection.outbound
    outbound.send_maximum = min(limits.send_maximum, properties.get(Property.RECEIVE_MAXIMUM, 0xFFFF))
    outbound.maximum_packet_size = properties.get(Property.MAXIMUM_PACKET_SIZE, 0)
    outbound.alias_limit = min(limits.outgoing_topic_aliases, properties.get(Property.TOPIC_ALIAS_MAXIMUM, 0))
    if outbound.maximum_packet_size > limits.maximum_packet_size + HEADROOM:
        outbound.maximum_packet_size = 0
    connection.keep_alive = _keep_alive(limits, packet) * KEEP_ALIVE_GRACE
    connection.publishes.tell_problems = bool(properties.get(Property.REQUEST_PROBLEM_INFORMATION, 1))


def _requested_expiry(packet: Connect) -> int:
    """The session expiry interval the client asks for, in seconds; a kept 3.1.1 session does not expire."""
    if packet.version == V311:
        return 0 if packet.clean_start else FOREVER
    expiry: int = packet.properties.get(Property.SESSION_EXPIRY, 0)
    return expiry


def _will_message(will: Will, limits: Limits) -> Message:
    fault = topic_fault(will.topic)
    if fault is None and will.topic.count("/") >= limits.maximum_topic_levels:
        fault = "a topic of too many levels"
    if fault is not None:
        raise ProtocolError(f"will: {fault}", Reason.TOPIC_NAME_INVALID)
    return Message(will.topic, will.payload, will.qos, will.retain, received_properties(will.properties))
