"""From rows to decisions at scale: ``python -m benchmarks.monitoring --help``.

Makes the counts of some intervals of many topics as Parquet files, in two ways, and measures the job on them, in a
process of its own with a session of its own: wall time, processor time, and the most memory of its processes together.
Beside it the same aggregation, by window and topic, in DuckDB and in Polars.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.machine import this_machine
from saps.statistics.files_io import arrow_schema, file_of

START = 1_700_000_000_000
CLUSTERS, BROKERS, WINDOW = 8, 20, 300_000
"""Clusters, brokers (and so files) in an interval, and milliseconds of a window, which is also the interval."""


def even(directory: Path, topics: int, rows: int, seed: int = 1) -> None:
    """Write `rows` rows about `topics` topics, evenly spread: in each window every broker counts each of its topics
    once, in one order, and a topic is at two or three brokers."""
    rng = np.random.default_rng(seed)
    popularity = (1.0 + np.arange(topics)) ** -0.9
    names = pa.array([f"city/{number % 997}/{number}" for number in range(topics)])
    windows = max(2, round(rows / topics / 2.5))
    each = rows // (windows * BROKERS)
    busy = rng.permutation(topics)
    for window in range(windows):
        for broker in range(BROKERS):
            first = (broker * topics // BROKERS + window * 7919) % topics
            at = (first + np.arange(each) * max(1, topics // each)) % topics
            sends = rng.random(each) < 0.5
            messages = np.where(sends, rng.poisson(popularity[busy[at]] * 20_000) + 1, 0)
            numbers = {
                "messages": messages,
                "bytes": messages * 120,
                "received": np.where(sends, 0, 10),
                "received_bytes": np.where(sends, 0, 1200),
                "publishers": sends,
                "subscribers": ~sends,
                "brokers": np.where(sends, 2, 0),
                "copies": messages,
                "joins": rng.random(each) < 0.02,
                "leaves": rng.random(each) < 0.02,
            }
            _write(directory, f"b{broker}", f"c{broker % CLUSTERS}", window, names.take(pa.array(at)), numbers)


def drawn(directory: Path, topics: int, rows: int, seed: int = 1) -> None:
    """Write `rows` rows about `topics` topics, drawn: half by Zipf's law, so that busy topics are at all brokers, in no
    order, with long names, publishers and subscribers at the same brokers, in five windows."""
    rng, windows = np.random.default_rng(seed), 5
    each = rows // (windows * BROKERS)
    kinds = ("temperature", "occupancy", "traffic-count", "air-quality", "power-meter")
    marks = rng.integers(0, 2**40, topics)
    names = pa.array(
        [f"ward-{mark % 23}/building-{mark % 4099:04d}/{kinds[mark % 5]}/{mark:010x}" for mark in marks.tolist()]
    )
    names, order, at_all = names.take(pa.array(rng.permutation(topics))), rng.permutation(topics), 0
    for window in range(windows):
        for broker in range(BROKERS):
            spread = order[(at_all + np.arange(each // 2)) % topics]
            at_all += each // 2
            busy = (topics ** rng.random(2 * each)).astype(np.int64) - 1
            at = np.unique(np.concatenate([spread, busy]))
            rest = np.setdiff1d(at, spread, assume_unique=True)
            at = np.concatenate([spread, rng.permutation(rest)[: each - len(spread)]])
            at = rng.permutation(at)
            many = len(at)
            messages = np.where(rng.random(many) < 0.6, rng.poisson(rng.lognormal(2.0, 1.5, many)), 0)
            received = rng.poisson(rng.lognormal(2.0, 1.5, many))
            numbers = {
                "messages": messages,
                "bytes": messages * rng.integers(20, 1500, many),
                "received": received,
                "received_bytes": received * rng.integers(20, 1500, many),
                "publishers": np.minimum(messages, rng.integers(1, 30, many)),
                "subscribers": np.where(rng.random(many) < 0.6, rng.geometric(0.3, many), 0),
                "brokers": rng.integers(0, BROKERS, many),
                "copies": messages * rng.integers(0, CLUSTERS, many),
                "joins": rng.poisson(0.1, many),
                "leaves": rng.poisson(0.1, many),
                "missed": rng.poisson(0.5, many),
            }
            cluster = f"city-{broker % 3}/ward-{broker % CLUSTERS}"
            _write(directory, f"broker-{broker}", cluster, window, names.take(pa.array(at)), numbers)


def _write(
    directory: Path, broker: str, cluster: str, window: int, topics: pa.Array, numbers: Mapping[str, npt.NDArray[Any]]
) -> None:
    """The file of one broker's interval; columns that are not given are 0."""
    schema, many, start = arrow_schema(), len(topics), START // WINDOW * WINDOW + window * WINDOW
    given = {
        **{name: pa.array(np.asarray(column).astype(np.int64)) for name, column in numbers.items()},
        "incarnation": pa.array(np.ones(many, dtype=np.int64)),
        "start": pa.array(np.full(many, start)),
        "seconds": pa.array(np.full(many, WINDOW / 1000)),
        "topic": topics,
        "broker": pa.array([broker] * many),
        "cluster": pa.array([cluster] * many),
        "latency": pa.array([[0] * 13], schema.field("latency").type).take(pa.array(np.zeros(many, dtype=np.int64))),
    }
    zeros = pa.array(np.zeros(many, dtype=np.int64))
    file = file_of(directory, broker, 1, start)
    file.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_arrays([given.get(field.name, zeros) for field in schema], schema=schema)
    pq.write_table(table, file, compression="zstd")


