"""States of meshes that are not there: for properties of the pushed news, and for pages that must stay readable."""

from __future__ import annotations

import random
from typing import Any

from saps.frontend.web.mesh.live import Picture
from saps.frontend.web.mesh.network import Change, Decisions, Link, Network, Place, Switch, TreeRow
from saps.frontend.web.mesh.report import Broker, State, TopicRow

KINDS = ("air", "noise", "traffic", "parking", "energy", "water", "alert", "bus")
AT = 1_800_000_000.0


def broker_row(name: str, **more: Any) -> Broker:
    """A broker, quiet but for what is given."""
    given: dict[str, Any] = {
        "cluster": "c", "address": "127.0.0.1:7300", "web": [], "version": "0.1.0", "uptime": 1.0, "clients": 0,
        "sessions": 0, "subscriptions": 0, "queued_bytes": 0, "published": 0, "received": 0, "delivered": 0,
        "dropped": 0, "published_rate": 0.0, "received_rate": 0.0, "delivered_rate": 0.0, "held_by": [], "links": [],
        "ofm": None, "topics": 0, "counts": True,
    }  # fmt: skip
    return Broker(name=name, **{**given, **more})


def topic_row(topic: str, **more: Any) -> TopicRow:
    """A topic, quiet but for what is given."""
    given: dict[str, Any] = {
        "mode": "alm", "rate": 0.0, "bytes": 0.0, "subscribers": 0, "publishers": [], "brokers": [], "latency": None,
        "priority": 0,
    }  # fmt: skip
    return TopicRow(topic=topic, **{**given, **more})


def snapshot(brokers: int, topics: int, *, clusters: int = 10, turn: int = 0) -> Picture:
    """A city: brokers in clusters, topics by Zipf's law. `turn`: the same a moment later."""
    rng = random.Random(1)
    names = [f"ward{number % clusters + 1}-{number // clusters + 1}" for number in range(brokers)]
    cities = ("tokyo", "osaka")
    cluster = {name: f"{cities[i % clusters % 2]}/ward{i % clusters + 1}" for i, name in enumerate(names)}
    rows = []
    for i, name in enumerate(names):
        same = [n for n in names if cluster[n] == cluster[name] and n != name]
        links = {names[(i + 1) % brokers], names[i - 1], *rng.sample(same, min(2, len(same))), rng.choice(names)}
        rate = rng.uniform(5, 400)
        rows.append(
            broker_row(
                name,
                cluster=cluster[name],
                address=f"10.{i % clusters}.0.{i // clusters + 1}:7300",
                web=[f"10.{i % clusters}.0.{i // clusters + 1}:8080"],
                uptime=86_400.0 * rng.uniform(0.1, 30),
                clients=rng.randint(20, 900),
                sessions=rng.randint(900, 1200),
                subscriptions=rng.randint(100, 5000),
                published=int(rate * 1e5),
                published_rate=rate + (turn if i % 3 == 0 else 0),
                received_rate=rate * 2,
                delivered_rate=rate * 5,
                links=sorted(links - {name}),
                ofm=f"10.{i % clusters}.0.{i // clusters + 1}:4000",
                topics=topics // brokers,
                dropped=rng.choice([0, 0, 0, 12]),
                held_by=["links"] if i == 7 else [],
            )
        )
    return Picture(
        State(
            at=AT + 2 * turn, seen_from=names[0], complete=True, topics_total=topics, brokers=rows,
            topics=_topics(rng, topics, names, turn),
        ),
        _network(rng, clusters, rows),
        _decisions(),
    )  # fmt: skip


