"""Limits on size: lines of a function and a module, methods and attributes of a class, modules of a folder.

Read from the source; nothing is imported. `EXCEPTIONS` names what is above a limit today, with its size. It only
shrinks: what grows fails, and so does an exception that is no longer needed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.sources import IN_ONE_PLACE, parsed

pytestmark = IN_ONE_PLACE
ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("saps", "monitoring", "research", "lab")
LIMITS = {"function": 60, "methods": 30, "attributes": 15, "module": 500, "folder": 15}
"""Lines with docstring, without decorators; functions of a class's body; names assigned on `self` anywhere in a class;
lines; modules without ``__init__.py``."""

EXCEPTIONS: dict[str, dict[str, int]] = {
    "function": {},
    "methods": {},
    "attributes": {},
    "module": {},
    "folder": {},
}
"""By kind: dotted name and size."""


def measured(kind: str) -> dict[str, int]:
    """All that a limit of this kind applies to, by dotted name, with its size."""
    return {name: size for found, name, size in _sizes() if found == kind}


@cache
def _sizes() -> list[tuple[str, str, int]]:
    return list(_measure())


def _measure() -> Iterator[tuple[str, str, int]]:
    for package in PACKAGES:
        folders: dict[str, int] = {}
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            folder = ".".join(parts[:-1])
            folders[folder] = folders.get(folder, 0) + (path.name != "__init__.py")
            yield "module", name, text.count("\n")
            yield from _definitions(parsed(text), name)
        for folder, count in folders.items():
            yield "folder", folder, count


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, str, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}.{child.name}"
            yield "function", name, (child.end_lineno or 0) - child.lineno + 1
            yield from _definitions(child, name)
        elif isinstance(child, ast.ClassDef):
            name = f"{prefix}.{child.name}"
            yield "methods", name, sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in child.body)
            yield "attributes", name, len(_assigned(child))
            yield from _definitions(child, name)
        else:
            yield from _definitions(child, prefix)


def _assigned(node: ast.ClassDef) -> set[str]:
    return {
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
        and isinstance(part.ctx, ast.Store)
        and isinstance(part.value, ast.Name)
        and part.value.id == "self"
    }


@pytest.mark.parametrize("kind", LIMITS)
def test_nothing_grows_beyond_its_limit(kind: str) -> None:
    allowed = EXCEPTIONS[kind]
    too_large = {name: size for name, size in measured(kind).items() if size > allowed.get(name, LIMITS[kind])}
    assert not too_large, f"{kind}: at most {LIMITS[kind]}; make it smaller, or take something out of it"


@pytest.mark.parametrize("kind", LIMITS)
def test_no_exception_outlives_its_reason(kind: str) -> None:
    found = measured(kind)
    done = {name: found.get(name) for name in EXCEPTIONS[kind] if found.get(name, 0) <= LIMITS[kind]}
    assert not done, f"{kind}: take these names out of EXCEPTIONS"
