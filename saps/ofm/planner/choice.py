"""Names the planners a controller can have. The module is separate, so that settings need no numpy."""

from __future__ import annotations

from typing import Literal, TypeAlias

Choice: TypeAlias = Literal["steiner", "shortest", "mehlhorn", "sdnps", "balanced", "cost-first"]
"""`steiner` is `saps.ofm.trees.tree.SharedTree`; the others are those of `saps.ofm.planner.fitted`."""
