"""Reads the operator's files about links and topics (`saps.ofm.network.traffic`) when a controller starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from saps.config import SettingError
from saps.ofm.controller.driver.settings import ControllerSettings
from saps.ofm.network.topology import Link
from saps.ofm.network.traffic import Traffic, capacities_of, clusters_of, rates_of

T = TypeVar("T")
V = TypeVar("V")


class TrafficFiles(NamedTuple):
    """The content of the operator's files."""

    links: dict[Link, float]
    rates: dict[str, float]
    clusters: dict[int, str]

    @classmethod
    def of(cls, settings: ControllerSettings) -> TrafficFiles:
        """Read the files that the settings name. Raises `SettingError` for a file that cannot be read or is
        malformed."""
        return cls(
            _read("capacities", settings.capacities, capacities_of),
            _read("demands", settings.demands, rates_of),
            _read("clusters", settings.clusters, clusters_of),
        )

    def traffic(self) -> Traffic:
        """Return the traffic of a controller that starts with these files."""
        return Traffic(self.links, self.rates)


def _read(setting: str, path: Path | None, parse: Callable[[object], dict[T, V]]) -> dict[T, V]:
    if path is None:
        return {}
    try:
        return parse(msgspec.json.decode(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise SettingError(setting, f"cannot use {path}: {error}") from None
