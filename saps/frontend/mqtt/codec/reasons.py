"""Defines the reason codes of MQTT 5.0 (section 2.4), the return codes of 3.1.1 (3.2.2.3), and their errors."""

from __future__ import annotations

from enum import IntEnum


class Reason(IntEnum):
    """The reason code of an answer; 0x80 and above are failures."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


RETURN_CODES_311 = {
    Reason.SUCCESS: 0,
    Reason.UNSUPPORTED_PROTOCOL_VERSION: 1,
    Reason.CLIENT_IDENTIFIER_NOT_VALID: 2,
    Reason.SERVER_UNAVAILABLE: 3,
    Reason.SERVER_BUSY: 3,
    Reason.SERVER_SHUTTING_DOWN: 3,
    Reason.USE_ANOTHER_SERVER: 3,
    Reason.SERVER_MOVED: 3,
    Reason.QUOTA_EXCEEDED: 3,
    Reason.CONNECTION_RATE_EXCEEDED: 3,
    Reason.BAD_USER_NAME_OR_PASSWORD: 4,
    Reason.NOT_AUTHORIZED: 5,
    Reason.BANNED: 5,
}
"""By reason: the CONNACK return code of MQTT 3.1.1. Any other reason closes the connection without a CONNACK."""

SUBACK_FAILURE_311 = 0x80
"""The SUBACK return code of MQTT 3.1.1 for a refused subscription."""

CONNACK_REASONS = frozenset(
    Reason(code) for code in (0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, *range(0x99, 0x9E), 0x9F)
)
"""Reason codes of a CONNACK (Table 3-1)."""

DISCONNECT_REASONS = frozenset(
    Reason(code) for code in (0x00, *range(0x80, 0x84), 0x87, 0x89, 0x8B, *range(0x8D, 0x91), *range(0x93, 0xA3))
)
"""Reason codes of a server's DISCONNECT (Table 3-10)."""


AUTH_REASONS = frozenset((Reason.SUCCESS, Reason.CONTINUE_AUTHENTICATION, Reason.REAUTHENTICATE))
"""Reason codes of an AUTH (Table 3-11)."""

_TAKEN_OR_NOT = frozenset(Reason(code) for code in (0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99))
_RELEASED_OR_NOT = frozenset((Reason.SUCCESS, Reason.PACKET_IDENTIFIER_NOT_FOUND))
ACK_REASONS: dict[int, frozenset[Reason]] = {
    4: _TAKEN_OR_NOT,
    5: _TAKEN_OR_NOT,
    6: _RELEASED_OR_NOT,
    7: _RELEASED_OR_NOT,
}
"""By packet type: the reason codes of PUBACK, PUBREC, PUBREL and PUBCOMP (Tables 3-4 to 3-7)."""


class MqttError(Exception):
    """The peer broke the protocol. The caller must close its connection with `reason`."""

    def __init__(self, text: str, reason: Reason) -> None:
        super().__init__(text)
        self.reason = reason


class MalformedPacket(MqttError):  # noqa: N818 - the standard's term
    """A packet that cannot be parsed (4.13.1)."""

    def __init__(self, text: str, reason: Reason = Reason.MALFORMED_PACKET) -> None:
        super().__init__(text, reason)


class ProtocolError(MqttError):
    """A packet that can be parsed but is not allowed here (4.13.1)."""

    def __init__(self, text: str, reason: Reason = Reason.PROTOCOL_ERROR) -> None:
        super().__init__(text, reason)
