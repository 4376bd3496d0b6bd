"""The command `saps check-config`. Exit status: 0 without a fault, else 2."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saps.cli.apps import command_app, refuse
from saps.config import SettingError
from saps.config.sources_io import faults_of_file

app = command_app("check-config")


@app.command()
def check_config(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The TOML file to check.", show_default=False)],
    alone: Annotated[
        bool, typer.Option("--alone", help="Look at this file alone: on a machine where the broker will not run.")
    ] = False,
) -> None:
    """Say what is wrong with a configuration, and where: one line for each fault, and exit status 2.

    It checks the settings of a broker, and the tables `[controller]`, `[ofgate]` and `[monitor]`. The files that a
    broker's settings name, certificates and their ends, ports, the clock and the brokers of `join` are looked at as
    the broker does. Nothing is changed.
    """
    faults: list[SettingError] = faults_of_file(file)
    warnings: list[SettingError] = []
    if not faults and not alone:
        from saps.cli.doctor.broker_checks import complaints  # here: --alone and --help need none of it

        faults, warnings = complaints(file)
    for warning in warnings:
        typer.echo(f"saps: warning: {warning}", err=True)
    if faults:
        raise refuse(*map(str, faults))
    typer.echo(f"{file}: no fault found")
