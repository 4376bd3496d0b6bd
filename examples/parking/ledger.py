"""Whose each place is: a small database that all reservation workers share (SQLite).

MQTT may bring a request twice, and a driver who hears nothing asks again. So a request has a name, and a request that
is there already gets the place that it got before: what is done at least once is done exactly once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from examples.parking.town import CarPark


def found(file: Path, parks: Sequence[CarPark]) -> None:
    """A new ledger, all places free."""
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(
            "CREATE TABLE places (park TEXT, number INTEGER, request TEXT UNIQUE, PRIMARY KEY (park, number))"
        )
        rows = [(park.name, number) for park in parks for number in range(1, park.places + 1)]
        database.executemany("INSERT INTO places (park, number) VALUES (?, ?)", rows)
    database.close()


class Ledger:
    """One user's connection to the ledger."""

    def __init__(self, file: Path) -> None:
        self._database = sqlite3.connect(file, isolation_level=None, timeout=30)
        self._database.execute("PRAGMA synchronous = NORMAL")

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def reserve(self, park: str, request: str) -> tuple[int | None, bool]:
        """The place that the request gets, None if all are taken; and whether it was there already."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            row = self._database.execute("SELECT number FROM places WHERE request = ?", (request,)).fetchone()
            if row is not None:
                return row[0], True
            row = self._database.execute(
                "UPDATE places SET request = ? WHERE park = ? AND number = "
                "(SELECT min(number) FROM places WHERE park = ? AND request IS NULL) RETURNING number",
                (request, park, park),
            ).fetchone()
            return (row[0] if row is not None else None), False
        finally:
            self._database.execute("COMMIT")

    def free(self, park: str) -> int:
        """How many places are free."""
        query = "SELECT count(*) FROM places WHERE park = ? AND request IS NULL"
        return int(self._database.execute(query, (park,)).fetchone()[0])

    def taken(self) -> dict[tuple[str, int], str]:
        """The request that has each place, by park and number."""
        query = "SELECT park, number, request FROM places WHERE request IS NOT NULL"
        return {(park, number): request for park, number, request in self._database.execute(query)}
