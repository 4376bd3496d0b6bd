"""The compiled codec (`scripts/compile_codec.py`): built as users build it, in a wheel, and held against the other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path

import pytest

from saps import plain
from scripts import compile_codec

pytestmark = pytest.mark.interop

ROOT = compile_codec.ROOT
HERE = Path(__file__).parent
CASES = 10_000
PROPERTIES = ["test_codec.py", "../../test_plain.py", "test_wire.py", "test_bursts_encoded.py"]
"""The tests of the codec itself, which the compiled one must pass, too."""


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
    """The project as it is cloned: nothing is compiled."""
    folder = tmp_path_factory.mktemp("sources")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("saps", "monitoring", "scripts"):
        unwanted = shutil.ignore_patterns("__pycache__", "*.so", "compiled.json")
        shutil.copytree(ROOT / name, folder / name, ignore=unwanted)
    return folder


def wheel(sources: Path, folder: Path, *, compiled: bool) -> Path:
    """Build one, as pip would be told to."""
    asked = {"HATCH_BUILD_HOOKS_ENABLE": "true" if compiled else ""}
    python("-m", "hatchling", "build", "-t", "wheel", "-d", folder, folder=sources, given=asked)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def compiled(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a wheel with the compiled codec installs."""
    if missing := compile_codec.missing_tools():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("compiled")
    built = wheel(sources, tmp_path_factory.mktemp("wheel"), compiled=True)
    assert "-none-any" not in built.name
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder)
    return folder


def which(folder: Path) -> str:
    """What the SAPS in a folder says of its codec."""
    return python("-c", "from saps.compiled import codec; print(codec())", folder=folder).strip()


def test_a_wheel_is_pure_where_nobody_asks_for_more(sources: Path, tmp_path: Path) -> None:
    built = wheel(sources, tmp_path, compiled=False)
    assert built.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(built) as archive:
        assert not [name for name in archive.namelist() if name.endswith((".so", "compiled.json"))]


def test_without_a_compiler_it_is_said_what_to_install(sources: Path, tmp_path: Path) -> None:
    script = sources / "scripts" / "compile_codec.py"
    given = {"CC": "no-such-compiler"}
    said = python(script, "--into", tmp_path, folder=sources, status=compile_codec.NO_TOOLS, given=given)
    assert len(said.splitlines()) == 1
    assert "no-such-compiler" in said
    assert "apt-get install gcc" in said
    assert list(tmp_path.iterdir()) == []


def test_every_input_has_the_same_result(compiled: Path, sources: Path, seed: int) -> None:
    run = (HERE / "codec_transcript.py", str(seed), str(CASES))
    pure, other = (python(*run, folder=folder).splitlines() for folder in (sources, compiled))
    assert [pure.pop(0), other.pop(0)] == ["pure", "compiled"]
    assert len(pure) == CASES
    assert next((pair for pair in zip_longest(pure, other) if pair[0] != pair[1]), None) is None


def test_it_passes_the_tests_of_the_codec(compiled: Path) -> None:
    (compiled / "only_compiled.py").write_text("from saps.compiled import codec\nassert codec() == 'compiled'\n")
    options = [
        "-q",
        "-n",
        "0",
        "-c",
        ROOT / "pyproject.toml",
        "--rootdir",
        ROOT,
        "-o",
        "pythonpath=",
        "-p",
        "only_compiled",
    ]
    tests = [HERE / name for name in PROPERTIES]
    given = {"PYTHONPATH": f"{compiled}{os.pathsep}{ROOT}"}  # what the tests share is found there
    said = python("-m", "pytest", *options, "-p", "no:cacheprovider", *tests, folder=compiled, given=given)
    assert " passed" in said
    assert "failed" not in said


def test_changed_sources_are_noticed(compiled: Path) -> None:
    source = compiled / Path(plain.__file__).relative_to(ROOT).with_suffix(".py")
    before = source.read_text()
    try:
        source.write_text(before + "\n")
        assert which(compiled) == "stale"
    finally:
        source.write_text(before)
    assert which(compiled) == "compiled"
