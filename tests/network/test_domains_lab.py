"""Two OpenFlow domains on real switches: a tree in each, one message between them, exactly once and in order."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from benchmarks.domains import TOPIC, Scene, measure, scene
from lab import LabError, obstacle
from lab.domains import domain
from lab.way import Way
from saps.overlay.rendezvous.domains import representative
from saps.overlay.ring.keys import BrokerRef

pytestmark = [pytest.mark.network, pytest.mark.timeout(600), pytest.mark.xdist_group("processes")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    if why := obstacle():
        pytest.skip(why)
    with scene(f"dom{os.getpid()}", tmp_path_factory.mktemp("labs") / "d") as found:
        yield found


def test_a_publication_is_one_datagram_in_each_domain_and_one_message_between_them(made: Scene) -> None:
    by_alm, half, whole = measure(made, 60, 100)
    for row in (by_alm, half, whole):
        assert (row.lost, row.doubled, row.disordered) == (0, 0, 0)
        assert round(row.over_the_way) == 1
    assert [row.datagrams for row in (by_alm, half, whole)] == [
        {"tokyo": 0, "osaka": 0},
        {"tokyo": 1, "osaka": 0},
        {"tokyo": 1, "osaka": 1},
    ]
    assert (by_alm.messages, half.messages, whole.messages) == (3, 2, 1), "a tree takes what went from broker to broker"
    osaka = [name for name in made.subscribers if name.startswith("osaka")]
    chosen = representative(TOPIC, [BrokerRef(name, 1, "", "osaka") for name in osaka]).name
    relayed = {name: made.domains.counts()[name]["relayed"] for name in osaka}
    assert relayed[chosen] > 0, relayed
    assert sum(relayed.values()) == relayed[chosen], "the representative alone sends along the other domain's tree"
    made.along_trees(
        dict.fromkeys(made.domains.names, True)
    )  # after a pause on a busy machine a tree may be built anew
    for place, mesh in made.domains.meshes.items():
        [status] = [each for each in mesh.order("status")["topics"] if each["topic"] == TOPIC]
        assert all(str(member).startswith(place) for member in (*status["members"], *status["senders"]))
    assert [len(lab.topology.switches) for lab in made.domains.labs.values()] == [3, 3], "none knows the other's"


def test_labs_with_one_data_network_cannot_be_joined(made: Scene) -> None:
    lab = made.domains.labs["tokyo"]
    with pytest.raises(LabError, match="cannot be joined"):
        Way(lab, lab)
    assert domain("a", 77).subnet == "10.77.0.0/16"
    assert {host.ip for host in domain("a", 87).hosts} == {"10.87.1.1", "10.87.2.1", "10.87.3.1"}
