"""What the devices say: endless readings of each topic group, and the payload that carries one. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

Reading = dict[str, str | int | float]


class Payload(msgspec.Struct, frozen=True):
    """The JSON payload of every publication in the scene."""

    publisher: str
    sequence: int
    """Counts per publisher and topic, from 1."""
    sent: int
    """Nanoseconds on the scene's monotonic clock, taken right before the publication."""
    reading: Reading


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Payload)


def encode(payload: Payload) -> bytes:
    """The payload as JSON."""
    return _encoder.encode(payload)


def decode(data: bytes) -> Payload | None:
    """The payload, or None if these bytes are not one of ours."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return None


def readings(group: str, rng: random.Random) -> Iterator[Reading]:
    """Endless readings of a device in this topic group."""
    return {"air": _air, "traffic": _traffic, "parking": _parking, "alert": _alert}[group](rng)


def _air(rng: random.Random) -> Iterator[Reading]:
    value = rng.uniform(10, 30)
    while True:
        value = max(0.0, value + rng.gauss(0, 0.5))
        yield {"value": round(value, 1), "unit": "ug/m3"}


def _traffic(rng: random.Random) -> Iterator[Reading]:
    while True:
        for light in ("green", "amber", "red"):
            yield {"light": light, "vehicles": rng.randint(0, 25)}


def _parking(rng: random.Random) -> Iterator[Reading]:
    capacity = rng.choice((40, 80, 200))
    free = capacity // 2
    while True:
        free = min(capacity, max(0, free + rng.choice((-1, 1))))
        yield {"free": free, "capacity": capacity}


def _alert(rng: random.Random) -> Iterator[Reading]:
    while True:
        yield {"severity": rng.choice(("minor", "major")), "block": rng.randint(1, 40)}
