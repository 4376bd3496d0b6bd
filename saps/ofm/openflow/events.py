"""Defines the events of one switch's connection as values: answers, packets, and the reason of its end; and its
limits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from saps.ofm.openflow.requests import Request
from saps.ofm.openflow.values import Features, PacketIn, PortInfo, PortStatus, SwitchError


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the resources that a switch may use."""

    hello: int = 1024
    """Longest hello in bytes; a switch's has 16."""
    reply: int = 32 << 20
    """Longest multipart reply in bytes; a flow entry takes 100 to 200. A reply costs several times its length in
    memory."""
    handshake: float = 10.0
    """Limit in seconds from the connection to its being ready."""
    idle: float = 5.0
    """Seconds without a message until the switch is probed. A smaller value costs an echo each."""
    timeout: float = 5.0
    """Seconds from the probe until the switch is declared dead."""
    answer: float = 30.0
    """Timeout of an answer in seconds; a full table takes several."""


class Fault(Enum):
    """The reason why a connection was given up."""

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
    """The end of the handshake: the switch is usable."""

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
    """The answer to the request `ticket`. A transaction has been done, except for what was refused."""

    ticket: int
    answer: object
    """Answer to a question; None for a transaction."""
    refusals: tuple[Refusal, ...]
    """Refusals in the order of the requests."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """The request `ticket` was not answered in time."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Complaint:
    """An error that answers no pending request, for example of a packet-out."""

    error: SwitchError


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection is unusable from now on."""

    fault: Fault
    detail: str


Event: TypeAlias = Ready | Done | Overdue | Complaint | Lost | PacketIn | PortStatus
