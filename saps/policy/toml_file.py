"""Parses a policy file in TOML:

version = 3
[[policy]]
topic = "city/health"
clusters = ["osaka"]
brokers = ["b7"]
[clusters]
osaka = ["0000000000000003"]
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from saps.frontend.mqtt.access.faults import Fault, FileError
from saps.frontend.mqtt.access.toml_lines import TomlLines
from saps.policy.draft import MOST_BYTES, Draft
from saps.policy.model import Policy

_FILE_KEYS = ("version", "policy", "clusters")
_POLICY_KEYS = ("topic", "clusters", "brokers")
_AT_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")


def parse_toml(text: str) -> Policy:
    """Parse a policy. Raises `FileError` with the line of each fault."""
    if len(text.encode()) > MOST_BYTES:
        raise FileError([Fault(1, f"longer than {MOST_BYTES} bytes")])
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _AT_LINE.search(str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        raise FileError([Fault(line, f"not valid TOML: {_AT_LINE.sub('', str(error))}")]) from None
    except (RecursionError, ValueError) as error:  # nested too deep, a number of thousands of digits
        raise FileError([Fault(1, f"not valid TOML: {error}")]) from None
    return _Reading(table, TomlLines(text)).policy()


class _Reading:
    """Converts the table of one file into a policy."""

    def __init__(self, table: Mapping[str, Any], lines: TomlLines) -> None:
        self._table = table
        self._lines = lines
        self._draft = Draft()

    def policy(self) -> Policy:
        table, draft = self._table, self._draft
        for key in table:
            if key not in _FILE_KEYS:
                draft.fault(self._line(key), f"{key!r} is not known here; known are {', '.join(_FILE_KEYS)}")
        if "version" in table:
            draft.version(table["version"], self._line("version"))
        entries = table.get("policy", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            draft.fault(self._line("policy"), "policy must be written as tables: begin each with [[policy]]")
            entries = []
        for index, entry in enumerate(entries):
            self._entry(entry, index)
        clusters = table.get("clusters", {})
        if not isinstance(clusters, dict):
            draft.fault(self._line("clusters"), "clusters must be a table: begin it with [clusters]")
            clusters = {}
        for name in clusters:
            self._cluster(name, clusters)
        return draft.policy()

    def _entry(self, entry: Mapping[str, Any], index: int) -> None:
        draft, at = self._draft, ("policy", index)
        for key in entry:
            if key not in _POLICY_KEYS:
                draft.fault(self._line(key, *at), f"{key!r} is not known here; known are {', '.join(_POLICY_KEYS)}")
        topic = entry.get("topic")
        if not isinstance(topic, str):
            reason = f"topic must be a text, not {topic!r}" if "topic" in entry else "topic is missing"
            draft.fault(self._line("topic", *at), reason)
            return
        if not draft.topic(topic, self._line("topic", *at)):
            return
        if not entry.keys() & {"clusters", "brokers"}:
            draft.fault(self._line("topic", *at), "nothing is forbidden: clusters and brokers are missing")
        self._texts(entry, "clusters", *at, lambda text, line: draft.forbid_cluster(topic, text, line))
        self._texts(entry, "brokers", *at, lambda text, line: draft.forbid_broker(topic, text, line))

    def _cluster(self, name: str, clusters: Mapping[str, Any]) -> None:
        self._draft.cluster(name, self._line(name, "clusters"))
        self._texts(clusters, name, "clusters", 0, lambda text, line: self._draft.switch(name, text, line))

    def _texts(
        self, table: Mapping[str, Any], key: str, name: str, index: int, take: Callable[[str, int], None]
    ) -> None:
        """Take a key's texts in, each with its line."""
        texts = table.get(key, [])
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            self._draft.fault(self._line(key, name, index), f"{key} must be a list of texts, not {texts!r}")
            return
        for item, text in enumerate(texts):
            take(text, self._line(key, name, index, item))

    def _line(self, key: str, table: str = "", index: int = 0, item: int = 0) -> int:
        """The nearest line known: of the item, the key, the table, the file."""
        place = self._lines.place(key, table, index)
        if place is not None:
            return place.items[item] if item < len(place.items) else place.line
        headers = self._lines.headers.get(table or key)
        return (headers[index] if index < len(headers) else headers[0]) if headers else 1
