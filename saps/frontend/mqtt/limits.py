"""Defines every limit of the MQTT frontend, with its unit, its default and the cost of raising it."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """The limits of one broker for its clients."""

    maximum_packet_size: int = 1 << 20
    """Largest accepted packet in bytes. A client can make the broker buffer one packet of this size."""

    maximum_connect_size: int = 1 << 14
    """Largest accepted CONNECT in bytes. It is smaller, as the client is unknown until its CONNECT is handled."""

    maximum_unfinished_total: int = 64 << 20
    """Most bytes of incomplete packets of all clients together. Above it the broker disconnects the client with the
    most bytes, of the address with the most bytes ("quota exceeded")."""

    maximum_connections: int = 50_000
    """Most simultaneous connections. Above it the broker answers a CONNECT with "server busy"; above 9/8 of it, it
    aborts new connections. An idle connection takes about 12 KiB and a file descriptor (``ulimit -n``)."""

    maximum_sessions: int = 100_000
    """Most sessions, of clients that are connected or away. Above it the broker evicts sessions with nothing to
    deliver, those first whose clients have been away longest. If there are none, it refuses clients that want to keep
    their session ("quota exceeded"). A session takes about 3 KiB beside its queue."""

    connection_rate: float = 0.0
    """Most new connections a second, averaged over a second; 0: no limit. Above it the broker answers a CONNECT with
    "connection rate exceeded"."""

    message_rate: float = 0.0
    """Most publications a second from one client, averaged over a second; 0: no limit. Above it the client is not read
    for a while, so nothing is lost."""

    subscribe_rate: float = 10_000.0
    """Most new filters a second of one user, one client without a user, and one address, averaged over a second; 0: no
    limit. Above it the SUBACK is delayed, and the client is not read."""

    maximum_subscriptions: int = 10_000
    """Most subscriptions of one client; the broker refuses each further filter ("quota exceeded"). A subscription takes
    about 1 KiB."""

    maximum_topic_levels: int = 128
    """Most levels of a topic name or filter. In a mesh a publication may have to search as many ranges of keys."""

    maximum_keep_alive: int = 0
    """Longest keep-alive interval in seconds. An MQTT 5.0 client that requests a longer one, or none, must use this one
    (3.2.2.3.14). 0: no limit."""

    receive_maximum: int = 1024
    """Most unacknowledged QoS 1 and 2 publications of one client. A 3.1.1 client above it is not read."""

    send_maximum: int = 4096
    """Most QoS 1 and 2 messages in flight to one client, unless the client allows fewer. Each takes about 100 bytes.
    The broker sends messages within this window in bursts, and further ones singly. So it should cover a fast client's
    round trip."""

    topic_alias_maximum: int = 64
    """Most topic aliases that a client may set. Each keeps one topic name as long as the connection."""

    outgoing_topic_aliases: int = 64
    """Most topic aliases towards a client that allows them. Such a client's packets cannot be shared with others."""

    maximum_queued: int = 1000
    """Most queued messages of a client that is away or slow: this many with QoS 0 (only while connected), and this many
    with QoS 1 and 2. Above it:

    1. The broker drops a new QoS 0 message.
    2. It disconnects a connected client that is too slow for its QoS 1 and 2 messages ("quota exceeded").
    3. For a client that is away it drops the *oldest* QoS 1 or 2 message, as a returning device wants the latest state.

    The broker counts all of these. Retained messages for a new subscription do not count: they stay in the retained
    store until they are sent."""

    maximum_queued_bytes: int = 4 << 20
    """Most queued payload bytes of one client, with the rules of `maximum_queued`. Clients share payloads in memory."""

    maximum_queued_total: int = 256 << 20
    """Most queued bytes of all clients together: payloads and 128 bytes a message. Above it a client with a new message
    to queue is treated as if it had reached its own limit."""

    maximum_session_expiry: int = 7 * 24 * 3600
    """Longest session expiry interval in seconds, also for 3.1.1 sessions with clean session 0."""

    anonymous_session_expiry: int = 3600
    """Longest session expiry interval of clients without a user, in seconds."""

    connect_timeout: float = 10.0
    """Limit in seconds for a new connection to send its CONNECT."""

    linger: float = 5.0
    """Limit in seconds for a closed connection to receive its last packets."""

    write_high_water: int = 1 << 20
    """High-water mark of a client's transport in bytes. Above it messages are queued. A slow client takes this
    memory."""

    publisher_wait: float = 0.2
    """Longest wait of publishers for one slow subscriber, in seconds within `publisher_wait_interval`. A subscriber is
    slow above its high-water mark, or with a queue half full. After the wait its messages are queued and then dropped.
    The wait smooths bursts; a longer one lets a slow subscriber hold publishers longer. The time to read
    acknowledgements that have arrived does not count."""

    publisher_wait_interval: float = 10.0
    """Seconds until publishers wait again for a subscriber that has used up `publisher_wait`. One slow subscriber costs
    publishers at most publisher_wait / publisher_wait_interval of their time."""
