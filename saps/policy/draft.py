"""Builds a policy from the statements of a file, for both file formats. It collects faults instead of raising them."""

from __future__ import annotations

import re

from saps.config.settings import cluster_fault, name_fault
from saps.frontend.mqtt.access.faults import Fault, FileError
from saps.policy.model import Policy, Verdict
from saps.topics import topic_fault

MOST_BYTES = 1 << 20
"""Largest policy file in bytes."""
_DPID = re.compile(r"[0-9a-fA-F]{16}")


class Draft:
    """A policy under construction: call the other methods for each statement of the file, in order, then `policy`."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._version: int | None = None
        self._clusters: dict[str, set[str]] = {}
        self._brokers: dict[str, set[str]] = {}
        self._switches: dict[str, set[int]] = {}
        self._homes: dict[int, str] = {}

    def fault(self, line: int, reason: str) -> None:
        """Record a fault in a line."""
        self._faults.append(Fault(line, reason))

    def version(self, value: object, line: int) -> None:
        """Set the version of the policy: a whole number from 1."""
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.fault(line, f"version must be a whole number from 1, not {value!r}")
        else:
            self._version = value

    def topic(self, name: str, line: int) -> bool:
        """Return whether `name` is a topic name, and record a fault if not. Wildcards are refused, as a policy applies
        to a topic and everything below it."""
        fault = topic_fault(name)
        if fault is not None:
            self.fault(line, f"topic {name!r}: {fault}")
        return fault is None

    def forbid_cluster(self, topic: str, cluster: str, line: int) -> None:
        """Forbid a cluster to carry the topic and everything below it."""
        if (fault := cluster_fault(cluster)) is not None:
            self.fault(line, f"cluster {fault}")
        self._clusters.setdefault(topic, set()).add(cluster)

    def forbid_broker(self, topic: str, broker: str, line: int) -> None:
        """Forbid a broker to receive the topic and everything below it."""
        if (fault := name_fault(broker)) is not None:
            self.fault(line, f"broker {fault}")
        self._brokers.setdefault(topic, set()).add(broker)

    def cluster(self, name: str, line: int) -> None:
        """Declare a cluster whose switches the file lists; it may have none."""
        if (fault := cluster_fault(name)) is not None:
            self.fault(line, f"cluster {fault}")
        self._switches.setdefault(name, set())

    def switch(self, cluster: str, dpid: str, line: int) -> None:
        """Assign a switch, by its datapath id in 16 hexadecimal digits, to a cluster."""
        if _DPID.fullmatch(dpid) is None:
            self.fault(line, f"switch {dpid!r} must be 16 hexadecimal digits")
            return
        number = int(dpid, 16)
        home = self._homes.setdefault(number, cluster)
        if home != cluster:
            self.fault(line, f"switch {dpid} is in cluster {home} already")
        self._switches.setdefault(cluster, set()).add(number)

    def policy(self) -> Policy:
        """Return the policy. Raises `FileError` with all recorded faults."""
        if self._version is None and not self._faults:
            self.fault(1, "the version is missing: a whole number from 1, to be raised with each change")
        if self._faults or self._version is None:
            raise FileError(self._faults)
        topics = {
            topic: Verdict(frozenset(self._clusters.get(topic, ())), frozenset(self._brokers.get(topic, ())))
            for topic in self._clusters.keys() | self._brokers.keys()
        }
        return Policy(self._version, topics, {name: frozenset(dpids) for name, dpids in self._switches.items()})
