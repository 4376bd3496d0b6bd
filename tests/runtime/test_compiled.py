"""Compiled modules (`scripts/compile_hot.py`): in a wheel, as users get them, and under the tests of the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from saps.runtime.compiled import ASKED_FOR
from scripts import compile_hot

pytestmark = pytest.mark.interop

ROOT = compile_hot.ROOT
HERE = Path(__file__).parents[1]
PARTS = {
    "frontend/mqtt": (
        "test_codec.py",
        "test_publish_cut.py",
        "test_publish_encode.py",
        "test_batches.py",
        "test_wire.py",
    ),
    "storage": ("test_commits.py",),
    "overlay/delivery": ("test_order.py",),
}
"""Tests of each compiled part, by their folders."""
WHOLE = {
    "frontend/mqtt": (
        *("test_connect.py", "test_publish.py", "test_session_machine.py", "test_shared.py", "test_server.py"),
        *("conformance/test_conforms_connect.py", "conformance/test_conforms_publish.py"),
    ),
    "storage": ("test_held_output.py",),
    "overlay/delivery": ("test_reached_count.py",),
    "overlay/sessions": ("test_replica_snapshot.py", "test_replica_shelf.py"),
}
"""Tests of a connection, a frontend and a broker of these parts."""


def python(*arguments: object, folder: Path, status: int = 0, given: Mapping[str, str] = {}) -> str:
    """What a Python says that finds SAPS in a folder. `given`: environment variables beside those there are."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), **given},
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as it was set up."""
    folder = tmp_path_factory.mktemp("sources")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("saps", "monitoring", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def wheel(sources: Path, folder: Path, *, compiled: bool) -> Path:
    """Build one, as pip would be told to."""
    asked = {"HATCH_BUILD_HOOKS_ENABLE": "true" if compiled else ""}
    python("-m", "hatchling", "build", "-t", "wheel", "-d", folder, folder=sources, given=asked)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def compiled(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a wheel with compiled modules installs."""
    if missing := compile_hot.missing_tools():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("compiled")
    built = wheel(sources, tmp_path_factory.mktemp("wheel"), compiled=True)
    assert "-none-any" not in built.name
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder)
    return folder


def runs(folder: Path, **given: str) -> str:
    """What the SAPS in a folder says of its modules, and where it has its hub from."""
    imports = "from saps.routing import hub; from saps.runtime import compiled"
    program = f"{imports}; print(compiled.modules, hub.__file__.endswith('.py'))"
    return python("-c", program, folder=folder, given=given).strip()


def test_a_wheel_is_pure_where_nobody_asks_for_more(sources: Path, tmp_path: Path) -> None:
    built = wheel(sources, tmp_path, compiled=False)
    assert built.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(built) as archive:
        assert not [name for name in archive.namelist() if name.endswith((".so", "compiled.json"))]


def test_without_a_compiler_it_is_said_what_to_install(sources: Path, tmp_path: Path) -> None:
    script = sources / "scripts" / "compile_hot.py"
    changed = sources / "saps" / "routing" / "hub.py"
    before = changed.read_text()
    changed.write_text(before + "\n")
    try:
        given = {"CC": "no-such-compiler"}
        said = python(script, "--into", tmp_path, folder=sources, status=compile_hot.NO_TOOLS, given=given)
        assert said == python(script, "--into", tmp_path, "--try", folder=sources, given=given)
    finally:
        changed.write_text(before)
    assert len(said.splitlines()) == 1
    assert "no-such-compiler" in said
    assert "apt-get install gcc" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("chosen", [PARTS, pytest.param(WHOLE, marks=pytest.mark.soak)], ids=["parts", "whole"])
def test_they_pass_the_tests_of_their_sources(compiled: Path, chosen: dict[str, tuple[str, ...]]) -> None:
    plugin = "from saps.runtime import compiled\nassert compiled.modules == 'compiled'\n"
    (compiled / "only_compiled.py").write_text(plugin)
    options = (
        f"-q -n 0 -c {ROOT / 'pyproject.toml'} --rootdir {ROOT} -o pythonpath= -p only_compiled -p no:cacheprovider"
    )
    tests = [HERE / folder / name for folder, names in chosen.items() for name in names]
    given = {"PYTHONPATH": f"{compiled}{os.pathsep}{ROOT}", ASKED_FOR: "0"}  # what the tests share is in the other
    said = python("-m", "pytest", *options.split(), *tests, folder=compiled, given=given)
    assert " passed" in said
    assert "failed" not in said


def test_a_source_that_was_changed_runs_as_it_is(compiled: Path) -> None:
    source = compiled / "saps" / "routing" / "batch.py"
    before = source.read_text()
    try:
        source.write_text(before + "\n")
        assert runs(compiled) == "stale True"
    finally:
        source.write_text(before)
    assert runs(compiled) == "compiled False"


def test_who_asks_for_python_gets_it(compiled: Path) -> None:
    assert runs(compiled, **{ASKED_FOR: "1"}) == "pure True"
