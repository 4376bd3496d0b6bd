"""The recipes of CONTRIBUTING.md, carried out on a copy of the tree."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from os import environ
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECIPES = dict(re.findall(r"^### (Add .+)\n\n((?:[-  ].+\n)+)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE))
INSERTION = re.compile(
    r"(?:`(?P<path>[^`]+)`|there), (?P<where>above|below) `(?P<anchor>[^`]+)`: (?P<ticks>`+)(?P<line>.+)(?P=ticks)"
)
LEFT_OUT = ignore_patterns(".*", "__pycache__", "node_modules", "*.so", "compiled.json", "dist", "build")
BIN = Path(sys.executable).parent

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("test_recipes")]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipes do not get in each other's way, as each adds something else."""
    folder = tmp_path_factory.mktemp("copy") / "saps"
    copytree(ROOT, folder, ignore=LEFT_OUT, symlinks=True)
    return folder


def test_there_are_four_of_ten_lines_at_most() -> None:
    assert list(RECIPES) == ["Add an MQTT limit", "Add a metric", "Add a frame", "Add a REST route"]
    assert all(len(recipe.splitlines()) <= 10 for recipe in RECIPES.values())


@pytest.mark.parametrize("name", RECIPES)
def test_it_does_what_it_says(name: str, tree: Path) -> None:
    steps = [" ".join(step.split("\n  ")).strip() for step in re.split(r"^- ", RECIPES[name], flags=re.MULTILINE)[1:]]
    *insertions, last = steps
    path = tree
    changed = set()
    for step in insertions:
        found = INSERTION.fullmatch(step)
        assert found is not None, step
        path = tree / found["path"] if found["path"] else path
        insert(path, found["anchor"], found["line"], below=found["where"] == "below")
        changed.add(path)
    assert last.startswith("run ")
    for command in re.findall("`(.+?)`", last):
        carry_out(command, sorted(changed), tree)


def insert(path: Path, anchor: str, line: str, *, below: bool) -> None:
    """Beside the one line that begins with `anchor`, and indented as it is."""
    lines = path.read_text().split("\n")
    places = [number for number, text in enumerate(lines) if text.lstrip().startswith(anchor)]
    assert len(places) == 1, f"{anchor} begins {len(places)} lines of {path}"
    indent = re.match(r" *", lines[places[0]])
    assert indent is not None
    lines.insert(places[0] + below, indent.group() + line)
    path.write_text("\n".join(lines))


def carry_out(command: str, changed: list[Path], tree: Path) -> None:
    files = [str(path) for path in changed if path.suffix == ".py"]
    if command == "make format":
        commands = [[str(BIN / "ruff"), "format", *files], [str(BIN / "ruff"), "check", "--fix", *files]]
    elif command.startswith(".venv/bin/python "):
        commands = [[sys.executable, command.removeprefix(".venv/bin/python ")]]
    else:
        words = shlex.split(command.removeprefix(".venv/bin/"))
        commands = [[sys.executable, "-m", *words, "-q", "-n", "0", "-p", "no:cacheprovider"]]
    for each in commands:
        here = environ | {"PYTHONPATH": str(tree)}
        done = subprocess.run(each, cwd=tree, env=here, capture_output=True, text=True, timeout=250, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
