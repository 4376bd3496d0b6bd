"""The interface for tracing publications through a broker: for OpenTelemetry (`saps.tracing`) and for operators
(`saps.operations.following`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from saps.mesh import Done
from saps.routing.batch import Batch


class Trace(Protocol):
    """The traced publications of one batch."""

    def delivered(self, matched: Sequence[int]) -> None:
        """Note that the local subscribers have the batch: so many for each topic."""

    def routed(self, done: Done | None) -> Done | None:
        """Note that the batch goes to the mesh. Returns the callback to give to the mesh instead of `done`."""


class Tracer(Protocol):
    """Called by hub and sessions. `routes` are `saps.routing.routes.Route`, `sender` and `agent` subscriber agents."""

    def published(self, batch: Batch, routes: Sequence[Any], sender: Any) -> tuple[Batch, Trace | None]:
        """Note a batch published here. Returns the batch, marked if any of it is traced, and its trace."""

    def arrived(self, batch: Batch, routes: Sequence[Any]) -> Trace | None:
        """Note a batch from another broker. Returns its trace, if any of it is traced."""

    def denied(self, agent: Any, topics: Sequence[str]) -> None:
        """Note that a client may not publish to these topics."""

    def lost(self, agent: Any, batch: Batch, why: str) -> None:
        """Note that a subscriber does not get these publications, and why."""
