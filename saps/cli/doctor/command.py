"""The command `saps doctor`: shows the faults of this node and how to fix them.

Exit status: 0 without a fault, 1 with one, 2 for an unusable option.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from saps.cli.apps import command_app
from saps.cli.doctor import broker_checks, machine_checks
from saps.cli.doctor.findings import Finding
from saps.cli.look.http_client import WebPort
from saps.cli.look.options import Json, asks
from saps.cli.look.tables import console, emit, safe, table
from saps.frontend.mqtt.limits import Limits
from saps.runtime.variables import CONFIG_VARIABLE

app = command_app("doctor")

STYLES = {"good": "green", "note": "cyan", "warning": "yellow", "fault": "bold red"}


@app.command()
@asks
def doctor(
    port: WebPort,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", envvar=CONFIG_VARIABLE, help="A broker's settings in TOML."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Look for what is wrong with this node, and say how to fix it.

    It looks at the configuration and the environment, each file and certificate they name, the ports a broker would
    take, the brokers it would join, its folders, libraries, limits, the clock, Java, Open vSwitch, and at a broker's
    Web port. Nothing is changed. A note is something that only some need.
    """
    findings = list(examined(port, config))
    if as_json:
        for finding in findings:
            emit(finding)
    else:
        console().print(drawn(findings))
    if any(finding.verdict == "fault" for finding in findings):
        raise typer.Exit(1)


def examined(port: WebPort, config: Path | None) -> Iterator[Finding]:
    """Yield all findings, those of the broker before those of the machine."""
    configured = broker_checks.Configured(config, os.environ)
    probe = broker_checks.Probe(port)
    settings = configured.settings
    yield from configured.findings
    if settings is not None:
        yield from broker_checks.settled(settings, probe.running)
    yield from probe.findings()
    limits = settings.limits.limits() if settings is not None else Limits()
    yield from chain(
        machine_checks.versions(),
        machine_checks.event_loop(),
        machine_checks.compiled_modules(),
        machine_checks.open_files(limits.maximum_connections),
        machine_checks.clock(),
        machine_checks.java(),
        machine_checks.open_vswitch(),
    )


def drawn(findings: list[Finding]) -> Table:
    """Return a table with a row for each finding, followed by its advice."""
    faults = sum(finding.verdict == "fault" for finding in findings)
    shown = table(f"{faults or 'no'} fault{'s'[: faults != 1]}", ("", "check", "finding"))
    for finding in findings:
        says = safe(finding.says)
        if finding.mend is not None:
            says.append_text(safe(f" -> {finding.mend}", "dim" if finding.verdict == "note" else "bold"))
        shown.add_row(safe(finding.verdict, STYLES[finding.verdict]), safe(finding.check), says)
    return shown
