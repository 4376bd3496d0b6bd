"""The job on Spark, one session for all: equal to the small decider to the last bit, exactly once, whatever happens."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
if shutil.which("java") is None:
    pytest.skip("there is no Java", allow_module_level=True)

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.processes import free_port
from examples.smart_city.ofm import QUICK
from monitoring.counts.features import windows as summed
from monitoring.counts.synthetic import City, city, rows, traffic
from monitoring.decisions.decider import Decider
from monitoring.decisions.store import Commit, Store
from monitoring.decisions.table import Table
from monitoring.files import LocalFolder
from monitoring.job.event_log import FILES, Compaction
from monitoring.job.job import Job
from monitoring.job.run import Order, run
from monitoring.selection.network import Network, Room
from monitoring.settings import Rules
from saps.config import Address
from saps.statistics import REST, Row
from saps.statistics.files_io import file_of, write_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("spark"), pytest.mark.spark]

DEPLOY = Path(__file__).parents[2] / "deploy"
PLACE: City = city(topics=60, clusters=4, brokers=2, seed=9)
RULES = Rules(network=Network(Room(25, 25), {"*core*": Room(60, 60)}), lateness=0)


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the session keeps its event log."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def spark(events: Path) -> Iterator[SparkSession]:
    from monitoring.job.spark import session

    with pytest.MonkeyPatch.context() as patch:  # else the log's last bytes are the compressor's
        patch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.eventLog.compress=false pyspark-shell")
        found = session("local[2]", memory="1g", partitions=2, options=QUICK, event_log=str(events))
    yield found
    found.stop()


def counted(number: int) -> list[Row]:
    return list(rows(PLACE, traffic(PLACE, number)))


def carried(seen: list[Row]) -> list[Row]:
    """As if two of three publications had left by trees."""
    return [row._replace(by_tree=row.messages * 2 // 3) for row in seen]


def leave(source: Path, seen: list[Row], life: int = 1) -> None:
    """As the brokers leave their files."""
    for broker in sorted({row.broker for row in seen}):
        own = [row for row in seen if row.broker == broker]
        write_rows(file_of(source, broker, life, own[0].start), own)


def job(spark: SparkSession, source: Path, state: Path) -> Table | None:
    """One run; the last table."""
    assert run(spark, Order(source, state, interval=None, rules=RULES), threading.Event()) == 0
    store = Store(state)
    return store.table(store.epochs()[-1]) if store.epochs() else None


def test_it_decides_as_the_small_decider_does_row_for_row(spark: SparkSession, tmp_path: Path) -> None:
    """Three runs, with repeated rows, late rows, rows that come in the next run, and a broker's second life."""
    decider, source = Decider(RULES), tmp_path / "counts"
    held_back = [row for row in counted(102) if row.broker == "c1-b0"]
    runs = [
        [*counted(100), *counted(101), *(row for row in counted(102) if row.broker != "c1-b0")],
        [*held_back, *carried(counted(103)), *(row._replace(start=row.start + 1) for row in counted(100)[:9])],
        [*carried(counted(104)), *counted(101)[:20]],
    ]
    for number, seen in enumerate(runs):
        for start in sorted({row.start for row in seen}):
            leave(source, [row for row in seen if row.start == start], life=number)
        if number == 0:  # the same rows once more, in a file of another name
            leave(source, [row for row in seen if row.broker == "c0-b0" and row.start == seen[0].start], life=77)
        decider.feed(seen)
        expected = decider.decide()
        found = job(spark, source, tmp_path / "state")
        assert expected is not None
        assert found == expected
        assert found.digest == expected.digest
    assert found is not None
    assert len(found.trees) > 3
    assert sum(d.saved > 0 for d in found.decisions) > 3
    assert Store(tmp_path / "state").last().held == decider.held


