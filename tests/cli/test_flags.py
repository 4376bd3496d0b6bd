"""A broker's flags are read without typer as typer reads them, or left to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from saps.cli.apps import command_app, settings_command
from saps.cli.flags import Flags, read, serve
from saps.config import BrokerSettings
from saps.config.sources_io import BROKER, Program
from saps.runtime.variables import CONFIG_VARIABLE

GOOD = (
    "--name b1|--name=b2|--join 10.0.0.1:7300|--join=10.0.0.2:7300,10.0.0.3:7300|--web 127.0.0.1:8080|--cluster=|"
    "--cluster a/b|--set overlay.heartbeat_interval=2|--set=name=b3|-c b.toml|--config c.toml|--config=d.toml"
)
ODD = "-cb.toml|--help|-h|--nam b1|--|-|--no-name|--set|--mqtt -x|b1|--set=|--config|--config=|--join="
arguments = st.lists(
    st.one_of(st.sampled_from(GOOD.split("|")), st.sampled_from(GOOD.split("|")), st.sampled_from(ODD.split("|"))),
    max_size=4,
).map(lambda drawn: [word for each in drawn for word in each.split()])


@given(arguments=arguments, file=st.sampled_from(["", "d.toml"]))
def test_flags_are_read_as_typer_reads_them(arguments: list[str], file: str) -> None:
    seen: list[Flags] = []

    class Seen(Program[BrokerSettings]):
        def load(self, flags: object = None, environ: object = None, file: object = None) -> object:  # type: ignore[override]
            seen.append(Flags(flags, (), file))  # type: ignore[arg-type]
            raise SystemExit

    program, app = Seen(BrokerSettings), command_app("broker")
    settings_command(app, program)(lambda settings: 0)
    environ = {CONFIG_VARIABLE: file}
    done = CliRunner().invoke(app, arguments, env=environ)
    by_typer, seen = seen, []
    if (found := read(program, arguments, environ)) is not None:
        try:
            status = serve(program, found, environ, lambda settings: 0)
        except SystemExit:
            status = 0
        assert seen == by_typer
        assert status == done.exit_code


@pytest.mark.parametrize(
    "arguments", [[], ["--name", "b1"], ["-c", "b1.toml", "--set", "a=b", "--join=h:1", "--join", "h:2"]]
)
def test_the_usual_flags_are_not_left_to_typer(arguments: list[str]) -> None:
    assert read(BROKER, arguments, {}) is not None


def test_a_fault_is_told_as_one_line_without_typer(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-c", "from saps.cli import main; main()"]
    done = subprocess.run(
        [*command, "broker", "--name", "b1", "--mqtt", "x"],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    told = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert told == ["saps: mqtt (flag --mqtt): 'x' is not an address: expected host:port, such as 127.0.0.1:1883"]
    assert done.returncode == 2
    assert " typer" not in done.stderr
