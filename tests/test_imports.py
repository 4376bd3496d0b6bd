"""The rings of the architecture: which module may import what. Read from the source; nothing is imported.

``pure`` code has no I/O, clock or chance of its own; ``driver`` code carries events in and effects out; a
``program`` puts both together. Imports point inwards only, and frontend and overlay do not know each other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

RINGS: dict[str, str] = {
    "saps": "driver",
    "saps.topics": "pure",
    "saps.messages": "pure",
    "saps.mesh": "pure",
    "saps.subscriptions": "pure",
    "saps.retained": "pure",
    "saps.retained_messages": "pure",
    "saps.batch": "pure",
    "saps.bucket": "pure",
    "saps.hub": "pure",
    "saps.agents.decisions_door": "driver",
    "saps.agents.decisions_gate": "program",
    "saps.statistics": "pure",
    "saps.statistics.agent": "pure",
    "saps.statistics.files": "driver",
    "saps.statistics.switches": "driver",
    "saps.wire": "pure",
    "saps.priority": "pure",
    "saps.links": "driver",
    "saps.identity": "driver",
    "saps.identity.cli": "program",
    "saps.identity.names": "pure",
    "saps.identity.verdict": "pure",
    "saps.logs": "driver",
    "saps.memory": "driver",
    "saps.process": "driver",
    "saps.service_manager": "driver",
    "saps.wholefile": "driver",
    "saps.compiled": "driver",
    "saps.overlay": "pure",
    "saps.agents": "pure",
    "saps.agents.cli": "program",
    "saps.agents.gateway": "program",
    "saps.agents.live": "driver",
    "saps.agents.northbound": "driver",
    "saps.frontend": "pure",
    "saps.frontend.mqtt": "pure",
    "saps.frontend.mqtt.server": "driver",
    "saps.frontend.mqtt.tcp_client": "driver",
    "saps.frontend.mqtt.passwd_cli": "program",
    "saps.frontend.mqtt.auth.control": "driver",
    "saps.frontend.mqtt.auth.files": "driver",
    "saps.frontend.mqtt.auth.hashing": "driver",
    "saps.frontend.mqtt.auth.listener": "driver",
    "saps.frontend.mqtt.auth.tls": "driver",
    "saps.frontend.mqtt.traffic": "driver",
    "saps.frontend.web": "driver",
    "saps.frontend.web.report": "pure",
    "saps.frontend.web.status": "pure",
    "saps.broker_cli": "program",
    "saps.broker_metrics": "program",
    "saps.broker_status": "program",
    "saps.broker_storage": "program",
    "saps.broker_web": "program",
    "saps.broker_drain": "program",
    "saps.broker_start": "program",
    "saps.drain": "pure",
    "saps.drain.signals": "driver",
    "saps.frontend.upstream.driver": "driver",
    "saps.frontend.upstream.link": "driver",
    "saps.storage": "driver",
    "saps.storage.commits": "pure",
    "saps.storage.cli": "program",
    "saps.storage.damage": "pure",
    "saps.storage.journal": "pure",
    "saps.storage.records": "pure",
    "saps.storage.saved": "pure",
    "saps.storage.trouble": "pure",
    "saps.storage.witness": "pure",
    "saps.tracing": "pure",
    "saps.tracing.live": "program",
    "saps.tracing.otlp": "driver",
    "saps.policy": "pure",
    "saps.policy.files": "driver",
    "saps.simulator": "pure",
    "saps.ofm": "pure",
    "saps.ofm.cli": "program",
    "saps.ofm.program": "program",
    "saps.ofm.service": "driver",
    "saps.ofm.settings": "driver",
    "saps.ofm.desk": "driver",
    "saps.ofm.traffic_files": "driver",
    "saps.ofm.udp": "driver",
    "saps.ofm.doorkeeper": "driver",
    "saps.ofm.attached": "driver",
    "saps.ofm.software.sockets": "driver",
    "saps.ofm.software.program": "program",
    "saps.ofm.software.cli": "program",
    "saps.ofm.northbound.client": "driver",
    "saps.ofm.planner.cli": "program",
    "saps.ofm.planner.drawing": "driver",
    "saps.ofm.northbound.pair": "driver",
    "saps.ofm.northbound.samples": "driver",
    "saps.ofm.northbound.server": "driver",
    "saps.ofm.standby_seat": "driver",
    "saps.ofm.standby_service": "driver",
    "saps.ofm.openflow": "pure",
    "saps.ofm.openflow.roles": "driver",
    "saps.ofm.openflow.session": "driver",
    "saps.ofm.openflow.switch": "driver",
    "saps.ofm.openflow.server": "driver",
    "saps.lab": "driver",
    "saps.lab.topologies": "pure",
    "saps.lab.plan": "pure",
    "saps.lab.cli": "program",
    "saps.reproduce": "program",
    "saps.config": "pure",
    "saps.config.sources": "driver",
    "saps.cli": "program",
    "saps.__main__": "program",
    "saps.commands": "program",
    "saps.loading": "driver",
    "saps.embedded": "program",
    "saps.terminal": "program",
    "saps.broker": "program",
}
"""The ring of each module. A package stands for its modules too, unless they have an entry of their own."""

INWARDS = {"pure": {"pure"}, "driver": {"pure", "driver"}, "program": {"pure", "driver", "program"}}

NOT_PURE = {
    "aiomqtt", "asyncio", "concurrent", "datetime", "http", "multiprocessing", "os", "pathlib",
    "queue", "rich", "secrets", "select", "selectors", "signal", "socket", "socketserver", "ssl",
    "subprocess", "threading", "time", "typer", "uuid", "uvloop",
}  # fmt: skip
"""What no pure module may import: I/O, clocks, chance, processes, and the libraries that bring them."""

APART = [("saps.overlay", "saps.frontend"), ("saps.frontend", "saps.overlay"), ("saps.hub", "saps.overlay")]
"""(package, package it must not import)."""


class Import:
    """One import statement's target: the absolute dotted module and, if imported from it, the name."""

    def __init__(self, module: str, name: str | None, line: int) -> None:
        self.module = module
        self.name = name
        self.line = line


