"""For the tests of this folder: the product's event loop, and both engines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from benchmarks.postgres import PostgresServer
from saps.storage.place import Server

Place = Path | Server


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(params=["sqlite", "postgresql"])
def new_place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Place]:
    """Makes places where broker ``b`` has stored nothing so far, in one engine and in the other."""
    if request.param == "sqlite":
        return lambda: tmp_path_factory.mktemp("stored") / "broker.db"
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return lambda: Server(postgres.schema(), "b")


@pytest.fixture
def place(new_place: Callable[[], Place]) -> Place:
    """One of them."""
    return new_place()