GENERATORS = {"even": even, "drawn": drawn}
"""Ways to make the rows; what is measured is to hold for both."""


SQL = """
SELECT topic, start // 300000 AS win, sum(messages) AS messages, sum(bytes) AS bytes, sum(copies) AS copies,
       sum(joins) AS joins, sum(leaves) AS leaves, sum(members) AS members, sum(senders) AS senders,
       sum(CASE WHEN members > 0 THEN 1 ELSE 0 END) AS wanting
FROM (SELECT topic, start, cluster, sum(messages) AS messages, sum(bytes) AS bytes, sum(copies) AS copies,
             sum(joins) AS joins, sum(leaves) AS leaves,
             count(DISTINCT CASE WHEN subscribers > 0 THEN broker END) AS members,
             count(DISTINCT CASE WHEN messages > 0 THEN broker END) AS senders
      FROM read_parquet('{files}') GROUP BY topic, start, cluster)
GROUP BY topic, win
"""


RESULTS = ("messages", "bytes", "copies", "joins", "leaves", "members", "senders", "wanting")


def duckdb(directory: Path) -> int:
    """The aggregation in DuckDB. Returns the number of results."""
    import duckdb

    query = SQL.format(files=f"{directory}/*/*.parquet")
    all_used = "count(*), " + ", ".join(f"sum({name})" for name in RESULTS)  # else it leaves out what nobody asks for
    return int(duckdb.sql(f"SELECT {all_used} FROM ({query})").fetchall()[0][0])


