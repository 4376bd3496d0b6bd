"""Every limit of the MQTT frontend, with its unit, its default and what raising it costs."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """What one client may ask of this broker."""

    maximum_packet_size: int = 1 << 20
    """Bytes of the largest packet accepted. A client can make the broker buffer one such packet."""

    maximum_connect_size: int = 1 << 14
    """Bytes of the largest CONNECT: until it is handled nobody knows who the client is."""

    maximum_unfinished_total: int = 64 << 20
    """Bytes of packets that have begun to come and are not complete, of all clients together. Beyond it the client with
    most of them, of the address with most of them, is disconnected ("quota exceeded")."""

    maximum_connections: int = 50_000
    """Connections at the same time. Beyond it a CONNECT is answered with "server busy", and a little further on new
    connections are closed at once. About 12 KiB each when idle, and a file descriptor (``ulimit -n``)."""

    maximum_sessions: int = 100_000
    """Sessions, of clients that are here or away. Beyond it those go whose clients have been away longest and that have
    nothing to deliver; if there is none, a client that wants to keep its session is refused ("quota exceeded"). About 3
    KiB each, beside what is queued."""

    connection_rate: float = 0.0
    """New connections a second, on average over a second; 0: any number. Beyond it a CONNECT is answered with
    "connection rate exceeded"."""

    message_rate: float = 0.0
    """Publications a second from one client, on average over a second; 0: any number. Beyond it the client is not read
    for a while, so that nothing is lost."""

    subscribe_rate: float = 10_000.0
    """Filters a second that one user, one client without a user, and one address may subscribe to, on average over a
    second; 0: any number. Beyond it SUBACK comes later, and the client is not read."""

    maximum_subscriptions: int = 10_000
    """Subscriptions of one client; more are refused one by one ("quota exceeded"). About 1 KiB each."""

    maximum_topic_levels: int = 128
    """Levels of a topic name or filter. In a mesh a publication may have to look at as many ranges of keys."""

    maximum_keep_alive: int = 0
    """Seconds, at most, of the keep-alive interval: an MQTT 5 client that asks for more, or for none, is told to use
    this one (3.2.2.3.14). 0: what the client asks for."""

    receive_maximum: int = 1024
    """QoS 1 and 2 publications a client may have unacknowledged (3.1.1 clients are not read while beyond it)."""

    send_maximum: int = 4096
    """QoS 1 and 2 messages in flight to one client, where the client does not ask for fewer. About 100 bytes each;
    what a fast client can take within one round trip is sent in bursts, what exceeds it one by one."""

    topic_alias_maximum: int = 64
    """Topic aliases a client may set. Each holds one topic name for as long as the connection lives."""

    outgoing_topic_aliases: int = 64
    """Topic aliases used towards a client that allows them. Its packets cannot be shared with other clients."""

    maximum_queued: int = 1000
    """Messages kept for a client that is away or slow: this many of QoS 0 (only while connected), and this many of
    QoS 1 and 2. Beyond it a new QoS 0 message is dropped; a client that is here and too slow for its QoS 1 and 2
    messages is disconnected ("quota exceeded"); for one that is away the *oldest* message gives way, as a device that
    comes back wants the latest state. All of it is counted. Retained messages for a new subscription are not among
    them: they wait where they are stored."""

    maximum_queued_bytes: int = 4 << 20
    """Payload bytes kept for such a client, with the same rules; payloads are shared between clients."""

    maximum_queued_total: int = 256 << 20
    """Bytes kept for all such clients together, each with its payload and 128 bytes a message. Beyond it the client
    for which one more would be kept is treated as if it had reached its own limit."""

    maximum_session_expiry: int = 7 * 24 * 3600
    """Seconds a session is kept without a connection, at most; also for 3.1.1 sessions with clean session 0."""

    anonymous_session_expiry: int = 3600
    """The same for clients without a user."""

    connect_timeout: float = 10.0
    """Seconds within which a new connection must send CONNECT."""

    linger: float = 5.0
    """Seconds a closed connection may take to receive its last packets."""

    write_high_water: int = 1 << 20
    """Bytes in a client's transport above which its messages are queued instead. The memory a slow client costs."""

    publisher_wait: float = 0.2
    """Seconds the publishers are not read for the sake of a subscriber over its high-water mark or with a queue half
    full, in all within `publisher_wait_interval`, before messages to it are queued and then dropped. It smooths bursts;
    raising it lets a slow subscriber hold publishers longer. Reading what acknowledgements have arrived costs none of
    it."""

    publisher_wait_interval: float = 10.0
    """Seconds until a subscriber that used up `publisher_wait` is waited for again: at most publisher_wait /
    publisher_wait_interval of the publishers' time is lost to one slow subscriber."""
