"""``kill -9`` of a broker process under traffic; `python -m benchmarks.durability --kills 50` is the long run of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.durability import run
from saps.storage.place import Server
from tests.storage.conftest import Place


@pytest.mark.chaos
async def test_killed_again_and_again_nothing_acknowledged_is_lost(tmp_path: Path, seed: int, place: Place) -> None:
    url = place.url if isinstance(place, Server) else ""
    outcome = await run(int(os.environ.get("TEST_KILLS", "5")), seed, "full", tmp_path, url)
    assert outcome.good, outcome
