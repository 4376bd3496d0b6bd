"""The command `saps controller`.

Exit status: 0 after an orderly end, 1 if it failed, 2 for a setting that cannot be used. Then a line on standard error
names the setting and says what is wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
import typer

from saps.config import Address, SettingError
from saps.config.knobs import knobs
from saps.ofm.controller.driver.settings import ControllerSettings

KNOBS = knobs(ControllerSettings)

app = typer.Typer(
    name="controller",
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def flag_of(setting: str) -> str:
    """How a setting is given on the command line: ``--ofm-range`` for ``ofm_range``."""
    return "--" + setting.replace("_", "-")


def _option(setting: str, metavar: str) -> Any:
    knob = KNOBS[setting]
    default = f" [default: {knob.default}]" if knob.default not in (None, "") else ""
    unit = f" ({knob.about.unit})" if knob.about.unit else ""
    return typer.Option(
        flag_of(setting),
        metavar=metavar,
        help=f"{knob.about.text}{unit}.{default}".replace("[", r"\["),
        show_default=False,
    )


@app.command()
def controller(
    listen: Annotated[str | None, _option("listen", "HOST:PORT")] = None,
    northbound: Annotated[str | None, _option("northbound", "HOST:PORT")] = None,
    ofm_range: Annotated[str | None, _option("ofm_range", "NETWORK:FIRST-LAST")] = None,
    addresses: Annotated[str | None, _option("addresses", "PLAN")] = None,
    topic_code: Annotated[str | None, _option("topic_code", "NAME")] = None,
    topics: Annotated[str | None, _option("topics", "FILE")] = None,
    loopback: Annotated[str | None, _option("loopback", "IP")] = None,
    parallel_links: Annotated[str | None, _option("parallel_links", "HOW")] = None,
    flow_budget: Annotated[str | None, _option("flow_budget", "N")] = None,
    bucket_budget: Annotated[str | None, _option("bucket_budget", "N")] = None,
    meter: Annotated[str | None, _option("meter", "PACKETS_PER_SECOND")] = None,
    state: Annotated[str | None, _option("state", "FILE")] = None,
    peer: Annotated[str | None, _option("peer", "URL")] = None,
    takeover: Annotated[str | None, _option("takeover", "SECONDS")] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="Its first line is what requests must carry as `Authorization: Bearer`.",
            show_default=False,
        ),
    ] = None,
    certificate: Annotated[str | None, _option("certificate", "FILE")] = None,
    clients: Annotated[str | None, _option("clients", "FILE")] = None,
    client_names: Annotated[str | None, _option("client_names", "NAME[,NAME...]")] = None,
    revoked: Annotated[str | None, _option("revoked", "FILE")] = None,
    openflow_certificate: Annotated[str | None, _option("openflow_certificate", "FILE")] = None,
    openflow_clients: Annotated[str | None, _option("openflow_clients", "FILE")] = None,
    grace: Annotated[str | None, _option("grace", "SECONDS")] = None,
    probe_interval: Annotated[str | None, _option("probe_interval", "SECONDS")] = None,
    planner: Annotated[str | None, _option("planner", "NAME")] = None,
    clusters: Annotated[str | None, _option("clusters", "FILE")] = None,
    capacities: Annotated[str | None, _option("capacities", "FILE")] = None,
    demands: Annotated[str | None, _option("demands", "FILE")] = None,
    move_share: Annotated[str | None, _option("move_share", "SHARE")] = None,
    move_overlap: Annotated[str | None, _option("move_overlap", "SECONDS")] = None,
    policy: Annotated[str | None, _option("policy", "FILE[,FILE...]")] = None,
    log_level: Annotated[str | None, _option("log_level", "LEVEL")] = None,
) -> None:
    """Run the OpenFlow controller (OFC) until SIGTERM or SIGINT.

    It makes one shared tree for each topic that OFGate asks for, on OpenFlow 1.3 switches; everything else goes on as
    the switches forward it by themselves, with or without a controller.

        saps controller --listen 127.0.0.1:6653 --northbound 127.0.0.1:8181 --ofm-range 239.77.0.0/16:5000-5999
        curl http://127.0.0.1:8181/openapi.json

    With `--peer` it is one of two, and the switches are to connect to both: OFGate is given both northbound addresses.

        saps controller --listen 10.0.0.1:6653 --northbound 10.0.0.1:8181 --peer http://10.0.0.2:8181
        saps controller --listen 10.0.0.2:6653 --northbound 10.0.0.2:8181 --peer http://10.0.0.1:8181

    A line on standard output says when it listens.
    """
    flags = {
        "listen": listen,
        "northbound": northbound,
        "ofm_range": ofm_range,
        "addresses": addresses,
        "topic_code": topic_code,
        "topics": topics,
        "loopback": loopback,
        "parallel_links": parallel_links,
        "flow_budget": flow_budget,
        "bucket_budget": bucket_budget,
        "meter": meter,
        "state": state,
        "peer": peer,
        "takeover": takeover,
        "certificate": certificate,
        "clients": clients,
        "client_names": client_names,
        "revoked": revoked,
        "openflow_certificate": openflow_certificate,
        "openflow_clients": openflow_clients,
        "grace": grace,
        "probe_interval": probe_interval,
        "planner": planner,
        "clusters": clusters,
        "capacities": capacities,
        "demands": demands,
        "move_share": move_share,
        "move_overlap": move_overlap,
        "policy": policy,
        "log_level": log_level,
    }
    try:
        settings = settings_of({name: text for name, text in flags.items() if text is not None}, token_file)
        # Here, so that --help does not pay for these imports.
        from saps.ofm.controller.program import run

        status = run(settings)
    except SettingError as error:
        source = error.source or f"flag {flag_of(error.setting)}"
        typer.echo(f"saps: {SettingError(error.setting, error.message, source)}", err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(status)


def settings_of(flags: dict[str, str], token_file: Path | None = None) -> ControllerSettings:
    """The settings that flags say. Raises `SettingError` for the first that cannot be used."""
    values: dict[str, Any] = {name: _decoded(name, text) for name, text in flags.items()}
    if token_file is not None:
        values["token"] = _token(token_file)
    return ControllerSettings(**values)


def _decoded(name: str, text: str) -> Any:
    kind = get_args(KNOBS[name].type)[0]
    try:
        if kind is Address:
            return Address.parse(text)
        if kind == Path | None:
            return Path(text)
        return msgspec.convert(text, KNOBS[name].type, strict=False)
    except ValueError as error:
        raise SettingError(name, str(error).replace("`", ""), f"flag {flag_of(name)}") from None


def _token(file: Path) -> str:
    try:
        token = file.read_text().partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError("token", f"cannot read {file}: {error}", "flag --token-file") from None
    if not token:
        raise SettingError("token", f"the first line of {file} is empty", "flag --token-file")
    return token


if __name__ == "__main__":
    app(prog_name="saps controller")
