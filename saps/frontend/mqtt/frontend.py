"""Holds the state that the connections of one MQTT server share: sessions, timers, limits, pending output."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Protocol

from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.connection.turn import Turn
from saps.frontend.mqtt.counts import Counts
from saps.frontend.mqtt.fairness import Fairness
from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.orders import Orders
from saps.frontend.mqtt.session.sessions import Sessions
from saps.frontend.mqtt.timers import Timers
from saps.local.batch import Batch
from saps.local.hub import Hub
from saps.storage.journal import Journal

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection
    from saps.frontend.mqtt.connection.outbound import Outbound


class Status(Protocol):
    """The ``$SYS`` tree of the broker (`saps.frontend.mqtt.systree`)."""

    def matching(self, topic_filter: str) -> list[Batch]:
        """Return the messages for a new subscription with this filter, like retained messages."""


class Storage:
    """The state of the storage of sessions."""

    __slots__ = ("broken", "journal", "refusal")

    def __init__(self) -> None:
        self.journal: Journal | None = None
        """The journal of stored sessions; None without storage."""
        self.refusal: Reason | None = None
        """The reason code for requests that need new storage; None while the storage accepts them."""
        self.broken = False
        """Whether the storage accepts no changes at all, not even of stored sessions."""


class Congestion:
    """The reasons not to read publishers."""

    __slots__ = ("blocked", "paused")

    def __init__(self) -> None:
        self.blocked: list[Outbound] = []
        """Clients that the current input has met and that could not take a message."""
        self.paused = False
        """Whether the links to other brokers are congested."""


FOREVER = 0xFFFFFFFF
"""The session expiry interval of a session that never expires (3.1.2.11.2)."""


class Frontend:
    """The state that all connections share. It does no I/O: the driver supplies clock, random numbers and wake-ups."""

    def __init__(
        self,
        hub: Hub,
        limits: Limits,
        clock: Callable[[], float],
        rng: Random,
        arm_timer: Callable[[float], None] = lambda when: None,
    ) -> None:
        """Make a frontend. `clock`: monotonic seconds.

        The frontend calls `arm_timer(when)` when the next deadline gets earlier; the driver must call `timers.run` at
        that time. The driver must also set `turn.call_soon`, or call `turn.flush` after input.
        """
        self.hub = hub
        self.limits = limits
        self.clock = clock
        self.timers = Timers(arm_timer)
        self.connections: set[Connection] = set()
        self.gone: Connection | None = None
        """A closed connection that stands for all connections whose transport is lost."""
        self.turn = Turn()
        self.names: dict[bytes, str] = {}
        """By their bytes: the valid topics that clients have published to (`saps.frontend.mqtt.codec.publish_cut`)."""
        self.congestion = Congestion()
        self.orders = Orders()
        self.counts = Counts()
        self.fairness = Fairness(self)
        self.sessions = Sessions(self, rng)
        self.storage = Storage()
        self.status: Status | None = None
        """The ``$SYS`` tree; None without one."""

    def pause_publishers(self, paused: bool) -> None:
        """Pause or resume reading the clients that publish, as the links to other brokers are congested or not."""
        self.congestion.paused = paused
        for connection in list(self.connections):
            connection.flow.update()
