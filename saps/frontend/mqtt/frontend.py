"""Joins the parts of one MQTT server's protocol machine: sessions, connections, fairness, operators' orders."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from saps.frontend.mqtt.common import Common
from saps.frontend.mqtt.connection.client_connection import ClientConnection
from saps.frontend.mqtt.fairness import Fairness
from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.orders import Orders
from saps.frontend.mqtt.session.sessions import Sessions
from saps.routing.batch import Batch
from saps.routing.hub import Hub


class Status(Protocol):
    """The ``$SYS`` tree of the broker (`saps.frontend.mqtt.systree`)."""

    def matching(self, topic_filter: str) -> list[Batch]:
        """Return the messages for a new subscription with this filter, like retained messages."""


class Frontend(Common):
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
        super().__init__(hub, limits, clock, arm_timer)
        self.connections: set[ClientConnection] = set()
        self.orders = Orders()
        self.sessions = Sessions(self, rng)
        self.fairness = Fairness(self, self.connections, self.sessions, self.orders)
        self.status: Status | None = None
        """The ``$SYS`` tree; None without one."""

    def pause_publishers(self, paused: bool) -> None:
        """Pause or resume reading the clients that publish, as the links to other brokers are congested or not."""
        self.congestion.paused = paused
        for connection in list(self.connections):
            connection.flow.update()