@pytest.mark.parametrize("kind", ["delta", pytest.param("iceberg", marks=pytest.mark.soak)])
def test_windows_and_decisions_are_tables_with_each_epoch_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Two runs; in the first one a batch dies when the table has its windows and the state has not committed it."""
    source, state, lake = tmp_path / "counts", tmp_path / "state", tmp_path / "lake"
    if kind == "delta":
        deltalake = pytest.importorskip("deltalake")
        place = f"delta:{lake}"
    else:
        lake.mkdir()
        monkeypatch.setenv("PYICEBERG_CATALOG__DEFAULT__URI", f"sqlite:///{lake}/catalog.db")
        monkeypatch.setenv("PYICEBERG_CATALOG__DEFAULT__WAREHOUSE", lake.as_uri())
        catalogs = pytest.importorskip("pyiceberg.catalog")  # now: it reads these once
        place = "iceberg:city"

    def read(name: str) -> list[dict[str, Any]]:
        if kind == "delta":
            table = deltalake.DeltaTable(str(lake / name)).to_pyarrow_table()
        else:
            table = catalogs.load_catalog().load_table(f"city.{name}").scan().to_arrow()
        found: list[dict[str, Any]] = table.to_pylist()
        return found

    dead: list[bool] = []
    real = Store.commit

    def dies(store: Store, commit: Commit) -> None:
        if not dead:
            dead.append(True)
            raise SystemError("killed before it")
        real(store, commit)

    monkeypatch.setattr(Store, "commit", dies)
    for numbers in ((500, 501), (502,)):
        for number in numbers:
            leave(source, counted(number))
        assert run(spark, Order(source, state, interval=None, rules=RULES, tables=place), threading.Event()) == 0
    assert dead
    expected = summed([row for number in (500, 501, 502) for row in counted(number)], RULES.pace.window)
    windows = sorted(read("windows"), key=lambda row: (row["start"], row["topic"]))
    assert windows == [window._asdict() for window in expected]
    store = Store(state)
    decisions = [decision._asdict() for epoch in store.epochs() for decision in store.table(epoch).decisions]
    assert len(store.epochs()) == 2
    assert sorted(read("decisions"), key=lambda row: (row["epoch"], row["topic"])) == decisions


def test_the_state_is_where_its_uri_says_for_spark_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing takes the state for a path of this machine: Spark reaches it as s3a only, which Hadoop's view file system
    here lays on a directory, for want of S3A itself."""
    state, source = tmp_path / "state", tmp_path / "counts"

    class Bucket(LocalFolder):
        def uri(self, name: str = "") -> str:
            return f"s3a://{tmp_path.name}/state/{name}".rstrip("/")

        def local(self, name: str) -> Path | None:
            return None

    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.s3a.impl", "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme")
    hadoop.set(f"fs.viewfs.mounttable.{tmp_path.name}.link./state", state.as_uri())
    files = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", files)  # the other one asks S3A by another name
    state.mkdir()
    monkeypatch.setattr("monitoring.decisions.store.folder_of", lambda root: Bucket(state))
    decider = Decider(RULES)
    for number in (600, 601):
        leave(source, counted(number))
        decider.feed(counted(number))
        assert job(spark, source, state) == decider.decide()
    spark.conf.unset("spark.sql.streaming.checkpointFileManagerClass")
    assert (state / "checkpoint" / "offsets").is_dir()
    assert Store(state).last().held == decider.held


