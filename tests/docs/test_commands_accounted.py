"""Every command of every page is run by a test, or this says why it is not."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.docs.test_commands import FOUND
from tests.docs.test_commands_run import SCENES, shown, text
from tests.docs.test_docs import ROOT

TYPED = {
    "README.md": "tests/docs/test_tutorial.py",
    "docs/tutorial.md": "tests/docs/test_tutorial.py",
    "docs/secure.md": "tests/docs/test_secure_page.py",
    "docs/recipes.md": "tests/docs/test_recipes_page.py",
    "docs/moving.md": "tests/docs/test_moving_page.py",
}
"""Pages that a test types from the first command to the last."""

BY_OTHERS = {
    "python -m benchmarks.lab_traffic": "tests/lab/test_lab_traffic.py",
    "python -m benchmarks.controller": "tests/ofm/controller/test_controller_scale.py",
    "saps monitor --source /var/lib/saps/counts": "tests/examples/test_smart_city_run.py",
    "saps decisions --audit --state": "tests/monitoring/test_audit.py",
    "saps decisions --state": "tests/monitoring/test_audit.py",
    "saps drain b1 --pid 1 --cancel": "tests/network/test_drain_live.py",
    "saps lab link s1 s2 down": "tests/lab/test_lab_lifecycle.py",
    "saps reproduce saps": "tests/research/test_reproduce_saps.py",
    "saps reproduce sdnps": "tests/research/test_reproduce_sdnps.py",
    "saps reproduce sdnps-lab": "tests/research/test_reproduce_sdnps_lab.py",
    "saps reproduce stateless": "tests/research/test_reproduce_stateless.py",
    "saps reproduce tdcdoda": "tests/research/test_reproduce_tdcdoda.py",
    "python -m examples.emergency": "tests/examples/test_emergency.py",
    "python -m examples.lab_city": "tests/examples/test_lab_city.py",
    "python -m examples.smart_city": "tests/examples/test_smart_city_run.py",
    "make demo": "tests/examples/test_smart_city_run.py",
    "make lab-demo": "tests/examples/test_lab_city.py",
    "make chaos": "tests/benchmarks/test_bench_chaos.py",
    "make jepsen": "tests/benchmarks/test_bench_chaos.py",
    "make deb": "tests/deploy/test_packages.py",
    "make image": "tests/deploy/test_packages.py",
    "helm install": "tests/deploy/test_helm.py",
    "python -m scripts.fuzz node": "tests/fuzzing/test_fuzz_targets.py",
    "saps monitor --master spark://HOST:7077": "tests/monitoring/test_spark_cluster.py",
    "saps monitor --ofgate https://HOST:PORT": "tests/identity/test_https_doors.py",
    "saps ofgate --controller https://HOST:PORT": "tests/identity/test_https_doors.py",
    "saps monitor --master sc://HOST:15002": "tests/monitoring/test_spark_cluster.py",
}
"""Beginnings of commands that other tests run: in a form that is shorter, on other ports, or what a target calls."""

NOT_RUN = {
    "make setup": "it has made the environment of these tests",
    "make check": "it runs these tests",
    "make fast": "it runs these tests",
    "make test": "it runs these tests",
    "make soak": "it takes over an hour",
    "python -m monitoring.decisions.replay": "a day takes minutes: `docs/monitoring.md` has its figures",
    "pip install": "there is no package index in a test",
}
"""Beginnings of commands that no test runs."""

PLACEHOLDER = re.compile(r"\b[A-Z]+\b|^\.\.\.$|\]$")
RUN = [step for scene in SCENES.values() for step in scene.steps]
SHOWN = {shown(step) for step in RUN}
TEXTS = [
    *(text(step) for step in RUN),
    *(shlex.join(command) for page, command in FOUND if page in TYPED and command[-1] != "..."),
    *BY_OTHERS,
]
"""All commands that are run, as far as it is said here."""


def is_run(page: str, command: tuple[str, ...]) -> bool:
    """Whether a test runs this command of a page; of one that leaves something out, all that it says."""
    line = shlex.join(command)
    if line in SHOWN or any(_begins(line.removeprefix(".venv/bin/"), each) for each in BY_OTHERS):
        return True
    if command[-1] != "...":
        return page in TYPED
    said = {word for word in command if not PLACEHOLDER.search(word)}
    return any(said <= set(each.split()) for each in TEXTS)


def _begins(line: str, words: str) -> bool:
    return f"{line} ".startswith(f"{words} ")


@pytest.mark.parametrize(
    ("page", "command"), FOUND, ids=lambda each: each if isinstance(each, str) else " ".join(each)[:60]
)
def test_a_command_is_run_or_it_is_said_why_not(page: str, command: tuple[str, ...]) -> None:
    excused = any(_begins(shlex.join(command), each) for each in NOT_RUN)
    assert excused or is_run(page, command)


def test_what_is_said_here_is_needed_and_there() -> None:
    lines = [shlex.join(command).removeprefix(".venv/bin/") for _, command in FOUND]
    for page, test in TYPED.items():
        assert Path(page).name in (ROOT / test).read_text() or "tutorial" in test, page
    makefile = (ROOT / "Makefile").read_text()
    for command, test in BY_OTHERS.items():
        runs = command
        if command.startswith("make "):
            runs = re.findall(rf"^{command.removeprefix('make ')}:.*\n\t@(\S+(?: -m \S+)?)", makefile, re.MULTILINE)[0]
        word, found = re.findall(r"[a-z_]{3,}", runs)[-1], (ROOT / test).read_text()
        assert word in found or ", ".join(f'"{each}"' for each in command.split()) in found, command
    for each in NOT_RUN:
        assert any(_begins(line, each) for line in lines), each
