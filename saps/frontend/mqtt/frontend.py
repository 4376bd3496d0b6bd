"""What the connections of one MQTT server share: sessions, timers, limits, and who has something to send."""

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
    """What the broker says about itself (`saps.frontend.mqtt.systree`)."""

    def matching(self, topic_filter: str) -> list[Batch]:
        """What a new subscription with this filter gets, as if it were retained."""


class Storage:
    """How the storage of sessions is, where there is one."""

    __slots__ = ("broken", "journal", "refusal")

    def __init__(self) -> None:
        self.journal: Journal | None = None
        """Where sessions are stored, if they are."""
        self.refusal: Reason | None = None
        """Why nothing new that would have to be stored is taken at present."""
        self.broken = False
        """Nothing at all can be stored, not even the changes of what is there."""


class Congestion:
    """Why publishers are not read."""

    __slots__ = ("blocked", "paused")

    def __init__(self) -> None:
        self.blocked: list[Outbound] = []
        """Clients that could not take a message while the current input was handled."""
        self.paused = False
        """The links to other brokers are congested."""


FOREVER = 0xFFFFFFFF
"""The session expiry interval that means: never (3.1.2.11.2)."""


class Frontend:
    """The common state of all connections. Pure: the driver hands in the clock, the random numbers and two wake-ups."""

    def __init__(
        self,
        hub: Hub,
        limits: Limits,
        clock: Callable[[], float],
        rng: Random,
        arm_timer: Callable[[float], None] = lambda when: None,
    ) -> None:
        """`arm_timer(when)`: call `timers.run` then."""
        self.hub = hub
        self.limits = limits
        self.clock = clock
        self.timers = Timers(arm_timer)
        self.connections: set[Connection] = set()
        self.gone: Connection | None = None
        """Stands for all whose transport is gone."""
        self.turn = Turn()
        self.names: dict[bytes, str] = {}
        """The valid topics that have been published to, by their bytes (`saps.frontend.mqtt.codec.publish_cut`)."""
        self.congestion = Congestion()
        self.orders = Orders()
        self.counts = Counts()
        self.fairness = Fairness(self)
        self.sessions = Sessions(self, rng)
        self.storage = Storage()
        self.status: Status | None = None
        """The ``$SYS`` tree, if there is one."""

    def pause_publishers(self, paused: bool) -> None:
        """While paused, clients that publish are not read: the mesh is congested."""
        self.congestion.paused = paused
        for connection in list(self.connections):
            connection.flow.update()
