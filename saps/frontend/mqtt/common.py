"""Holds what all sessions and connections of one MQTT server use: hub, limits, clock, timers, counts, output."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from saps.frontend.mqtt.budget import Budget
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.connection.output import Turn
from saps.frontend.mqtt.counts import Counts
from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.timers import Timers
from saps.routing.hub import Hub
from saps.storage.journal import Journal

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.outbound import Outbound


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

    def ends(self, outbound: Outbound) -> bool:
        """Close a client's connection if the storage is broken: what it was to be told may not be stored. Return
        whether it is."""
        if self.broken:
            outbound.output.owner.close(self.refusal or Reason.UNSPECIFIED_ERROR, "its publication cannot be stored")
        return self.broken


class Congestion:
    """The reasons not to read publishers."""

    __slots__ = ("blocked", "paused")

    def __init__(self) -> None:
        self.blocked: dict[Outbound, None] = {}
        """Clients that the current input has met and that could not take a message."""
        self.paused = False
        """Whether the links to other brokers are congested."""


class Common:
    """What all sessions and connections use. It does no I/O: the driver supplies clock and wake-ups."""

    def __init__(
        self, hub: Hub, limits: Limits, clock: Callable[[], float], arm_timer: Callable[[float], None]
    ) -> None:
        """`clock`: monotonic seconds. `arm_timer(when)` is called when the next deadline gets earlier."""
        self.hub = hub
        self.limits = limits
        self.clock = clock
        self.timers = Timers(arm_timer)
        self.turn = Turn()
        self.names: dict[bytes, str] = {}
        """By their bytes: the valid topics that clients have published to (`saps.frontend.mqtt.codec.publish_cut`)."""
        self.congestion = Congestion()
        self.counts = Counts()
        self.queued = Budget(limits.maximum_queued_total)
        """The bytes that the queues of all clients share."""
        self.storage = Storage()
