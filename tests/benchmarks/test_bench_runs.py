"""Processes that leave nothing behind, the order of measurements, and whole loads against real brokers."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter

import pytest

from benchmarks import peers
from benchmarks.load import Load, Outcome
from benchmarks.processes import Place, StartError
from benchmarks.runs import GeneratorError, cells, generate
from benchmarks.scenarios import Scenario

SCENARIOS = [Scenario(f"1:{n}-q0", "durable", 1, n, 0) for n in (1, 10)]


def test_each_peer_comes_first_equally_often() -> None:
    order = list(cells(SCENARIOS, peers.ALL, len(peers.ALL)))
    assert Counter(peer.name for _, peer, _ in order[:: len(peers.ALL)]) == {p.name: 2 for p in peers.ALL}
    assert len({(scenario.name, peer.name, number) for scenario, peer, number in order}) == len(order)


def interrupted_place() -> Place:
    stubborn = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); signal.pause()"
    with Place(None) as place, contextlib.suppress(KeyboardInterrupt):
        place.start([sys.executable, "-c", stubborn])
        raise KeyboardInterrupt
    return place


def test_a_place_leaves_neither_processes_nor_files() -> None:
    place = interrupted_place()
    assert not place.folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(place.pids[0], 0)


def test_a_broker_that_ends_early_is_quoted() -> None:
    with Place(None) as place:
        place.start([sys.executable, "-c", "print('no such luck'); raise SystemExit(3)"])
        with pytest.raises(StartError, match="status 3: no such luck"):
            place.wait_until(lambda: False)


def test_a_broker_that_dies_is_reported_by_the_generator() -> None:
    with Place(None) as place:
        site = peers.BareRelay().launch(place, "throughput")
    with pytest.raises(GeneratorError, match="refused"):
        generate(load(site, place))


def load(site: peers.Site, place: Place, *, qos: int = 0, topics: int = 1, vary: int = 0) -> Load:
    return Load(
        publish_port=site.publish_port,
        subscribe_port=site.subscribe_port,
        pids=place.pids,
        subscribers=3,
        topics=topics,
        qos=qos,
        vary=vary,
        window=100,
        warm_up=0.05,
        measure=0.2,
    )


def run(peer: peers.Peer, *, qos: int, topics: int = 1, vary: int = 0) -> Outcome:
    if peer.version() is None:
        pytest.skip(f"{peer.name} is not installed")
    with Place(None) as place:
        return generate(load(peer.launch(place, "throughput"), place, qos=qos, topics=topics, vary=vary))


@pytest.mark.interop
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("vary", [0, 50])
@pytest.mark.parametrize("topics", [1, 4])
@pytest.mark.parametrize("peer", [peers.BareRelay(), peers.Mosquitto()], ids=lambda peer: peer.name)
def test_throughput_without_loss(peer: peers.Peer, qos: int, topics: int, vary: int) -> None:
    outcome = run(peer, qos=qos, topics=topics, vary=vary)
    assert outcome.deliveries > 100
    assert (outcome.lost, outcome.repeated) == (0, 0)
    assert outcome.seconds >= 0.2
