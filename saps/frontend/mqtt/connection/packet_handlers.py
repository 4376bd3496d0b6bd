"""Handles a connected client's packets other than PUBLISH (MQTT 5.0, sections 3.4 to 3.15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from saps.frontend.mqtt.codec.packets import (
    V5,
    Ack,
    Auth,
    Disconnect,
    PacketType,
    Pingresp,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from saps.frontend.mqtt.codec.properties import Property, PropertyMap
from saps.frontend.mqtt.codec.reasons import ProtocolError, Reason
from saps.frontend.mqtt.connection.subscribe_handler import Grants
from saps.frontend.mqtt.session.session import Session

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection


def _puback(connection: Connection, session: Session, packet: Ack) -> None:
    session.acknowledged(packet.packet_id)


def _pubrec(connection: Connection, session: Session, packet: Ack) -> None:
    if packet.reason >= 0x80:
        session.acknowledged(packet.packet_id, qos=2)
    elif session.received(packet.packet_id) or connection.outbound.version != V5:
        connection.outbound.send_release(packet.packet_id)
    else:
        connection.outbound.answer(Ack(PacketType.PUBREL, packet.packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND))


def _pubrel(connection: Connection, session: Session, packet: Ack) -> None:
    incoming = session.incoming
    known = incoming is not None and incoming.pop(packet.packet_id, None) is not None
    connection.publishes.begun.discard(packet.packet_id)
    reason = Reason.SUCCESS if known else Reason.PACKET_IDENTIFIER_NOT_FOUND
    connection.outbound.answer(Ack(PacketType.PUBCOMP, packet.packet_id, reason))


def _pubcomp(connection: Connection, session: Session, packet: Ack) -> None:
    session.completed(packet.packet_id)


def _subscribe(connection: Connection, session: Session, packet: Subscribe) -> None:
    Grants(connection.frontend, connection, session, packet).start()


def _unsubscribe(connection: Connection, session: Session, packet: Unsubscribe) -> None:
    found = [session.unsubscribe(topic_filter) for topic_filter in packet.filters]
    reasons = [int(Reason.SUCCESS if ended else Reason.NO_SUBSCRIPTION_EXISTED) for ended in found]
    connection.outbound.answer(Unsuback(packet.packet_id, reasons))


def _pingreq(connection: Connection, session: Session, packet: object) -> None:
    connection.outbound.answer(Pingresp())


def _disconnect(connection: Connection, session: Session, packet: Disconnect) -> None:
    expiry = packet.properties.get(Property.SESSION_EXPIRY)
    if expiry is not None:
        if expiry and not session.expiry:
            raise ProtocolError("DISCONNECT gives a session expiry to a session that had none")
        session.expiry = connection.frontend.sessions.granted_expiry(expiry, session.user)
    connection.end(with_will=packet.reason != Reason.SUCCESS)


def _auth(connection: Connection, session: Session, packet: Auth) -> None:
    """Re-authenticate the client (4.12.1). Raises `ProtocolError` if the proof fails."""
    method, again = packet.properties.get(Property.AUTHENTICATION_METHOD), packet.reason == Reason.REAUTHENTICATE
    if method is None or method != connection.authorizer.method or packet.reason == Reason.SUCCESS:
        raise ProtocolError("AUTH without the authentication method of CONNECT")
    try:
        proof = connection.authorizer.prove(
            method, packet.properties.get(Property.AUTHENTICATION_DATA, b""), None, again
        )
    except ProtocolError as error:  # DISCONNECT has other reason codes than CONNACK
        bad = error.reason in (Reason.BAD_USER_NAME_OR_PASSWORD, Reason.BAD_AUTHENTICATION_METHOD)
        raise ProtocolError(str(error), Reason.NOT_AUTHORIZED if bad else error.reason) from None
    reason = Reason.SUCCESS if proof.done else Reason.CONTINUE_AUTHENTICATION
    properties: PropertyMap = {Property.AUTHENTICATION_METHOD: method, Property.AUTHENTICATION_DATA: proof.data}
    if not connection.outbound.answer(Auth(reason, properties)):
        raise ProtocolError("AUTH is larger than the client takes", Reason.PACKET_TOO_LARGE)


HANDLERS: dict[int, Callable[..., None]] = {
    PacketType.PUBACK: _puback,
    PacketType.PUBREC: _pubrec,
    PacketType.PUBREL: _pubrel,
    PacketType.PUBCOMP: _pubcomp,
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.PINGREQ: _pingreq,
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
"""By packet type: the handler. Each may raise `ProtocolError`."""
