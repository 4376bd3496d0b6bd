"""Describes one client's connection, as its session, the broker and operators see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from saps.frontend.mqtt.access.authorizer import Authorizer
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.common import Common
from saps.frontend.mqtt.connection.flow_control import FlowControl
from saps.frontend.mqtt.connection.keep_alive import KeepAlive
from saps.frontend.mqtt.connection.outbound import Outbound
from saps.frontend.mqtt.connection.output import Output, Port

if TYPE_CHECKING:
    from saps.frontend.mqtt.session.session import Session


class ClientConnection(ABC):
    """A client that is connected. `saps.frontend.mqtt.connection.connection.Connection` handles its input."""

    __slots__ = ("authorizer", "flow", "keep_alive", "outbound", "output", "peer", "session", "since")

    def __init__(self, common: Common, port: Port, peer: str, authorizer: Authorizer) -> None:
        self.peer = peer
        """The client's address and port, for log lines."""
        self.authorizer = authorizer
        self.session: Session | None = None
        self.since = 0.0
        """Time when the client entered its session, in seconds on the frontend's clock."""
        self.output = Output(common.turn, port, self)
        self.outbound = Outbound(common, self.output)
        self.flow = FlowControl(common, self.outbound)
        self.keep_alive = KeepAlive(common, self.flow)

    @abstractmethod
    def receive(self, data: bytes) -> None:
        """Handle input of the client, after the input that had to wait. Never raises."""

    @abstractmethod
    def close(self, reason: Reason, text: str = "") -> None:
        """Close the connection for `reason`. A client of MQTT 5.0 gets the reason; `text` goes to the log."""

    @abstractmethod
    def close_as_faulty(self) -> None:
        """Close the connection after an internal error. Call this in the `except` clause."""

    @property
    @abstractmethod
    def unfinished(self) -> int:
        """Bytes of kept input: incomplete packets, and packets that wait."""

    @property
    def closing(self) -> bool:
        """Whether the connection ends: the client is not read, and the driver closes the transport after the output."""
        return self.output.closing

    @property
    def port(self) -> Port:
        """The transport of the connection."""
        return self.output.port

    @property
    def user(self) -> str | None:
        """The client's user; None if it is anonymous."""
        return self.authorizer.user

    @property
    def address(self) -> str:
        """The client's IP address. Several clients may share it."""
        return self.peer.rpartition(":")[0] or self.peer

    @property
    def label(self) -> str:
        """Client identifier and address for log lines."""
        return f"{self.session.client_id!r} at {self.peer}" if self.session is not None else self.peer