def _topics(rng: random.Random, count: int, names: list[str], turn: int) -> list[TopicRow]:
    found = []
    for i in range(count):
        kind, place = KINDS[i % len(KINDS)], names[i % len(names)].partition("-")[0]
        mode = "constructed" if i < 40 else "constructing" if i < 44 else "refused" if i == 44 else "alm"
        subscribed = sorted(rng.sample(names, min(len(names), max(1, 60 // (i + 1)) + rng.randint(0, 3))))
        rate = 800 / (i + 1) ** 0.9
        found.append(
            topic_row(
                f"{kind}/{place}/sensor{i:05d}",
                mode=mode,
                rate=round(rate + (turn if i % 20 == 0 else 0), 2),
                bytes=round(rate * 120, 1),
                subscribers=len(subscribed) * rng.randint(1, 9),
                brokers=subscribed,
                publishers=[rng.choice(names)],
                latency=(0.005, 0.02) if i % 2 else None,
                priority=5 if kind == "alert" else 0,
                reason="no room in switch 02 for 3 entries" if mode == "refused" else None,
                address=f"239.77.0.{i + 1}:5000" if mode == "constructed" else None,
            )
        )
    return found


def _network(rng: random.Random, clusters: int, brokers: list[Broker]) -> Network:
    dpids = [f"{number + 1:016x}" for number in range(clusters + 2)]
    cores = dpids[-2:]
    links = [
        Link(a=edge, a_port=10 + n, b=core, b_port=i + 1, trees=rng.randint(0, 30), load=rng.uniform(0, 4e6))
        for i, edge in enumerate(dpids[:-2])
        for n, core in enumerate(cores)
    ]
    links.append(Link(a=cores[0], a_port=90, b=cores[1], b_port=90, trees=12, load=2.5e6))
    switches = [
        Switch(dpid=dpid, connected=i != 3, entries=rng.randint(20, 480), entries_budget=500,
               buckets=rng.randint(20, 300), buckets_budget=400)
        for i, dpid in enumerate(dpids)
    ]  # fmt: skip
    places = [
        Place(address=broker.ofm or "", dpid=dpids[i % clusters], port=i // clusters + 1)
        for i, broker in enumerate(brokers)
    ]
    trees = [_tree(rng, number, brokers, dpids) for number in range(40)]
    return Network(configured=True, switches=switches, links=links, places=places, trees=trees)


def _tree(rng: random.Random, number: int, brokers: list[Broker], dpids: list[str]) -> TreeRow:
    """A tree over some brokers: their switches, and one of the two in the middle."""
    members = sorted(rng.sample(range(len(brokers)), min(6, len(brokers))))
    edges = {dpids[member % (len(dpids) - 2)] for member in members}
    place = brokers[number % len(brokers)].name.partition("-")[0]
    return TreeRow(
        topic=f"{KINDS[number % len(KINDS)]}/{place}/sensor{number:05d}",
        status="constructed",
        address=f"239.77.0.{number + 1}:5000",
        reason=None,
        brokers=[brokers[member].ofm or "" for member in members],
        switches=sorted(edges | {rng.choice(dpids[-2:])}),
        rate=800 / (number + 1),
    )


def _decisions() -> Decisions:
    trees: list[dict[str, Any]] = [
        {"topic": f"{KINDS[i % 8]}/ward{i % 10 + 1}/sensor{i:05d}", "saving": 5e5 / (i + 1), "cost": 6.0 + i % 5,
         "saved": 4e6 / (i + 1), "predicted": 5e6 / (i + 1),
         "since": int(AT * 1000) - i * 60_000, "reason": f"{500 // (i + 1)} messages/s, wanted by {3 + i % 9} brokers"}
        for i in range(40)
    ]  # fmt: skip
    history = [
        Change(at=AT - 60 * i, action="build" if i % 3 else "drop", topic=trees[i]["topic"], reason=trees[i]["reason"])
        for i in range(30)
    ]
    revoked = [{"topic": "social/ward3", "reason": "taken back: it saved 3.0 kB of 9.0 MB predicted lately"}]
    job = {
        "batches": 12.0, "failures": 1.0, "rows": 81_000.0, "late": 7.0, "waiting": 2.0, "bad_files": 1.0,
        "bad_rows": 3.0, "window": 300.0, "closed": 1e9 - 400, "decided": 1e9, "saved": 6e7, "predicted": 8e7,
    }  # fmt: skip
    return Decisions(configured=True, epoch=int(AT * 1000), trees=trees, history=history, revoked=revoked, job=job)
