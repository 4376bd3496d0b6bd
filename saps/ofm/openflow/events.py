"""What comes of one switch's connection, as values: answers, packets, and why it ended; and what it may cost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from saps.ofm.openflow.requests import Request
from saps.ofm.openflow.values import Features, PacketIn, PortInfo, PortStatus, SwitchError


@dataclass(frozen=True, slots=True)
class Limits:
    """What a switch may cost us."""

    hello: int = 1024
    """Bytes of the longest hello. A switch's has 16."""
    reply: int = 32 << 20
    """Bytes of the longest multipart reply; a flow entry takes 100 to 200. More costs memory, several times as much."""
    handshake: float = 10.0
    """Seconds from the connection to its being ready."""
    idle: float = 5.0
    """Seconds without a message until the switch is asked whether it lives. Less costs an echo each."""
    timeout: float = 5.0
    """Seconds from then until it counts as lost."""
    answer: float = 30.0
    """Seconds until an answer is given up; a full table takes several."""


class Fault(Enum):
    """Why a connection was given up."""

    ENDED = "closed by the switch"
    TRUNCATED = "ended within a message"
    BAD_LENGTH = "impossible message length"
    MALFORMED = "malformed message"
    NO_HELLO = "first message is no hello"
    NO_COMMON_VERSION = "no common version"
    WRONG_VERSION = "message of another version"
    AUXILIARY = "auxiliary connections are not used"
    HANDSHAKE_REFUSED = "handshake refused"
    HANDSHAKE_TIMEOUT = "handshake not finished in time"
    WRONG_ANSWER = "answer to another question"
    REPLY_TOO_LONG = "multipart reply too long"
    SILENT = "no sign of life"


@dataclass(frozen=True, slots=True)
class Ready:
    """The handshake is done."""

    features: Features
    maker: tuple[str, str]
    ports: tuple[PortInfo, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request and the error that answered it."""

    request: Request
    error: SwitchError


@dataclass(frozen=True, slots=True)
class Done:
    """What was asked under `ticket` is answered, or done as far as it was not refused."""

    ticket: int
    answer: object
    """The answer to a question; None for a transaction."""
    refusals: tuple[Refusal, ...]
    """In the order of the requests."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """What was asked under `ticket` was not answered in time."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Complaint:
    """An error that answers nothing we wait for, such as a packet-out."""

    error: SwitchError


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection is of no use any more."""

    fault: Fault
    detail: str


Event: TypeAlias = Ready | Done | Overdue | Complaint | Lost | PacketIn | PortStatus
