"""Who follows publications through a broker: traces (`saps.tracing`), and operators (`saps.operations.following`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from saps.local.batch import Batch
from saps.mesh import Done


class Trace(Protocol):
    """The publications of one batch that are traced."""

    def delivered(self, matched: Sequence[int]) -> None:
        """The subscribers here have it: so many of each topic."""

    def routed(self, done: Done | None) -> Done | None:
        """The mesh is about to take it. Returns what the mesh is to call."""


class Tracer(Protocol):
    """Asked by hub and sessions. `routes` are `saps.local.routes.Route`, `sender` and `agent` subscriber agents."""

    def published(self, batch: Batch, routes: Sequence[Any], sender: Any) -> tuple[Batch, Trace | None]:
        """A batch is published here. Returns it, with what marks the publications that are traced."""

    def arrived(self, batch: Batch, routes: Sequence[Any]) -> Trace | None:
        """A batch has come from another broker."""

    def denied(self, agent: Any, topics: Sequence[str]) -> None:
        """A client may not publish to these topics."""

    def lost(self, agent: Any, batch: Batch, why: str) -> None:
        """A subscriber does not get these publications."""
