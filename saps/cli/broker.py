"""The command `saps broker`.

Exit status: 0 after an orderly end, 1 if the broker failed, 2 for a setting that cannot be used. Then a line
on standard error names the setting, says where it was set, and what is wrong.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from saps.cli.apps import command_app
from saps.config import SettingError
from saps.config.sources_io import CONFIG_VARIABLE, KNOBS, assigned, flag_of, load
from saps.runtime.loading import Loading

app = command_app("broker")


def _help_of(setting: str) -> str:
    knob = KNOBS[setting]
    default = "" if knob.default in (msgspec.NODEFAULT, ()) else f" [default: {knob.default}]"
    return f"{knob.about.text}.{default}".replace("[", r"\[")


def _option(setting: str, metavar: str) -> Any:
    return typer.Option(flag_of(setting), metavar=metavar, help=_help_of(setting), show_default=False)


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
    then the file of `--config`. Repeat `--join` to give several addresses: if no broker
    there is in a mesh yet, those that are starting agree which one begins it.
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

    # Here, so that --help does not pay for the broker's imports.
    with Loading():
        from saps.broker.broker import run

    try:
        status = run(loaded.settings)
    except SettingError as error:
        raise _refuse(loaded.locate(error)) from None
    raise typer.Exit(status)


def _refuse(error: SettingError) -> typer.Exit:
    typer.echo(f"saps: {error}", err=True)
    return typer.Exit(2)
