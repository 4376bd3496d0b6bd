"""What crosses between clusters, from counts of brokers and of switches."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from examples.smart_city.traffic import Counted, Crossings, Sums, crossings
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.schema import BrokerCount, OfmStats, SwitchCount
from saps.statistics import Row, TopicCount, row
from saps.statistics.files_io import file_of, write_rows

CORE = f"{1:016x}"


def test_a_star_of_three_clusters_takes_one_link_up_and_two_down() -> None:
    """Ten publications of a broker in the first cluster; one of them got lost on its way to the third."""
    switches = [
        SwitchCount(dpid=f"{n:016x}", packets=packets, bytes=0) for n, packets in ((1, 10), (2, 10), (3, 10), (4, 9))
    ]
    sender = BrokerCount(broker=BrokerAddress("10.77.1.1", "02:00:0a:4d:01:01", 7400), packets=10, bytes=0)
    found = crossings(OfmStats(topic="t", switches=switches, senders=[sender]), CORE)
    assert found == Crossings(sent=10, up=10, links=10 + 10 + 9)


def test_publications_by_alm_and_by_tree_add_up() -> None:
    tree = Crossings(sent=50, up=50, links=150)
    alm, mixed = Sums(messages=10, copies=20), Sums(messages=10, copies=8, by_tree=6)
    assert (alm.between_clusters(tree), alm.links(tree)) == (2.0, 4.0)
    assert (mixed.between_clusters(tree), mixed.links(tree)) == (1.4, 3.4)
    assert mixed.alone.between_clusters(tree) == 2.0
    assert mixed.between_clusters(Crossings()) == 0.8
    assert Sums().between_clusters(tree) == 0.0


def counted(broker: str, start: int, topic: str, messages: int, copies: int) -> Row:
    made = row(TopicCount(topic), broker, 1, "c1", start, 1.0, 2)
    return made._replace(messages=messages, copies=copies)


def test_files_are_read_once_and_summed_over_brokers_by_the_middle_of_their_intervals(tmp_path: Path) -> None:
    now, found = 1_800_000_000, Counted(tmp_path)
    for broker, start in (("b1", now), ("b2", now), ("b1", now + 1), ("b1", now + 2)):
        write_rows(file_of(tmp_path, broker, 1, start * 1000), [counted(broker, start * 1000, "a", 5, 10)])
        found.read()
        found.read()
    assert found.between(now, now + 2) == {"a": Sums(15, 30, 0)}
    assert found.between(now + 0.6, now + 9) == {"a": Sums(10, 20, 0)}
    assert found.between(now + 9, now + 10) == {}
