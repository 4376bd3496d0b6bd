"""Every command that a document shows is one that there is: options, settings with their values, targets, modules.

`test_commands_accounted.py` says which test runs each.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import partialmethod
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer
import yaml  # type: ignore[import-untyped,unused-ignore]
from typer.testing import CliRunner

from saps.cli.commands import app
from saps.config import SettingError
from saps.config.sources_io import Program
from saps.frontend.web.http.openapi import document
from saps.version import __version__
from tests.docs.test_docs import PAGES, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PATHS = {*document(__version__)["paths"], "/v1/pair", "/v1/topology"}
"""Those of a Web port, and of the controller's northbound that documents name."""
VALUES = yaml.safe_load((ROOT / "deploy/helm/saps/values.yaml").read_text())
SETTINGS = {"broker", "controller", "ofgate", "monitor"}
"""Commands whose options are settings."""
OTHERS = {
    *("mosquitto_sub", "mosquitto_pub", "mosquitto_passwd", "ovs-ofctl", "ovs-vsctl", "cp", "useradd", "systemctl"),
    *("kubectl", "spark-submit", "apt-get", "export", "echo", "cat", "cd", "kill", "until", "for", "printf", "wait"),
    *("podman", "docker", "sleep", "done", "tuned-adm", "git", "do", "while", "if", "!", "sudo", "END", "nft", "ip"),
}
"""Programs that are not ours, and words of the shell."""
_ASSIGNMENT = re.compile(r"^[A-Z_]+=")


ELSEWHERE = "saps ofm "
"""Texts of the wire protocol begin so."""
MISTAKES = "## 6. Mistakes"
"""Below it, the tutorial has commands that are refused."""


