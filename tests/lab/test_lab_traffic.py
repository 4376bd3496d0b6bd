"""Copies on the switches' links are counted exactly: by ALM one for each cluster entered, by OFM one for each link."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.lab_crowd import Crowd
from benchmarks.lab_traffic import PAYLOAD, TOPIC, Bench, Plan
from lab import Lab, Traffic
from lab.counters import Counters
from lab.programs import CALM, Mesh
from lab.traffic import alm_packet, broker_hops, copies, crossings, data_packets, link_hops, ofm_packet
from saps.ofm.switch.topologies import parse

SIZE = alm_packet(TOPIC, PAYLOAD)


@given(st.integers(0, 500), st.integers(0, 2000), st.integers(100, 1500))
def test_packets_of_one_size_are_told_from_others(carrying: int, others: int, size: int) -> None:
    seen = Traffic(carrying + others, carrying * size + others * 66)
    assert round(data_packets(seen, size), 6) == carrying


@given(st.randoms(use_true_random=False), st.integers(1, 20))
def test_copies_are_a_whole_number_for_each_link_beside_acknowledgements_and_heartbeats(
    rng: random.Random, publications: int
) -> None:
    """Also when the other packets are a little longer than headers, and numbers make the frames vary."""
    topology = parse("tree:4x1")
    expected, sent = {}, {}
    for link in topology.links:
        for a, b in ((link.a, link.b), (link.b, link.a)):
            expected[a, b] = each = rng.randrange(12)
            size = sum(SIZE + rng.randint(-6, 6) for _ in range(each * publications))
            others = [66 + rng.randrange(30) for _ in range(rng.randrange(3 * publications))]
            sent[f"{a}-{b}"] = Traffic(each * publications + len(others), size + sum(others))
    for host in topology.hosts:
        sent[host.name] = Traffic()
    found = copies(Counters(topology, sent, sent), publications, SIZE)
    assert found.links == expected
    assert found.inter_cluster == sum(expected.values())
    assert found.doubt < 0.2


def test_hops_are_links_between_clusters_along_the_way_a_message_went() -> None:
    topology = parse("tree:4x2")
    edges = [("c1b1", "c1b2"), ("c1b2", "c2b1"), ("c2b1", "c3b1"), ("c3b1", "c3b2"), ("c1b1", "c4b1")]
    assert broker_hops(topology, "c1b1", edges) == {
        "c1b1": 0, "c1b2": 0, "c2b1": 2, "c3b1": 4, "c3b2": 4, "c4b1": 2
    }  # fmt: skip
    links = {("s1", "core"): 1, ("core", "s3"): 1, ("core", "s2"): 0}
    assert link_hops(topology, "c1b1", links) == {"c1b1": 0, "c1b2": 0, "c3b1": 2, "c3b2": 2}
    assert crossings(parse("line:4x1"), "c1b1", "c4b1") == 3


@pytest.mark.network
@pytest.mark.xdist_group("processes")
@pytest.mark.timeout(400)
def test_on_the_lab_each_way_sends_what_it_promises() -> None:
    """4 clusters, broker processes. Cluster-aware ALM: up and down for each of the 3 other clusters. OFM: one packet on
    each link of the tree, whoever publishes."""
    plan = Plan(brokers=2, subscribers=12, publishers=2, messages=5, seed=1)
    with Lab("tree:4x2", name=f"traf{os.getpid()}") as lab:
        hosts = [f"c{cluster}b{number}" for cluster in range(1, 5) for number in (1, 2) if (cluster, number) != (4, 2)]
        crowd = Counter({host: 1 + (host == "c2b1") * 5 for host in hosts})
        with Mesh(lab, hosts, ofm=True, settings=CALM) as mesh, Crowd(lab, TOPIC, crowd) as people:
            bench = Bench(lab, mesh, people, plan)
            for publisher in ("c1b2", "c4b1"):
                sample = bench.alm(publisher)
                assert (sample.copies, sample.hops) == (6, 2)
            mesh.exploit([TOPIC])
            for publisher in ("c1b2", "c4b1"):
                bench.ofm(publisher)
                before = lab.counters()
                for _ in range(plan.messages):
                    people.publish(publisher, PAYLOAD)
                found = copies(lab.counters() - before, plan.messages, ofm_packet(TOPIC, PAYLOAD))
                own = lab.topology.host(publisher).switch
                assert found.links == {
                    edge: int(edge == (own, "core") or (edge[0] == "core" and edge[1] != own)) for edge in found.links
                }
