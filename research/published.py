"""The figures printed in TD-CD-ODA 2017, by table and cell. The numbers are the paper's, not computed by us."""

from __future__ import annotations

from typing import NamedTuple


class Setting(NamedTuple):
    """One point of an experiment, in which each node takes `subscriptions` topics uniformly at random."""

    nodes: int
    topics: int
    subscriptions: int


class Table(NamedTuple):
    """A table of TD-CD-ODA 2017, section V: degrees over one parameter."""

    number: str
    maximum: bool
    """Whether the table has maximum degrees; else it has average degrees."""
    parameter: str
    """Name of the parameter."""
    columns: tuple[str, ...]
    """Names of the algorithms."""
    rows: dict[int, tuple[float, ...]]
    """The cells by x, the parameter's value."""

    def printed(self, algorithm: str, x: int) -> float | None:
        """Return the printed cell, or None for an algorithm without a column."""
        return self.rows[x][self.columns.index(algorithm)] if algorithm in self.columns else None


COLUMNS = ("GM", "CD-ODA-II", "2D-ODA", "TD-CD-ODA")

TABLES = (
    Table(
        "I",
        False,
        "nodes",
        COLUMNS,
        {
            200: (6.56, 13.58, 14.38, 17.35),
            250: (6.48, 13.56, 15.13, 17.64),
            300: (6.10, 13.06, 13.64, 18.00),
            350: (6.08, 13.02, 13.34, 17.90),
            400: (5.94, 12.93, 13.29, 17.98),
        },
    ),
    Table(
        "II",
        True,
        "nodes",
        COLUMNS,
        {
            200: (20, 131, 128, 114),
            250: (21, 176, 153, 146),
            300: (22, 209, 191, 183),
            350: (23, 231, 240, 204),
            400: (25, 259, 256, 240),
        },
    ),
    Table(
        "III",
        False,
        "topics",
        COLUMNS,
        {
            200: (9.41, 14.81, 15.02, 17.16),
            250: (10.34, 14.89, 14.82, 16.90),
            300: (10.91, 14.79, 14.49, 16.42),
            350: (11.66, 14.65, 14.21, 16.00),
            400: (11.99, 14.36, 13.90, 15.55),
        },
    ),
    Table(
        "IV",
        True,
        "topics",
        COLUMNS,
        {
            200: (30, 90, 80, 62),
            250: (28, 74, 53, 51),
            300: (27, 62, 49, 42),
            350: (32, 58, 43, 39),
            400: (35, 51, 44, 34),
        },
    ),
    Table(
        "V",
        False,
        "subscriptions",
        COLUMNS,
        {
            15: (9.63, 20.92, 23.25, 29.49),
            20: (9.32, 21.15, 23.21, 29.81),
            25: (8.92, 21.48, 24.36, 32.07),
            30: (8.61, 20.63, 22.35, 33.63),
            35: (8.22, 19.46, 20.15, 33.98),
        },
    ),
    Table(
        "VI",
        True,
        "subscriptions",
        COLUMNS,
        {
            15: (23, 143, 137, 123),
            20: (21, 180, 173, 166),
            25: (20, 197, 190, 189),
            30: (21, 199, 199, 189),
            35: (17, 199, 199, 190),
        },
    ),
)
"""Tables I to VI. The paper's CD-ODA II is called CD-ODA-II here."""