def test_killed_at_each_step_it_neither_loses_nor_repeats(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch dies before its table is kept, then before it is committed, then before Spark knows that it is done."""
    source, state = tmp_path / "counts", tmp_path / "state"
    for number in (200, 201, 202):
        leave(source, counted(number))
    expected = Decider(RULES)
    expected.feed([row for number in (200, 201, 202) for row in counted(number)])
    dead: list[str] = []

    def dies(step: str, method: Callable[..., None]) -> Callable[..., None]:
        def wrapped(*args: object) -> None:
            if step not in dead:
                dead.append(step)
                raise SystemError(f"killed before {step}")
            method(*args)
            if step == "commit" and "done" not in dead:
                dead.append("done")
                raise SystemError("killed after it")

        return wrapped

    with monkeypatch.context() as patch:
        patch.setattr(Store, "keep", dies("keep", Store.keep))
        patch.setattr(Store, "commit", dies("commit", Store.commit))
        table = job(spark, source, state)  # it starts anew by itself
    assert dead == ["keep", "commit", "done"]
    assert table == expected.decide()
    store = Store(state)
    assert store.epochs() == [store.last().epoch]
    commits: list[Commit] = [store.last()]
    assert job(spark, source, state) == table
    assert [store.last()] == commits


def test_killed_by_the_system_in_the_middle_of_a_batch_the_next_process_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state = tmp_path / "counts", tmp_path / "state"
    for number in (400, 401, 402):
        leave(source, counted(number))
    argv = [str(Path(sys.executable).parent / "saps"), "monitor", "--source", str(source), "--state", str(state)]
    argv += ["--once", "--master", "local[1]", "--memory", "512m", "--partitions", "2"]
    environment = os.environ | {"JDK_JAVA_OPTIONS": QUICK}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True, env=environment)
    try:
        give_up = time.monotonic() + 300
        while not (state / "batches" / "0").is_dir() and process.poll() is None and time.monotonic() < give_up:
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert Store(state).last().batch == -1, (tmp_path / "log").read_text()[-2000:]
    assert (state / "checkpoint" / "offsets" / "0").exists()
    assert len(list((state / "events").glob("eventlog_v2_*"))) == 1
    expected = Decider(RULES)
    expected.feed([row for number in (400, 401, 402) for row in counted(number)])
    assert job(spark, source, state) == expected.decide()
    assert len(Store(state).epochs()) == 1


def test_a_file_broken_inside_is_put_aside_and_the_others_count(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, state = tmp_path / "counts", tmp_path / "state"
    good = counted(300)
    leave(source, good)
    bad = file_of(source, "c9-b9", 1, good[0].start)
    write_rows(bad, [row._replace(broker="c9-b9") for row in good[:20]])
    content = bytearray(bad.read_bytes())
    content[4:200] = b"\xff" * 196
    bad.write_bytes(content)
    expected = Decider(RULES)
    expected.feed(good)
    assert job(spark, source, state) == expected.decide()
    assert (state / "quarantine" / bad.name).exists()
    assert bad.name in caplog.text


def test_poison_rows_are_put_aside_and_the_files_others_count(spark: SparkSession, tmp_path: Path) -> None:
    """Each alone ended the job for good: no window, a window beyond the calendar, a sum beyond 64 bits, sites that
    cannot be read."""
    source, state, good = tmp_path / "counts", tmp_path / "state", counted(310)
    first = good[0]
    poison = [
        first._replace(topic="p/1", seconds=math.nan),
        first._replace(topic="p/2", start=2**63 - 1000),
        first._replace(topic="p/3", messages=2**62),
        first._replace(topic="p/3", messages=2**62, start=first.start + 1),
        first._replace(topic="p/4", cluster="a:b"),
    ]
    own = [row for row in good if row.broker == first.broker]
    leave(source, [row for row in good if row.broker != first.broker])
    write_rows(file_of(source, first.broker, 1, first.start), [*poison, *own])
    expected = Decider(RULES)
    expected.feed(good)
    table = expected.decide()
    assert job(spark, source, state) == table
    (note,) = (state / "quarantine").glob("*.txt")
    assert f"5 of {len(own) + 5} rows are impossible" in note.read_text()
    assert job(spark, source, state) == table
    assert len(list((state / "quarantine").glob("*.txt"))) == 1


def ahead(seen: list[Row], broker: str, by: int) -> list[Row]:
    """As a broker would count whose clock is `by` ms ahead."""
    return [row._replace(broker=broker, start=row.start + by) for row in seen]


def test_a_fast_clock_alone_in_a_run_stops_no_decision(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A run with all brokers, a run with the one that is a day ahead alone, a run with all."""
    source, state, decider = tmp_path / "counts", tmp_path / "state", Decider(RULES)
    now = int(time.time() * 1000) // 300_000 * 300_000
    moved = now - counted(110)[0].start  # the rows of window 109 end now
    runs = [
        ahead_all(counted(107) + counted(108), moved),
        ahead(counted(108)[:30], "mad", moved + 86_400_000),
        ahead_all(counted(109), moved),
    ]
    for seen in runs:
        for start in sorted({row.start for row in seen}):
            leave(source, [row for row in seen if row.start == start])
        found = job(spark, source, state)
        decider.feed(row for row in seen if row.broker != "mad")
        assert found == (decider.decide() or found)
    assert found is not None
    assert found.epoch == now
    assert "the clock of mad is " in caplog.text
    assert Store(state).last().closed == now


def ahead_all(seen: list[Row], by: int) -> list[Row]:
    return [row._replace(start=row.start + by) for row in seen]


def test_a_fast_clock_stops_no_decision_of_a_job_that_stays(spark: SparkSession, tmp_path: Path) -> None:
    source, state, stop = tmp_path / "counts", tmp_path / "state", threading.Event()
    now = int(time.time() * 1000) // 300_000 * 300_000
    moved = now - counted(110)[0].start
    leave(source, ahead_all(counted(108), moved))
    order = Order(source, state, interval=0.2, rules=RULES)
    statuses: list[int] = []
    thread = threading.Thread(target=lambda: statuses.append(run(spark, order, stop)))
    thread.start()
    try:
        until(lambda: Store(state).last().closed == now - 300_000)
        batch = Store(state).last().batch
        leave(source, ahead(counted(108)[:30], "mad", moved + 86_400_000))
        until(lambda: Store(state).last().batch > batch)
        leave(source, ahead_all(counted(109), moved))
        until(lambda: Store(state).last().closed == now)
    finally:
        stop.set()
        thread.join()
    assert statuses == [0]
    assert Store(state).epochs() == [now - 300_000, now]


def scraped(port: int) -> dict[str, float]:
    """What Prometheus would see: sums over labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def test_what_the_job_does_is_seen_in_its_metrics(spark: SparkSession, tmp_path: Path) -> None:
    """A good batch; then late rows, a fast clock, a row and a file that cannot be. The alert's names are among them."""
    source, state, stop = tmp_path / "counts", tmp_path / "state", threading.Event()
    now = int(time.time() * 1000) // 300_000 * 300_000
    moved = now - counted(110)[0].start
    seen = ahead_all(counted(108) + counted(109), moved)
    for start in sorted({row.start for row in seen}):
        leave(source, [row for row in seen if row.start == start])
    port, statuses = free_port(), list[int]()
    order = Order(source, state, interval=0.2, rules=RULES, metrics=Address("127.0.0.1", port))
    thread = threading.Thread(target=lambda: statuses.append(run(spark, order, stop)))
    thread.start()
    try:
        until(lambda: Store(state).last().closed == now)
        until(lambda: scraped(port)["saps_monitor_event_time_seconds"] == now / 1000)
        until(lambda: scraped(port)["saps_monitor_trees"] > 3)
        first = scraped(port)
        assert first["saps_monitor_rows_total"] == len(seen)
        assert first["saps_monitor_trees"] == len(Store(state).table(now).trees)
        assert first["saps_monitor_window_seconds"] == 300
        assert first["saps_monitor_last_decision_timestamp_seconds"] > now / 1000
        late = ahead_all(counted(107), moved)[:20]
        fast = ahead(counted(108)[:10], "mad", moved + 86_400_000)
        rest = late[0]._replace(topic=REST)  # the sum of what is not counted by topic
        write_rows(source / "late.parquet", [*late, rest, *fast, late[0]._replace(seconds=math.nan)])
        (source / "none.parquet").write_text("no Parquet")
        until(lambda: scraped(port).get("saps_monitor_fast_clock_batches_total") == 1)
        until(lambda: scraped(port)["saps_monitor_batch_seconds"] > 0)
        second = scraped(port)
        assert second["saps_monitor_late_rows_total"] == len(late)
        assert second["saps_monitor_batches_total"] > first["saps_monitor_batches_total"]
        assert (second["saps_monitor_quarantined_files"], second["saps_monitor_quarantined_rows"]) == (1, 1)
    finally:
        stop.set()
        thread.join()
    assert statuses == [0]
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    (group,) = yaml.safe_load((DEPLOY / "prometheus-rules.yml").read_text())["groups"]
    rules = [rule for rule in group["rules"] if "saps_monitor" in rule["expr"]]
    assert rules
    for rule in rules:
        assert set(re.findall(r"saps_\w+", rule["expr"] + " " + rule["annotations"]["description"])) <= second.keys()


def test_an_address_for_metrics_that_is_taken_is_said(tmp_path: Path, spark: SparkSession) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        order = Order(tmp_path, tmp_path / "state", interval=None, metrics=Address(*other.getsockname()))
        with pytest.raises(OSError, match="in use"):
            run(spark, order, threading.Event())


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def test_all_topics_never_come_to_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    """With room for two candidates, two come, and those that are held."""
    from dataclasses import replace

    source = tmp_path / "counts"
    for number in (10, 11):
        leave(source, counted(number))
    rules = replace(RULES, most=2)
    assert run(spark, Order(source, tmp_path / "state", interval=None, rules=rules), threading.Event()) == 0
    store = Store(tmp_path / "state")
    held = store.last().held
    assert len(store.table(store.last().epoch).decisions) <= 2
    assert len(Job(store, rules).candidates(spark, store.last().topics, held)) <= 2 + len(held)


@pytest.mark.soak
def test_the_event_log_is_compacted_when_it_has_many_files(spark: SparkSession, events: Path, tmp_path: Path) -> None:
    """Spark begins a file after 10 MB; here copies of the first one stand for the later ones."""
    leave(tmp_path / "counts", counted(320))
    job(spark, tmp_path / "counts", tmp_path / "state")
    (log,) = events.glob("eventlog_v2_*")
    (first,) = log.glob("events_1_*")
    lines = first.read_bytes().rpartition(b"\n")[0] + b"\n"
    for number in range(2, 2 * FILES + 3):
        (log / first.name.replace("events_1_", f"events_{number}_")).write_bytes(lines)
    Compaction(spark).run()
    left = sorted(path.name for path in log.glob("events_*"))
    (compact,) = (log / name for name in left if name.endswith(".compact"))
    assert len(left) == FILES + 1
    assert b"SparkListenerApplicationStart" in compact.read_bytes()
    ended = b"SparkListenerTaskEnd"
    assert compact.read_bytes().count(ended) < lines.count(ended)


def test_without_its_java_the_job_says_so_in_one_line(tmp_path: Path) -> None:
    argv = [str(Path(sys.executable).parent / "saps"), "monitor", "--source", str(tmp_path), "--once"]
    environment = os.environ | {"JAVA_HOME": str(tmp_path / "none")}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("saps: Spark's Java did not start, see above; it needs Java 17:")
    assert "Traceback" not in done.stderr
