"""The settings of limits (``[limits]``)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from saps.config.knobs import knob
from saps.frontend.mqtt.limits import Limits

_LIMITS = Limits()


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of MQTT clients at this broker (``[limits]``)."""

    maximum_packet_size: Annotated[
        int,
        knob(
            "Largest packet accepted from a client",
            unit="bytes",
            cost="a client can make the broker buffer one such packet",
            ge=128,
            le=268435460,
        ),
    ] = _LIMITS.maximum_packet_size
    maximum_connect_size: Annotated[
        int,
        knob(
            "Largest CONNECT accepted, from a client not known yet",
            unit="bytes",
            cost="strangers can make the broker buffer more",
            ge=128,
            le=268435460,
        ),
    ] = _LIMITS.maximum_connect_size
    maximum_unfinished_total: Annotated[
        int,
        knob(
            "Incomplete packets of all clients together; beyond it the clients with most, of the address with"
            " most, are disconnected",
            unit="bytes",
            cost="memory",
            ge=65536,
        ),
    ] = _LIMITS.maximum_unfinished_total
    maximum_connections: Annotated[
        int,
        knob(
            "Client connections; further ones are told that the server is busy",
            unit="connections",
            cost="about 12 KiB and a file descriptor each",
            ge=1,
        ),
    ] = _LIMITS.maximum_connections
    maximum_sessions: Annotated[
        int,
        knob(
            "Sessions; beyond it the longest absent with nothing to deliver end, then lasting sessions are refused",
            unit="sessions",
            cost="about 3 KiB each, besides what is queued",
            ge=1,
        ),
    ] = _LIMITS.maximum_sessions
    connection_rate: Annotated[
        float,
        knob(
            "New connections a second; further ones are refused. 0: any number",
            unit="1/s",
            cost="a storm of clients takes more of the processor",
            ge=0,
        ),
    ] = _LIMITS.connection_rate
    message_rate: Annotated[
        float,
        knob(
            "Publications a second of one client, which is not read beyond. 0: any number",
            unit="1/s",
            cost="one client takes more of the processor",
            ge=0,
        ),
    ] = _LIMITS.message_rate
    subscribe_rate: Annotated[
        float,
        knob(
            "Filters a second subscribed by one user, client or address; beyond it SUBACK comes later. 0: any number",
            unit="1/s",
            cost="one of them takes more of the processor",
            ge=0,
        ),
    ] = _LIMITS.subscribe_rate
    maximum_subscriptions: Annotated[
        int,
        knob(
            "Subscriptions of one client; further ones are refused",
            unit="subscriptions",
            cost="about 1 KiB each",
            ge=1,
        ),
    ] = _LIMITS.maximum_subscriptions
    maximum_topic_levels: Annotated[
        int,
        knob(
            "Levels of a topic name or filter",
            unit="levels",
            cost="a publication may have to look at as many ranges of keys in the mesh",
            ge=1,
            le=65536,
        ),
    ] = _LIMITS.maximum_topic_levels
    maximum_keep_alive: Annotated[
        int,
        knob(
            "Longest keep-alive interval; MQTT 5 clients are told to use it. 0: any",
            unit="s",
            cost="clients that vanished are noticed later",
            ge=0,
            le=65535,
        ),
    ] = _LIMITS.maximum_keep_alive
    receive_maximum: Annotated[
        int,
        knob(
            "QoS 1 and 2 publications a client may have unacknowledged; an MQTT 3.1.1 client is not read beyond",
            unit="messages",
            cost="memory for each of them",
            ge=1,
            le=65535,
        ),
    ] = _LIMITS.receive_maximum
    send_maximum: Annotated[
        int,
        knob(
            "QoS 1 and 2 messages in flight to a client that does not ask for fewer",
            unit="messages",
            cost="about 150 bytes each",
            ge=1,
            le=65535,
        ),
    ] = _LIMITS.send_maximum
    topic_alias_maximum: Annotated[
        int,
        knob(
            "Topic aliases a client may set",
            unit="aliases",
            cost="one topic name each, for as long as the connection lives",
            ge=0,
            le=65535,
        ),
    ] = _LIMITS.topic_alias_maximum
    outgoing_topic_aliases: Annotated[
        int,
        knob(
            "Topic aliases used towards a client that allows them",
            unit="aliases",
            cost="packets with an alias are not shared with other clients",
            ge=0,
            le=65535,
        ),
    ] = _LIMITS.outgoing_topic_aliases
    maximum_queued: Annotated[
        int,
        knob(
            "Messages kept for a client that is away or slow, of QoS 0 and of QoS 1 and 2 each",
            unit="messages",
            cost="memory for each such client",
            ge=0,
        ),
    ] = _LIMITS.maximum_queued
    maximum_queued_bytes: Annotated[
        int,
        knob(
            "Payload kept for such a client",
            unit="bytes",
            cost="memory for each such client",
            ge=0,
        ),
    ] = _LIMITS.maximum_queued_bytes
    maximum_queued_total: Annotated[
        int,
        knob(
            "Payload kept for all such clients, and 128 bytes a message",
            unit="bytes",
            cost="memory, where payloads are not shared",
            ge=0,
        ),
    ] = _LIMITS.maximum_queued_total
    maximum_session_expiry: Annotated[
        int,
        knob(
            "Longest time a session is kept without a connection",
            unit="s",
            cost="abandoned sessions stay that much longer",
            ge=0,
            le=4294967294,
        ),
    ] = _LIMITS.maximum_session_expiry
    anonymous_session_expiry: Annotated[
        int,
        knob(
            "The same for clients without a user",
            unit="s",
            cost="sessions nobody comes back to are kept longer",
            ge=0,
            le=4294967295,
        ),
    ] = _LIMITS.anonymous_session_expiry
    connect_timeout: Annotated[
        float,
        knob(
            "Time within which a new connection must send CONNECT",
            unit="s",
            cost="silent connections hold their socket longer",
            gt=0,
            le=3600,
        ),
    ] = _LIMITS.connect_timeout
    linger: Annotated[
        float,
        knob(
            "Time a closed connection may take to receive its last packets",
            unit="s",
            cost="dead peers hold their socket longer",
            ge=0,
            le=3600,
        ),
    ] = _LIMITS.linger
    write_high_water: Annotated[
        int,
        knob(
            "Bytes waiting in a client's transport above which its messages are queued",
            unit="bytes",
            cost="memory for each slow client",
            ge=1024,
        ),
    ] = _LIMITS.write_high_water
    publisher_wait: Annotated[
        float,
        knob(
            "How long publishers wait for a slow subscriber before its messages are queued, then dropped",
            unit="s",
            cost="a slow subscriber holds publishers longer",
            ge=0,
            le=60,
        ),
    ] = _LIMITS.publisher_wait
    publisher_wait_interval: Annotated[
        float,
        knob(
            "Time until such a subscriber is waited for again",
            unit="s",
            cost="a subscriber slow in bursts loses messages sooner",
            ge=0,
            le=86400,
        ),
    ] = _LIMITS.publisher_wait_interval

    def limits(self) -> Limits:
        """Return the limits in the form that the MQTT frontend takes."""
        return msgspec.convert(self, Limits, from_attributes=True)
