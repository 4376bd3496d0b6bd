"""The switches' counters of trees: what came in each interval, also where a switch has begun to count anew."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow.parquet as pq

from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.driver.client import Ports
from saps.ofm.northbound.schema import BrokerCount, OfmState, OfmStats, PortTraffic, Status, SwitchCount
from saps.statistics.switches_io import PORT_IN, PORT_OUT, SENDER, SWITCH, SwitchFiles, SwitchRow

BROKER = BrokerAddress("10.0.0.1", "02:00:00:00:00:01", 7000)


class Trees:
    """A northbound with one tree."""

    def __init__(self) -> None:
        self.packets = 0
        self.status = Status.CONSTRUCTED

    async def list(self) -> list[OfmState]:
        return [OfmState(topic="a/b", status=self.status), OfmState(topic="none", status=Status.CONSTRUCTING)]

    async def stats(self, topic: str) -> OfmStats:
        assert topic == "a/b"
        group = SwitchCount(dpid="00000000000000ab", packets=2 * self.packets, bytes=200 * self.packets)
        flow = BrokerCount(broker=BROKER, packets=self.packets, bytes=100 * self.packets)
        return OfmStats(topic=topic, switches=[group], senders=[flow])

    async def ports(self) -> Ports:
        got = {"rx_packets": 3 * self.packets, "rx_bytes": 300 * self.packets}
        sent = {"tx_packets": 7 * self.packets, "tx_bytes": 700 * self.packets}
        return [PortTraffic(dpid="00000000000000ab", port=2, dropped=0, **got, **sent)]


async def test_rows_have_what_came_in_their_interval(tmp_path: Path) -> None:
    trees, now = Trees(), [1_800_000_000.0]
    files = SwitchFiles(trees, tmp_path, 60.0, "ofgate", lambda: now[0])
    seen: list[tuple[int, int]] = []
    for packets in (5, 12, 12, 3):  # at last the switch has been told anew
        trees.packets = packets
        now[0] += 60
        rows = await files.roll()
        seen.append(next(((row.packets, row.bytes) for row in rows if row.kind == SENDER), (0, 0)))
    assert seen == [(5, 500), (7, 700), (0, 0), (3, 300)]


async def test_files_have_the_rows(tmp_path: Path) -> None:
    trees, now = Trees(), [1_800_000_000.0]
    files = SwitchFiles(trees, tmp_path, 60.0, "ofgate", lambda: now[0])
    trees.packets, now[0] = 4, now[0] + 60
    rows = await files.roll()
    table = pq.read_table(tmp_path / "2027-01-15" / "ofgate-1800000000000.parquet")
    assert [SwitchRow(**row) for row in table.to_pylist()] == rows
    assert [(row.kind, row.place, row.packets) for row in rows] == [
        (PORT_IN, "00000000000000ab/2", 12),
        (PORT_OUT, "00000000000000ab/2", 28),
        (SENDER, "10.0.0.1:7000", 4),
        (SWITCH, "00000000000000ab", 8),
    ]
    trees.status, trees.packets = Status.NONE, 5
    assert {(row.topic, row.kind) for row in await files.roll()} == {("", PORT_IN), ("", PORT_OUT)}
