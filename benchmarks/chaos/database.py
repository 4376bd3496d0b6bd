"""The PostgreSQL server in which the brokers of a run store their sessions (`storage.url`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from benchmarks.postgres import PostgresServer, programs

TABLES = ("saps_brokers", "saps_records", "saps_quarantine")


def possible() -> bool:
    """PostgreSQL and psycopg are installed."""
    return programs() is not None


class Database:
    """One server for all brokers. It lives as long as the thread that has started it."""

    def __init__(self) -> None:
        self._server = PostgresServer()
        self._thread = ThreadPoolExecutor(1, "database")

    @property
    def url(self) -> str:
        """What brokers are told."""
        return self._server.url

    async def start(self) -> None:
        """It takes connections."""
        await self._run(self._server.__enter__)

    async def stop(self) -> None:
        """It is gone, and all that it had."""
        await self._run(self._server.__exit__)
        self._thread.shutdown()

    async def restart(self, seconds: float) -> None:
        """``kill -9``, and after so many seconds it is started again, with all that it had committed."""
        await self._run(self._server.kill)
        try:
            await asyncio.sleep(seconds)
        finally:
            await self._run(self._server.start)

    async def wipe(self, broker: str) -> None:
        """What it had of a broker is gone. The broker's process has ended."""

        def delete() -> None:
            for table in TABLES:
                self._server.sql(f"DELETE FROM {table} WHERE broker = %s", broker)

        await self._run(delete)

    async def _run(self, action: Callable[[], object]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, action)
