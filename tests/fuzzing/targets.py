"""All targets, by name. Each is imported when it is wanted, so that a fuzzer can instrument what it looks at."""

from __future__ import annotations

from importlib import import_module

from tests.fuzzing.target import Target

MODULES = {
    "mqtt-codec": "mqtt",
    "mqtt-session": "mqtt",
    "logins": "logins",
    "web": "web",
    "frames": "frames",
    "links": "links",
    "node": "node",
    "datagrams": "datagrams",
    "northbound": "northbound",
    "decisions": "northbound",
    "openflow": "openflow",
    "switch": "openflow",
}
"""Target -> module of this folder."""


def target(name: str) -> Target:
    """The target of this name. Raises KeyError."""
    found: dict[str, Target] = {each.name: each for each in import_module(f"tests.fuzzing.{MODULES[name]}").TARGETS}
    return found[name]