def modules() -> dict[str, Path]:
    """Every module of the package `saps` by dotted name."""
    found = {}
    for path in sorted((ROOT / "saps").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def ring_of(module: str) -> str | None:
    while module != "saps":
        if module in RINGS:
            return RINGS[module]
        package = module.rpartition(".")[0]
        if package == "saps":
            return None
        module = package
    return RINGS["saps"]


def imports(source: str, package: str) -> Iterator[Import]:
    """All imports at run time, wherever they stand, but not those for type checkers only."""
    for node in _walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, None, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(module, alias.name, node.lineno)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for other in child.orelse:
                yield from _walk(other)
        else:
            yield from _walk(child)


def faults(module: str, source: str, known: set[str], *, is_package: bool) -> list[str]:
    """What `module` imports, or takes from `random`, against the rules."""
    ring = ring_of(module)
    if ring is None:
        return [f"{module} is in no ring: give it one in RINGS"]
    found = []
    package = module if is_package else module.rpartition(".")[0]
    for entry in imports(source, package):
        full = f"{entry.module}.{entry.name}"
        target = full if full in known else entry.module
        if target.split(".")[0] == "saps":
            other = ring_of(target)
            if other is not None and other not in INWARDS[ring]:
                found.append(f"{module}:{entry.line} ({ring}) imports {target} ({other})")
            found += [
                f"{module}:{entry.line} imports {target}: {a} and {b} are kept apart"
                for a, b in APART
                if _inside(module, a) and _inside(target, b)
            ]
        elif ring == "pure" and entry.module.split(".")[0] in NOT_PURE:
            found.append(f"{module}:{entry.line} (pure) imports {entry.module}")
        elif ring == "pure" and entry.module == "random" and entry.name not in (None, "Random"):
            found.append(f"{module}:{entry.line} (pure) imports random.{entry.name}")
    if ring == "pure":
        found += [f"{module}:{line} (pure) uses random.{name}" for name, line in _global_random(source)]
    return found


def _inside(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _global_random(source: str) -> Iterator[tuple[str, int]]:
    """Uses of the shared generator: ``random.x``, but for the class a generator is handed in as."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "random"
            and node.attr != "Random"
        ):
            yield node.attr, node.lineno


@pytest.mark.parametrize("module", modules())
def test_imports_point_inwards(module: str) -> None:
    known = modules()
    path = known[module]
    assert faults(module, path.read_text(), set(known), is_package=path.name == "__init__.py") == []


def test_every_ring_entry_names_a_module() -> None:
    assert set(RINGS) - set(modules()) == set()


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        ("saps.hub", "import asyncio", "saps.hub:1 (pure) imports asyncio"),
        ("saps.hub", "def f():\n    from time import monotonic", "saps.hub:2 (pure) imports time"),
        ("saps.hub", "import os.path", "saps.hub:1 (pure) imports os.path"),
        (
            "saps.overlay.keys",
            "import random\nrandom.random()",
            "saps.overlay.keys:2 (pure) uses random.random",
        ),
        (
            "saps.overlay.keys",
            "from random import choice",
            "saps.overlay.keys:1 (pure) imports random.choice",
        ),
        ("saps.hub", "from saps import cli", "saps.hub:1 (pure) imports saps.cli (program)"),
        ("saps.overlay.keys", "from .. import cli", "saps.overlay.keys:1 (pure) imports saps.cli (program)"),
        (
            "saps.overlay.keys",
            "from saps.frontend.mqtt import wire",
            "saps.overlay.keys:1 imports saps.frontend.mqtt.wire: saps.overlay and saps.frontend are kept apart",
        ),
        ("saps.stray", "", "saps.stray is in no ring: give it one in RINGS"),
    ],
)
def test_a_wrong_import_is_found(module: str, source: str, fault: str) -> None:
    assert faults(module, source, {*modules(), "saps.stray"}, is_package=False) == [fault]


@pytest.mark.parametrize(
    "source",
    [
        "import random\n\ndef f(rng: random.Random) -> None: ...",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import asyncio",
        "from saps.topics import matches",
        "import heapq, hashlib, math",
    ],
)
def test_a_right_import_is_not(source: str) -> None:
    assert faults("saps.hub", source, set(modules()), is_package=False) == []
