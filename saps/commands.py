"""The commands of `saps`: run a broker, or check a configuration file, and those with modules of their own.

Exit status: 0 after an orderly end, 1 if the broker failed, 2 for a setting that cannot be used. Then a line
on standard error names the setting, says where it was set, and what is wrong.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from typer.core import TyperGroup

from saps import __version__
from saps.config import SettingError
from saps.config.sources import CONFIG_VARIABLE, KNOBS, assigned, faults_of_file, flag_of, load
from saps.loading import Loading

GROUPS = {
    "brokers": "saps.terminal.brokers",
    "ca": "saps.identity.cli",
    "controller": "saps.ofm.cli",
    "decisions": "monitoring.decisions_cli",
    "doctor": "saps.terminal.doctor",
    "drain": "saps.terminal.drain",
    "lab": "saps.lab.cli",
    "monitor": "monitoring.cli",
    "ofgate": "saps.agents.cli",
    "passwd": "saps.frontend.mqtt.passwd_cli",
    "plan": "saps.ofm.planner.cli",
    "reproduce": "saps.reproduce.cli",
    "switches": "saps.ofm.software.cli",
    "top": "saps.terminal.top",
    "topics": "saps.terminal.topics",
    "trace": "saps.terminal.trace",
}
"""Commands with modules of their own, loaded when they are called, so that a broker does not carry them."""


class _Commands(TyperGroup):
    """The commands of this module, and those of GROUPS."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *GROUPS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in GROUPS:
            with Loading():
                group: typer.Typer = importlib.import_module(GROUPS[cmd_name]).app
            command = typer.main.get_command(group)
            command.name = cmd_name
            return command
        return super().get_command(ctx, cmd_name)


app = typer.Typer(
    name="saps",
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _help_of(setting: str) -> str:
    knob = KNOBS[setting]
    default = "" if knob.default in (msgspec.NODEFAULT, ()) else f" [default: {knob.default}]"
    return f"{knob.about.text}.{default}".replace("[", r"\[")


def _option(setting: str, metavar: str) -> Any:
    return typer.Option(flag_of(setting), metavar=metavar, help=_help_of(setting), show_default=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"saps {__version__}")
        raise typer.Exit


@app.callback()
def saps(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Publish/subscribe brokers without a master: MQTT at the edge, a Skip Graph overlay between sites."""


@app.command()
def broker(
    name: Annotated[str | None, _option("name", "NAME")] = None,
    cluster: Annotated[str | None, _option("cluster", "PATH")] = None,
    mqtt: Annotated[str | None, _option("mqtt", "HOST:PORT")] = None,
    overlay: Annotated[str | None, _option("overlay.listen", "HOST:PORT")] = None,
    alm: Annotated[str | None, _option("overlay.alm_order", "ORDER")] = None,
    join: Annotated[list[str] | None, _option("join", "HOST:PORT")] = None,
    web: Annotated[list[str] | None, _option("web.listen", "HOST:PORT")] = None,
    upstream: Annotated[str | None, _option("upstream.url", "URL")] = None,
    log_level: Annotated[str | None, _option("log_level", "LEVEL")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting, such as overlay.heartbeat_interval=0.2."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            envvar=CONFIG_VARIABLE,
            help="Settings in TOML.",
            show_default=False,
        ),
    ] = None,
) -> None:
    r"""Run one broker of the mesh until SIGTERM or SIGINT.

    Two brokers on this machine, a subscriber on one and a publisher on the other:

        saps broker --name b1 --cluster tokyo/ward1 &
        saps broker --name b2 --cluster tokyo/ward2 --join 127.0.0.1:7300 \
                    --mqtt 127.0.0.1:1884 --overlay 127.0.0.1:7301 &
        mosquitto_sub -p 1884 -t 'air/#' -v &
        mosquitto_pub -p 1883 -t air/ward1 -m 21.5

    A line on standard output says when the broker has joined and listens. SIGTERM lets it leave in order.

    Settings come from flags, then environment variables (`SAPS_NAME`, `SAPS_OVERLAY__HEARTBEAT_INTERVAL`),
    then the file of `--config`. Repeat `--join` to give several addresses; they are tried in order.
    """
    flags: dict[str, Any] = {
        "name": name,
        "cluster": cluster,
        "mqtt": mqtt,
        "overlay.listen": overlay,
        "overlay.alm_order": alm,
        "join": ",".join(join) if join else None,
        "web.listen": ",".join(web) if web else None,
        "upstream.url": upstream,
        "log_level": log_level,
    }
    try:
        loaded = load(flags | assigned(assignments or ()), os.environ, config)
    except SettingError as error:
        raise _refuse(error) from None

    # Here, so that --help, --version and check-config do not pay for the broker's imports.
    with Loading():
        from saps.broker import run

    try:
        status = run(loaded.settings)
    except SettingError as error:
        raise _refuse(loaded.locate(error)) from None
    raise typer.Exit(status)


@app.command("check-config")
def check_config(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The TOML file to check.", show_default=False)],
) -> None:
    """Say what is wrong in a configuration file, and where: one line for each fault, and exit status 2."""
    faults = faults_of_file(file)
    for fault in faults:
        typer.echo(f"saps: {fault}", err=True)
    if faults:
        raise typer.Exit(2)
    typer.echo(f"{file}: no fault found")


def _refuse(error: SettingError) -> typer.Exit:
    typer.echo(f"saps: {error}", err=True)
    return typer.Exit(2)
