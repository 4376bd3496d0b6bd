"""The rows summed as columns are what they are one by one: repeated rows, names that begin alike, silent topics."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

from monitoring.counts import features  # noqa: E402
from monitoring.counts.packing import PACKED, pack, unpacked  # noqa: E402
from monitoring.counts.sums import NEEDED, ROWS, WINDOWS, windows  # noqa: E402
from saps.statistics import Row  # noqa: E402

LENGTH = 2000
CLUSTERS = ("c", "c1", "c10", "c-1", "é")
"""Their order among sites is that of the name and a colon."""


def drawn(rng: random.Random) -> Row:
    """A row of one of few brokers, intervals and topics, so that many rows fall together."""
    cluster = rng.choice(CLUSTERS)
    counts = {name: rng.choice([0, 0, rng.randrange(10)]) for name in ("messages", "subscribers", "copies", "by_tree")}
    few = {name: rng.randrange(4) for name in ("brokers", "priority", "joins", "leaves")}
    zeros = dict.fromkeys(("bytes", "received", "received_bytes", "publishers", "missed"), 0)
    return Row(
        **{**zeros, **counts, **few},
        broker=f"{cluster}-b{rng.randrange(3)}",
        incarnation=rng.randrange(2),
        cluster=cluster,
        start=1000 * rng.randrange(5),
        seconds=rng.choice([0.5, 1.0, 2.0]),
        topic=rng.choice(["", "a", "b", "c/d"]),
        latency=[0] * 13,
    )


@given(st.randoms(use_true_random=False), st.integers(0, 60))
def test_columns_are_summed_as_rows_are(rng: random.Random, count: int) -> None:
    once = {(row.broker, row.incarnation, row.start, row.topic): row for row in (drawn(rng) for _ in range(count))}
    rows = list(once.values())
    rows += rng.sample(rows, min(3, len(rows)))
    rng.shuffle(rows)
    table = windows(pa.Table.from_pylist([row._asdict() for row in rows], schema=ROWS).select(list(NEEDED)), LENGTH)
    assert table.schema == WINDOWS
    found = sorted(
        (features.Window(**row) for row in table.to_pylist()), key=lambda window: (window.start, window.topic)
    )
    assert found == features.windows(rows, LENGTH)


def test_pieces_with_dictionaries_of_their_own_are_one() -> None:
    rows = [drawn(random.Random(seed)) for seed in range(40)]
    once = list({(row.broker, row.incarnation, row.start, row.topic): row for row in rows}.values())
    pieces = [pa.Table.from_pylist([row._asdict()], schema=ROWS).select(list(NEEDED)) for row in once]
    whole = windows(pa.concat_tables(pieces).combine_chunks(), LENGTH)
    assert windows(pa.concat_tables(pieces), LENGTH).equals(whole)


@given(st.randoms(use_true_random=False), st.integers(0, 60), st.integers(1, 20))
def test_packed_rows_are_those_of_their_part(rng: random.Random, count: int, together: int) -> None:
    rows = pa.Table.from_pylist([drawn(rng)._asdict() for _ in range(count)], schema=ROWS).select(list(NEEDED))
    parts = pa.array([rng.randrange(3) for _ in range(count)], pa.int64())
    packed = pa.Table.from_batches(pack(rows.append_column("part", parts).to_batches(together)), PACKED)
    for part in range(3):
        found = unpacked(packed.filter(pa.compute.equal(packed["part"], part)))
        assert found.equals(rows.filter(pa.compute.equal(parts, part)))