def polars(directory: Path) -> int:
    """The aggregation in Polars. Returns the number of results."""
    import polars as pl

    sums = [pl.col(name).sum() for name in ("messages", "bytes", "copies", "joins", "leaves")]
    clusters = (
        pl.scan_parquet(f"{directory}/*/*.parquet")
        .group_by("topic", pl.col("start") // WINDOW, "cluster")
        .agg(
            *sums,
            pl.col("broker").filter(pl.col("subscribers") > 0).n_unique().alias("members"),
            pl.col("broker").filter(pl.col("messages") > 0).n_unique().alias("senders"),
        )
    )
    wanting = (pl.col("members") > 0).sum().alias("wanting")
    found = clusters.group_by("topic", "start").agg(*sums, pl.col("members", "senders").sum(), wanting)
    return int(found.select(pl.len(), pl.col(RESULTS).sum()).collect(engine="streaming").item(0, 0))


def spark(directory: Path) -> int:
    """The job, from the files to the decisions. Returns how many decisions there are."""
    from monitoring.decisions.store import Store
    from monitoring.job.run import Order, run
    from monitoring.job.spark import session
    from monitoring.selection.network import Network, Room
    from monitoring.settings import Rules

    # Windows end when a later one has begun: the last one is left open, as in life.
    rules = Rules(network=Network(Room(2000, 2000), {"*core*": Room(8000, 8000)}), lateness=0, most=20_000)
    begun = time.perf_counter()
    one = session("local[2]", partitions=PARTITIONS)
    print(f"session {time.perf_counter() - begun:.1f} s", file=sys.stderr)
    state = Path(tempfile.mkdtemp(prefix="saps-monitor-", dir=directory.parent))
    status = run(one, Order(directory, state, interval=None, rules=rules), threading.Event())
    assert status == 0
    store = Store(state)
    table = store.table(store.last().epoch)
    print(f"{len(table.trees)} trees, {len(table.decisions)} decisions", file=sys.stderr)
    one.stop()
    return len(table.decisions)


PARTITIONS = 8
ENGINES: dict[str, Callable[[Path], int]] = {"duckdb": duckdb, "polars": polars, "spark": spark}


def measure(engine: str, directory: Path) -> dict[str, Any]:
    """Run one engine in a process of its own."""
    begun = time.perf_counter()
    argv = [sys.executable, "-m", "benchmarks.monitoring", "--engine", engine, "--directory", str(directory)]
    process = subprocess.Popen(argv, start_new_session=True)
    peak, spent = 0, dict[str, float]()
    while process.poll() is None:
        peak = max(peak, _look(process.pid, spent))
        time.sleep(1.0)
    if process.returncode:
        raise SystemExit(f"{engine} failed")
    return {"engine": engine, "seconds": time.perf_counter() - begun, "cpu": sum(spent.values()), "GiB": peak / 2**30}


def _look(session: int, spent: dict[str, float]) -> int:
    """The proportional memory of all processes of a session, in bytes; notes the processor seconds of each in `spent`,
    for the Java machine is not waited for by its parent."""
    total, tick = 0, os.sysconf("SC_CLK_TCK")
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                spent[stat.parent.name] = (int(fields[11]) + int(fields[12])) / tick
                rollup = (stat.parent / "smaps_rollup").read_text()
                total += int(rollup.partition("Pss:")[2].split()[0]) * 1024
        except (OSError, IndexError, ValueError):  # it has ended meanwhile
            continue
    return total


def main(argv: list[str] | None = None) -> None:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.monitoring", description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--engine", choices=list(ENGINES), help=argparse.SUPPRESS)
    parser.add_argument("--generators", nargs="+", choices=list(GENERATORS), default=list(GENERATORS))
    parser.add_argument("--directory", type=Path, help="where the files are, or are to be made, by generator; kept")
    parser.add_argument("--json", type=Path, metavar="FILE")
    chosen = parser.parse_args(argv)
    if chosen.engine is not None:
        ENGINES[chosen.engine](chosen.directory)
        return
    with tempfile.TemporaryDirectory(prefix="saps-benchmark-") as scratch:
        found = []
        for generator in chosen.generators:
            directory = (chosen.directory or Path(scratch)) / generator
            if not directory.is_dir():
                GENERATORS[generator](directory, chosen.topics, chosen.rows)
            for engine in chosen.engines:
                found.append({"generator": generator, **measure(engine, directory)})
                print(
                    "{generator:6} {engine:7} {seconds:6.1f} s  {cpu:6.1f} s of processor  {GiB:5.2f} GiB".format(
                        **found[-1]
                    ),
                    flush=True,
                )
        if chosen.json is not None:
            body = {"machine": str(this_machine()), "topics": chosen.topics, "rows": chosen.rows, "engines": found}
            chosen.json.write_text(json.dumps(body, indent=1))


if __name__ == "__main__":
    main()
