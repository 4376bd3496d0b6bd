"""Tables 1 to 9 of SDNPS (2016), section 5.1, as printed, and the settings of their experiments.

Figure 5 is read as three switches in a row: nodes 1, 2 and 3 at the first, 4 and 5 at the second, 6 and 7 at the third;
a hop is a switch. Section 5.1.3 does not say which nodes publish. Here nodes 1 and 3 do, and the subscribers are those
of Table 1.
"""

from __future__ import annotations

from typing import NamedTuple

NODES = {1: "c1b1", 2: "c1b2", 3: "c1b3", 4: "c2b1", 5: "c2b2", 6: "c3b1", 7: "c3b2"}
"""The paper's nodes -> the lab's hosts."""
TOPOLOGY = """
links = [["s1", "s2"], ["s2", "s3"]]
[switches]
s1 = { hosts = 3 }
s2 = { hosts = 2 }
s3 = { hosts = 2 }
"""
PACKETS, RUNS = 100_000, 1000
"""Packets of one test, and tests of a cell, in the paper."""
ALPHA = 0.05
"""Level of significance of the paper's tests."""


class Cell(NamedTuple):
    """One row of a table: publishers, subscribers and flow entries, with the paper's results."""

    table: int
    hops: int
    publishers: tuple[int, ...]
    subscribers: tuple[int, ...]
    entries: int
    """Further flow entries in each switch, of other brokers."""
    delay_ms: float
    """Time from the first packet sent to the last received in ms, as the paper defines its delay."""
    loss: float
    """Lost packets in per cent."""

    @property
    def label(self) -> str:
        """Text that distinguishes the row from others of its table."""
        if self.table >= FIRST_OF_ENTRIES:
            return f"{self.hops} hop{'s' * (self.hops > 1)}, {self.entries:,} entries"
        who = ", ".join(map(str, self.publishers))
        return f"{self.hops} hop{'s' * (self.hops > 1)}: {who} to {', '.join(map(str, self.subscribers))}"


FIRST_OF_ENTRIES = 4
"""Number of the first table about flow entries."""

CELLS = (
    Cell(1, 1, (1,), (2,), 0, 2439.16, 4.23),
    Cell(1, 2, (1,), (4,), 0, 2754.45, 3.21),
    Cell(1, 3, (1,), (6,), 0, 15098.67, 0.00),
    Cell(2, 1, (1,), (2, 3), 0, 2679.00, 5.85),
    Cell(2, 2, (1,), (2, 4, 5), 0, 13248.00, 0.00),
    Cell(2, 3, (1,), (2, 4, 6, 7), 0, 18974.67, 0.01),
    Cell(3, 1, (1, 3), (2,), 0, 4872.0, 6.41),
    Cell(3, 2, (1, 3), (4,), 0, 22138.0, 0.12),
    Cell(3, 3, (1, 3), (6,), 0, 23843.0, 0.00),
    Cell(4, 1, (1,), (2,), 1000, 2476, 4.78),
    Cell(4, 1, (1,), (2,), 5000, 2927, 2.15),
    Cell(4, 1, (1,), (2,), 10_000, 3044, 4.98),
    Cell(4, 1, (1,), (2,), 50_000, 3200, 2.53),
    Cell(5, 2, (1,), (4,), 1000, 2791, 3.29),
    Cell(5, 2, (1,), (4,), 5000, 3325, 0.00),
    Cell(5, 2, (1,), (4,), 50_000, 3574, 0.21),
    Cell(6, 3, (1,), (6,), 1000, 15098, 0.00),
    Cell(6, 3, (1,), (6,), 5000, 17486, 0.00),
    Cell(6, 3, (1,), (6,), 50_000, 17959, 0.00),
)
"""All rows of Tables 1 to 6, in the paper's order."""


class Anova(NamedTuple):
    """A one-way analysis of variance of the delays (ms), as printed in Tables 7 to 9."""

    between: float
    """Sum of squares between the columns."""
    between_df: int
    """Degrees of freedom between the columns."""
    within: float
    """Sum of squares within the columns."""
    within_df: int
    """Degrees of freedom within the columns."""
    f: float
    """F statistic."""
    p: float
    """Probability of such an F, or a greater one, without an effect."""


ANOVA = {
    4: Anova(2.89589e8, 3, 3.56365e7, 3996, 10824.11, 0.0),
    5: Anova(2.24876e8, 2, 2.08559e7, 2997, 23342.45, 0.0),
    6: Anova(4.67267e9, 2, 1.07405e8, 2997, 65192.3, 0.0),
}
"""Analyses by the table whose cells they compare. Table 8 contradicts itself: its mean square fits 3.24876e8."""