def shown(page: str) -> Iterator[str]:
    """Lines typed at a terminal: of fenced and indented blocks, joined where they go on, without comments; and the
    commands of ours that stand in the text, which may leave out what is clear there: they end in ``...``."""
    page = page.partition(MISTAKES)[0]
    fenced = re.findall(r"^```(?:sh)?\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    indented = "\n".join(line[4:] for line in rest.splitlines() if line.startswith("    "))
    for text in (
        *(re.sub(r"<<'?(\w+)'?.*?^\1$", "", each, flags=re.MULTILINE | re.DOTALL) for each in fenced),
        indented,
    ):
        for line in re.sub(r"\\\n\s*", " ", text).splitlines():
            yield re.sub(r"\s+#( .*|$)", "", line).strip()
    for command in re.findall(r"`(saps [a-z][^`]*)`", " ".join(rest.split())):
        if not command.startswith(ELSEWHERE):
            yield f"{command} ..."


def words(line: str) -> Iterator[list[str]]:
    """Each command of a line, without redirections, assignments before it and a final ``&``."""
    one: list[str] = []
    line = re.sub(r"\s\d?>&\d|\s\d?>>?\s*[^\s<>]+$|\s\d?>>?\s*[^\s<>]+(?=\s)", "", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        found = list(lexer)
    except ValueError:  # a text over several lines
        found = line.split()
    for word in [*found, ";"]:
        if word and not word.strip("&|;()"):
            if one:
                yield one
            one = []
        elif one or not _ASSIGNMENT.match(word):
            one.append(word)


def of_ours(command: list[str]) -> bool:
    return Path(command[0]).name in {"saps", "python", "python3", "make", "pip", "curl", "helm"}


FOUND = sorted(
    {
        (page, tuple(command))
        for page in PAGES
        if page != "CHANGELOG.md"
        for line in shown((ROOT / page).read_text())
        for command in words(line)
        if of_ours(command)
    }
)


class UnderstoodError(Exception):
    """The settings were loaded: more is not wanted."""


def saps(arguments: list[str], patch: pytest.MonkeyPatch) -> None:
    """Parses the options and, where they are settings, checks these. Nothing is run."""
    given = [each for each in arguments if each != "..."]
    whole = given == arguments and not {"--config", "-c"} & set(given)
    if not given or given[0].startswith("-"):
        return
    if given[0] in SETTINGS and "--help" not in given:
        patch.setattr(Program, "load", partialmethod(_checked, Program.load, whole))
        done = CliRunner().invoke(app, given)
        missing = not whole and "requires an argument" in done.output
        assert missing or isinstance(done.exception, UnderstoodError), done.output
        return
    group: Any = typer.main.get_command(app)
    try:
        parsed(group, "saps", given)
    except Exception as error:
        if whole or not re.search(r"Missing|requires an argument|^$", str(error)):
            raise


def _checked(program: Any, load: Any, whole: bool, flags: Any = None, _environ: Any = None, _file: Any = None) -> Any:
    """In the place of `Program.load`. `whole`: nothing else gives settings."""
    try:
        load(program, flags, {}, None)
    except SettingError as error:
        if whole or "is missing" not in str(error):
            raise
    raise UnderstoodError


def parsed(command: Any, name: str, arguments: list[str]) -> None:
    """Down to the last command of a group. Raises the parser's errors."""
    context = command.make_context(name, list(arguments))
    if hasattr(command, "resolve_command"):
        name, below, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        if "--help" not in rest:
            parsed(below, name, rest)


def understood(command: tuple[str, ...], patch: pytest.MonkeyPatch) -> None:
    """Raises AssertionError, or what the parser says, if there is no such command."""
    program, arguments = Path(command[0]).name, list(command[1:])
    if program == "saps":
        saps([re.sub(r"^(PID|N|SECONDS)$", "1", each) for each in arguments], patch)
    elif program.startswith("python") and arguments[:1] == ["-m"]:
        module = ROOT / arguments[1].replace(".", "/")
        known = arguments[1] in {"venv", "NAME"} or arguments[1].endswith(".NAME")
        assert known or module.with_suffix(".py").exists() or (module / "__main__.py").exists()
    elif program == "make":
        targets = [each for each in arguments if not _ASSIGNMENT.match(each) and each == each.lower()]
        assert set(targets) <= TARGETS, targets
    elif program == "pip":
        for extra in re.findall(r"\[([\w,]+)\]", " ".join(arguments)):
            assert set(extra.split(",")) <= PROJECT["optional-dependencies"].keys(), extra
    elif program == "curl":
        for url in (each for each in arguments if each.startswith("http")):
            path = urlsplit(url).path
            assert any(re.fullmatch(re.sub(r"{.*}", ".+", known), path) for known in PATHS), path
    elif program == "helm":
        for name in re.findall(r"--set(?:-json)? '?([\w.]+)=", " ".join(f"{each}" for each in command)):
            value = VALUES
            for level in name.split("."):
                assert level in value, name
                value = value[level]


@pytest.mark.parametrize(
    ("page", "command"), FOUND, ids=lambda each: each if isinstance(each, str) else " ".join(each)[:60]
)
def test_a_command_that_is_shown_is_one_that_there_is(
    page: str, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    understood(command, monkeypatch)


@pytest.mark.parametrize(
    "line",
    [
        "saps brokker",
        "saps brokers --wep x",
        "saps broker --name b1 --set overlay.dead_aftr=2",
        "saps broker --name b1 --mqtt 127.0.0.1",
        "saps ofgate --join 127.0.0.1:7300",
        "saps ca isue b1",
        "saps plan explain --plan plan.json",
        "make tets",
        "python -m examples.smart_town",
        "pip install 'saps[up]'",
        "curl http://127.0.0.1:8080/v1/broker",
        "helm install city x --set link.plain=true",
    ],
)
def test_what_is_no_command_is_found_out(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        understood(tuple(next(words(line))), monkeypatch)
    except Exception:
        return
    pytest.fail(f"understood: {line}")


def test_there_are_many_of_them() -> None:
    assert len(FOUND) > 100
    assert {page for page, _ in FOUND} > {"README.md", "docs/ofm.md", "docs/security.md", "docs/running.md"}


def test_the_package_has_the_version_that_the_programs_say() -> None:
    assert PROJECT["version"] == __version__
