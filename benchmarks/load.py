"""The generator's orders and its answer."""

from __future__ import annotations

import msgspec


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What to do to a broker, or to two that are connected."""

    publish_port: int
    subscribe_port: int
    pids: list[int]
    """The processes whose processor time and memory count."""
    topics: int = 1
    """Topics with one publisher each."""
    subscribers: int = 1
    """Subscribers of each topic."""
    qos: int = 0
    payload: int = 200
    """Bytes, in the mean."""
    vary: int = 0
    """Bytes by which payloads are smaller or larger at most."""
    lasting: bool = False
    """The clients' sessions outlive their connections, so that a broker with storage stores them."""
    window: int = 1000
    """Messages in flight for each publisher."""
    warm_up: float = 0.5
    """Seconds before the measured time."""
    measure: float = 2.0
    """Seconds."""


class Outcome(msgspec.Struct, kw_only=True):
    """What happened."""

    deliveries: int = 0
    """Received by subscribers in the measured time."""
    seconds: float = 0.0
    lost: int = 0
    repeated: int = 0
    broker_cpu: float = 0.0
    """Processors kept busy by the broker or brokers, in the measured time."""
    generator_cpu: float = 0.0
    foreign_cpu: float = 0.0
    """Processors kept busy by anything else, or taken away by the hypervisor: noise."""
