"""The generator's orders, as lines of text; generator.c reads them."""

from __future__ import annotations

from collections.abc import Sequence

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
    idle: float = 0.0,
) -> str:
    """What to do to a broker: all of the row's clients, in MQTT `version` (4 or 5). `rate`: messages a second, 0 for a
    closed loop. `warm`, `seconds`: before and during the measurement. `login`: the clients have user names and
    passwords. `idle`: seconds, at least, from when all paths are there until messages are sent."""
    traffic = row.shape()
    each = len(traffic.topics) // traffic.publishers if traffic.publishers else 0
    lines = [
        f"idle {idle}",
        f"warm {warm}",
        f"seconds {seconds}",
        f"qos {row.qos}",
        f"login {int(login)}",
        f"window {row.window}",
        f"bulk {row.bulk}",
        f"rate {rate}",
        f"seed {seed}",
        f"payload {row.payload[0]} {row.payload[1]}",
        f"properties {int(row.properties)}",
        *(f"pid {pid}" for pid in pids),
        f"clients {CONNECTIONS if row.connects else len(traffic.filters) + traffic.publishers}",
        *(f"topic {topic}" for topic in traffic.topics),
        *(f"subscriber {subscribe_port} {version} {int(row.keep)} {wanted}" for wanted in traffic.filters),
        *(f"publisher {publish_port} {version} {n * each} {each}" for n in range(traffic.publishers)),
        *([f"connect {publish_port} {version}"] if row.connects else []),
    ]
    return "\n".join(lines) + "\n"
