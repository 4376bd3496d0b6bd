"""The generator's orders, as lines of text; generator.c reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.city.rows import Row

CONNECTIONS = 20_000
"""Connections a measurement may open at most."""


def plan(
    row: Row,
    publish_port: int,
    subscribe_port: int,
    pids: Sequence[int],
    version: int,
    rate: float,
    warm: float,
    seconds: float,
    seed: int,
    login: bool = False,
) -> str:
    """What to do to a broker: all of the row's clients, in MQTT `version` (4 or 5). `rate`: messages a second, 0 for a
    closed loop. `warm`, `seconds`: before and during the measurement. `login`: the clients have user names and
    passwords."""
    return "\n".join(_lines(row, publish_port, subscribe_port, pids, version, rate, warm, seconds, seed, login)) + "\n"


def _lines(
    row: Row,
    publish_port: int,
    subscribe_port: int,
    pids: Sequence[int],
    version: int,
    rate: float,
    warm: float,
    seconds: float,
    seed: int,
    login: bool,
) -> Iterator[str]:
    traffic = row.shape()
    yield f"warm {warm}"
    yield f"seconds {seconds}"
    yield f"qos {row.qos}"
    yield f"login {int(login)}"
    yield f"window {row.window}"
    yield f"bulk {row.bulk}"
    yield f"rate {rate}"
    yield f"seed {seed}"
    yield f"payload {row.payload[0]} {row.payload[1]}"
    yield f"properties {int(row.properties)}"
    yield from (f"pid {pid}" for pid in pids)
    yield f"clients {CONNECTIONS if row.connects else len(traffic.filters) + traffic.publishers}"
    yield from (f"topic {topic}" for topic in traffic.topics)
    yield from (f"subscriber {subscribe_port} {version} {int(row.keep)} {wanted}" for wanted in traffic.filters)
    each = len(traffic.topics) // traffic.publishers if traffic.publishers else 0
    yield from (f"publisher {publish_port} {version} {n * each} {each}" for n in range(traffic.publishers))
    if row.connects:
        yield f"connect {publish_port} {version}"
