"""Who takes part: all peers, and those that are there."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.city.brokers import Aedes, Amqtt, Broker, Ejabberd, Floor, Mosquitto, Nats, Rumqttd, Zenoh
from benchmarks.city.install import InstallError, install
from benchmarks.city.kept import Party
from benchmarks.city.ours import OWN, SAPS, Saps, features
from benchmarks.city.rows import Row


class Field:
    """The peers of a run. `brokers` take part in ordinary rows; features of SAPS have rows of their own."""

    def __init__(self, brokers: Sequence[Broker]) -> None:
        self.brokers = list(brokers)
        self.base: Broker = Mosquitto()
        self._features = features(OWN)
        self._failed: dict[str, str] = {}

    @property
    def names(self) -> list[str]:
        """Of the ordinary ones."""
        return [broker.name for broker in self.brokers]

    def only(self, names: Sequence[str] | None) -> Field:
        """With these alone; all if None."""
        return Field([broker for broker in self.brokers if names is None or broker.name in names])

    def of(self, row: Row) -> list[Broker]:
        """Whom this row is for, whether they are there or not."""
        if row.group == "features":
            return self._features if SAPS in self.names else []
        return self.brokers

    def present(self, row: Row) -> list[Broker]:
        """Those of them that are there."""
        return [broker for broker in self.of(row) if broker.version() is not None]

    def prepare(self) -> None:
        """Install what is missing and can be had. What cannot is noted, and said on standard error."""
        for broker in self.brokers:
            if broker.package and broker.version() is None:
                try:
                    install(broker.package)
                except InstallError as error:
                    self._failed[broker.name] = str(error)
                    print(f"{broker.name} cannot be had: {error}", file=sys.stderr)

    def parties(self) -> list[Party]:
        """All, for the page."""
        seen: dict[str, Broker] = {}
        ours = self._features if SAPS in self.names else []
        for broker in (*self.brokers, *ours):
            seen.setdefault(broker.name, broker)
        return [
            Party(
                name=broker.name,
                version=broker.version(),
                settings=broker.settings,
                why=self._failed.get(broker.name, ""),
            )
            for broker in seen.values()
        ]


def field(builds: Sequence[Saps]) -> Field:
    """All peers, and these other builds of SAPS."""
    return Field(
        [
            Mosquitto(),
            Saps(),
            *builds,
            Saps("SAPS, pure", pure=True, said="with no module compiled (`PURE_SAPS=1`)"),
            Nats(),
            Rumqttd(),
            Amqtt(),
            Aedes(),
            Ejabberd(),
            Zenoh(),
            Floor(),
        ]
    )
