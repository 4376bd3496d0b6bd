"""The rows: what is measured, in groups that each become a table."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from benchmarks.city.traffic import Shape, commands, display, fan_out, gateway, nobody, pairs, shared, telemetry

BETWEEN = "between"
"""Ends the name of a row whose subscribers are at another broker than its publishers."""


FEATURE_WINDOW = 10
"""Messages under way, at most, in the rows of features."""


class Row(NamedTuple):
    """One shape of traffic at one QoS."""

    name: str
    group: str
    shape: Shape
    qos: int
    window: int = 1
    """Messages of each publisher under way."""
    bulk: int = 1
    """Messages a publisher writes at a time, at least."""
    payload: tuple[int, int] = (60, 400)
    """Bytes, least and most."""
    version: int = 4
    """5: MQTT 5 is needed, and the row is not measured without it."""
    properties: bool = False
    """A content type and two user properties (MQTT 5)."""
    keep: bool = False
    """The subscribers' sessions outlive their connections; in MQTT 5 where the broker speaks it."""
    between: bool = False
    half_of: str = ""
    """Open loop, at half of the messages a second that Mosquitto carries in this row."""
    rate: float = 0.0
    """Open loop, at so many messages a second in all; with no traffic: connections a second."""
    shared: bool = False
    """The subscribers share a group."""
    light: bool = False
    """Slow peers are measured in it, too."""
    extra: bool = False
    """Measured with ``--full`` only, or when it is named."""

    @property
    def connects(self) -> bool:
        """It opens connections, and nothing else."""
        return self.shape is nobody


def _sites(row: Row) -> tuple[Row, Row]:
    """The row at one broker and between brokers."""
    return row, row._replace(name=f"{row.name}-{BETWEEN}", between=True)


def _telemetry() -> list[Row]:
    return [
        row
        for takers in (1, 10)
        for qos in (0, 1)
        for row in _sites(
            Row(f"telemetry-{takers}-q{qos}", "telemetry", partial(telemetry, takers > 1), qos, light=True)
        )
    ]


def _pairs() -> list[Row]:
    return [row for qos in (0, 1) for row in _sites(Row(f"pairs-q{qos}", "pairs", pairs, qos, light=True))]


def _gateway() -> list[Row]:
    return [
        row
        for window in (1, 10, 100)
        for qos in (0, 1)
        for row in _sites(
            Row(
                f"gateway-w{window}-q{qos}",
                "gateway",
                gateway,
                qos,
                window,
                version=5,
                properties=True,
                light=window == 10,
            )
        )
    ]


def _display() -> list[Row]:
    return [
        row._replace(extra=row.between and window != 10)
        for takers in (1, 10, 100, 1000)
        for window in (1, 10, 100)
        for qos in (0, 1)
        for row in _sites(
            Row(
                f"display-{takers}-w{window}-q{qos}",
                "display",
                partial(display, takers),
                qos,
                window,
                light=takers == 10 and window == 10,
            )
        )
    ]


def _commands() -> list[Row]:
    return [
        row
        for qos in (0, 1)
        for row in _sites(Row(f"commands-q{qos}", "commands", commands, qos, keep=True, light=True))
    ]


def _open() -> list[Row]:
    loaded = [row for row in (*_telemetry(), *_gateway()) if row.name.startswith(("telemetry", "gateway-w100"))]
    return [row._replace(name=f"open-{row.name}", group="open", half_of=row.name, light=False) for row in loaded]


def _saturated() -> list[Row]:
    return [
        Row(f"saturated-{takers}-q{qos}", "saturated", partial(display, takers), qos, 1000, 250, (150, 250))
        for takers, qos in ((1, 0), (10, 0), (1, 1))
    ]


def _features() -> list[Row]:
    return [
        Row(f"feature-{name}-q{qos}-{BETWEEN}", "features", shape, qos, window, version=5, between=True)
        for name, shape, window in (
            ("gateway-w10", gateway, FEATURE_WINDOW),
            ("telemetry-1", partial(telemetry, False), 1),
            ("display-1-w10", partial(display, 1), FEATURE_WINDOW),
        )
        for qos in (0, 1)
    ]


def _suite() -> list[Row]:
    """EMQ's open benchmark suite, each rate divided by what `SUITE` says."""
    return [
        Row("emq-p2p", "emq", partial(pairs, 1000), 1, rate=1000, payload=(60, 60), light=True),
        Row("emq-fan-out", "emq", partial(fan_out, 5, 100), 1, rate=25, payload=(60, 60), light=True),
        Row("emq-shared", "emq", partial(shared, 1000, 10), 1, rate=1000, version=5, payload=(60, 60), shared=True),
        Row("emq-connections", "emq", nobody, 0, rate=500, light=True),
    ]


SUITE = {
    "emq-p2p": "point-to-point-50K-50K-50K-50K: 50,000 publishers and subscribers, 1 message a second each; here "
    "1,000, a 50th",
    "emq-fan-out": "fan-out-5-1000-5-250K: 5 publishers, 1,000 subscribers; here 5 to 100 and 25 messages a second, "
    "2,500 deliveries of 250,000, a 100th",
    "emq-shared": "sharedsub-50K-500-50K-50K: 50,000 publishers, 500 subscribers that share; here 1,000 and 10, a 50th",
    "emq-connections": "conn-tcp-1M-5K: 5,000 connections a second; here 500, a 10th, and not up to a million",
}
"""What the suite names, and by how much it is smaller here."""

ALL: tuple[Row, ...] = (
    *_telemetry(),
    *_pairs(),
    *_gateway(),
    *_display(),
    *_commands(),
    *_open(),
    *_saturated(),
    *_features(),
    *_suite(),
)

NAMES = {row.name: row for row in ALL}

QUICK = ("telemetry-1-q0", "gateway-w10-q1", "pairs-q0-between")
"""A row of each kind, for ``--quick``."""
