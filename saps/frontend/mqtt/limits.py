"""Every limit of the MQTT frontend, with its unit, its default and what raising it costs."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """What one client may ask of this broker."""

    maximum_packet_size: int = 1 << 20
    """Bytes of the largest packet accepted. A client can make the broker buffer one such packet."""

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
    QoS 1 and 2. Beyond it a new QoS 0 message is dropped, and the *oldest* QoS 1 or 2 message, as a device that
    comes back wants the latest state. Dropped messages are counted."""

    maximum_queued_bytes: int = 4 << 20
    """Payload bytes kept for such a client, with the same rules; payloads are shared between clients."""

    maximum_session_expiry: int = 7 * 24 * 3600
    """Seconds a session is kept without a connection, at most; also for 3.1.1 sessions with clean session 0."""

    connect_timeout: float = 10.0
    """Seconds within which a new connection must send CONNECT."""

    linger: float = 5.0
    """Seconds a closed connection may take to receive its last packets."""

    write_high_water: int = 1 << 20
    """Bytes in a client's transport above which its messages are queued instead. The memory a slow client costs."""

    patience: float = 0.2
    """Seconds the publishers are not read for the sake of a subscriber over its high-water mark, before messages to
    it are queued and then dropped. It smooths bursts; raising it lets a slow subscriber hold publishers longer."""

    patience_again: float = 10.0
    """Seconds until a subscriber that used up the patience is waited for again: at most patience / patience_again
    of the publishers' time is lost to one slow subscriber."""
