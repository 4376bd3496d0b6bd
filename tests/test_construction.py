"""What an object needs it is given when it is made: no function is put into it afterwards, and nothing is asserted to
be there by now. Read from the source; nothing is imported.

`ASSIGNED` and `ASSERTED` name what does so today, with its count. They only shrink, as in ``test_sizes.py``.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.sources import IN_ONE_PLACE, parsed

pytestmark = IN_ONE_PLACE
ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("saps", "monitoring", "research", "lab")

ASSIGNED: dict[str, int] = {
    "saps.agents.ofm": 4,
    "saps.broker.storage": 1,
    "saps.frontend.mqtt.driver.server": 1,
    "saps.overlay.missed.catchup": 1,
}
"""By module: functions that are assigned to an attribute of another object."""
ASSERTED: dict[str, int] = {
    "lab.programs": 1,
    "research.sdnps.lab": 1,
    "saps.agents.ofgate.construction": 1,
    "saps.agents.ofgate.decisions_io": 1,
    "saps.drain.parting": 1,
    "saps.frontend.mqtt.connection.connection": 1,
    "saps.frontend.mqtt.driver.tcp_client": 4,
    "saps.frontend.mqtt.session.message_queue": 1,
    "saps.routing.batch": 1,
    "saps.ofm.controller.admission": 4,
    "saps.ofm.controller.driver.service": 1,
    "saps.ofm.controller.driver.standby_service": 1,
    "saps.ofm.datapath.trial": 1,
    "research.simulated_ofm": 2,
    "saps.ofm.switch.sockets_io": 1,
    "saps.overlay.sessions.migration.migration": 1,
    "saps.overlay.sessions.migration.target": 2,
    "saps.overlay.sessions.sessions": 2,
    "saps.storage.driver.store": 2,
}
"""By module: ``assert x.y is not None``."""


@cache
def _trees() -> dict[str, ast.Module]:
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): parsed(path.read_text())
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }


@cache
def _function_attributes() -> frozenset[str]:
    """Names that a class declares as ``Callable`` and nothing else declares as anything else."""
    kinds: dict[str, set[bool]] = {}
    for tree in _trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign):
                target = node.target
                name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
                kinds.setdefault(name, set()).add(ast.unparse(node.annotation).startswith("Callable["))
    return frozenset(name for name, found in kinds.items() if found == {True})


def assigned(tree: ast.Module, names: frozenset[str]) -> Iterator[str]:
    """Assignments to an attribute of these names that is not one's own; setting it to a constant ends it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and target.attr in names and ast.unparse(target.value) != "self":
                    yield ast.unparse(target)


def asserted(tree: ast.Module) -> Iterator[str]:
    """Attributes that are asserted not to be None."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare):
            left, operators = node.test.left, node.test.ops
            if isinstance(left, ast.Attribute) and isinstance(operators[0], ast.IsNot):
                yield ast.unparse(left)


def _check(found: Counter[str], allowed: dict[str, int]) -> None:
    assert {name: count for name, count in found.items() if count > allowed.get(name, 0)} == {}
    assert [name for name in allowed if not found[name]] == [], "take these out"


def test_no_function_is_put_into_an_object_after_it_is_made() -> None:
    names = _function_attributes()
    _check(Counter(name for name, tree in _trees().items() for _ in assigned(tree, names)), ASSIGNED)


def test_nothing_is_asserted_to_be_there_by_now() -> None:
    _check(Counter(name for name, tree in _trees().items() for _ in asserted(tree)), ASSERTED)


@pytest.mark.parametrize("source", ["a.b.f = g", "a.f = lambda: None"])
def test_an_assigned_function_is_found(source: str) -> None:
    assert [*assigned(ast.parse(source), frozenset({"f"}))]
    assert [*assigned(ast.parse("self.f = g; a.f = None; a.g = f"), frozenset({"f"}))] == []


def test_an_assertion_is_found() -> None:
    assert [*asserted(ast.parse("assert self.a is not None, 'why'"))] == ["self.a"]
    assert [*asserted(ast.parse("assert a is not None; assert self.a"))] == []
