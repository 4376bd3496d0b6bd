"""The rings of the architecture: which module may import what. Read from the source; nothing is imported.

``pure`` code has no I/O, clock or chance of its own; ``driver`` code carries events in and effects out; a
``program`` puts both together. Imports point inwards only, and frontend and overlay do not know each other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

from tests.sources import IN_ONE_PLACE, parsed

pytestmark = IN_ONE_PLACE

ROOT = Path(__file__).resolve().parent.parent

PACKAGES = {
    "saps.broker": "program",
    "saps.embedded": "program",
    "saps.frontend.web": "driver",
    "saps.identity": "driver",
    "saps.links": "driver",
    "saps.runtime": "driver",
    "lab": "driver",
    "research": "program",
}
"""Whole packages that are not pure. Elsewhere the path says it: ``driver/`` and ``_io`` are drivers, ``cli`` and
``program`` are programs, all else is pure."""

INWARDS = {"pure": {"pure"}, "driver": {"pure", "driver"}, "program": {"pure", "driver", "program"}}

NOT_PURE = {
    "aiomqtt", "asyncio", "concurrent", "datetime", "http", "multiprocessing", "os", "pathlib",
    "queue", "rich", "secrets", "select", "selectors", "signal", "socket", "socketserver", "ssl",
    "subprocess", "threading", "time", "typer", "uuid", "uvloop",
}  # fmt: skip
"""What no pure module may import: I/O, clocks, chance, processes, and the libraries that bring them."""

APART = [("saps.overlay", "saps.frontend"), ("saps.frontend", "saps.overlay"), ("saps.routing.hub", "saps.overlay")]
"""(package, package it must not import)."""


class Import:
    """One import statement's target: the absolute dotted module and, if imported from it, the name."""

    def __init__(self, module: str, name: str | None, line: int) -> None:
        self.module = module
        self.name = name
        self.line = line


@cache
def modules() -> dict[str, Path]:
    """Every module of the packages by dotted name."""
    found = {}
    for path in sorted(path for top in ("saps", "lab", "research") for path in (ROOT / top).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def ring_of(module: str) -> str:
    """The ring of a module, by its path."""
    parts = module.split(".")
    if {"cli", "program", "__main__"} & set(parts):
        return "program"
    if module == "saps" or "driver" in parts or parts[-1].endswith("_io"):
        return "driver"
    return next((ring for package, ring in PACKAGES.items() if _inside(module, package)), "pure")


def imports(source: str, package: str, *, types: bool = False) -> Iterator[Import]:
    """All imports at run time, wherever they stand; with `types` also those for type checkers only."""
    tree = parsed(source)
    for node in ast.walk(tree) if types else _walk(tree):
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
    found = []
    package = module if is_package else module.rpartition(".")[0]
    for entry in imports(source, package):
        full = f"{entry.module}.{entry.name}"
        target = full if full in known else entry.module
        if target.split(".")[0] in ("saps", "lab", "research"):
            other = ring_of(target)
            if other not in INWARDS[ring]:
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
    for node in ast.walk(parsed(source)):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "random"
            and node.attr != "Random"
        ):
            yield node.attr, node.lineno


def test_imports_point_inwards() -> None:
    known = modules()
    names = set(known)
    found = [
        fault
        for module, path in known.items()
        for fault in faults(module, path.read_text(), names, is_package=path.name == "__init__.py")
    ]
    assert found == []


def test_every_package_that_is_named_is_there() -> None:
    assert set(PACKAGES) - set(modules()) == set()


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        ("saps.routing.hub", "import asyncio", "saps.routing.hub:1 (pure) imports asyncio"),
        ("saps.routing.hub", "def f():\n    from time import monotonic", "saps.routing.hub:2 (pure) imports time"),
        ("saps.routing.hub", "import os.path", "saps.routing.hub:1 (pure) imports os.path"),
        (
            "saps.overlay.ring.keys",
            "import random\nrandom.random()",
            "saps.overlay.ring.keys:2 (pure) uses random.random",
        ),
        (
            "saps.overlay.ring.keys",
            "from random import choice",
            "saps.overlay.ring.keys:1 (pure) imports random.choice",
        ),
        ("saps.routing.hub", "from saps import cli", "saps.routing.hub:1 (pure) imports saps.cli (program)"),
        ("saps.overlay.ring.keys", "from ... import cli", "saps.overlay.ring.keys:1 (pure) imports saps.cli (program)"),
        (
            "saps.overlay.keys",
            "from saps.frontend.mqtt.codec import wire",
            "saps.overlay.keys:1 imports saps.frontend.mqtt.codec.wire: saps.overlay and saps.frontend are kept apart",
        ),
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
    assert faults("saps.routing.hub", source, set(modules()), is_package=False) == []


LARGEST_CIRCLE = 3
"""Most modules in a circle of imports, those for types only among them."""


def test_circles_of_imports_are_small() -> None:
    known = modules()
    graph: nx.DiGraph[str] = nx.DiGraph()
    for module, path in known.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for entry in imports(path.read_text(), package, types=True):
            full = f"{entry.module}.{entry.name}"
            target = full if full in known else entry.module
            if target in known and target != module:
                graph.add_edge(module, target)
    large = [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > LARGEST_CIRCLE]
    assert large == []
