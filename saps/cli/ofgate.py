"""The command `saps ofgate`.

Exit status: 0 after an orderly end, 1 if it failed, 2 for a setting that cannot be used. Then a line on standard error
names the setting and says what is wrong.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from saps.config import Address, SettingError
from saps.config.sources_io import CONFIG_VARIABLE, assigned, load

app = typer.Typer(
    name="ofgate",
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def ofgate(
    controller: Annotated[
        list[str],
        typer.Option(
            "--controller", metavar="URL", help="The controller's northbound interface; of a pair, one after the other."
        ),
    ],
    join: Annotated[
        list[str] | None, typer.Option("--join", metavar="HOST:PORT", help="Brokers of the mesh, tried in order.")
    ] = None,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Name in the mesh. Of several OFGates the lowest leads.")
    ] = "ofgate",
    cluster: Annotated[str, typer.Option("--cluster", metavar="PATH", help="The site.")] = "local",
    overlay: Annotated[
        str, typer.Option("--overlay", metavar="HOST:PORT", help="Where other brokers reach it.")
    ] = "127.0.0.1:7399",
    mode: Annotated[str, typer.Option("--mode", metavar="MODE", help="'either' or 'both', as at the brokers.")] = (
        "either"
    ),
    exceptions: Annotated[
        list[str] | None,
        typer.Option("--except", metavar="FILTER", help="Topics that use the other mode, as at the brokers."),
    ] = None,
    domains: Annotated[
        list[str] | None,
        typer.Option(
            "--domain", metavar="CLUSTER", help="All OpenFlow domains, as at the brokers; its own is --cluster's."
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", metavar="FILE", help="Its first line is sent to the controller with each request."
        ),
    ] = None,
    lease: Annotated[
        float, typer.Option("--lease", metavar="SECONDS", min=0.5, max=3600, help="How long an answer holds.")
    ] = 10.0,
    exploit: Annotated[
        list[str] | None, typer.Option("--exploit", metavar="TOPIC", help="Use OFM for a topic from the start.")
    ] = None,
    decisions: Annotated[
        str | None,
        typer.Option("--decisions", metavar="HOST:PORT", help="Where `saps monitor` sends its decisions, by HTTP."),
    ] = None,
    decisions_token_file: Annotated[
        Path | None,
        typer.Option("--decisions-token-file", metavar="FILE", help="Its first line must come with each table."),
    ] = None,
    decisions_from: Annotated[
        list[str] | None,
        typer.Option(
            "--decisions-from",
            metavar="NAME",
            help="With sealed links: whose certificate must come with each table; else any of the mesh. Repeatable.",
        ),
    ] = None,
    decide: Annotated[
        float | None,
        typer.Option(
            "--decide", metavar="SECONDS", min=0.5, help="Decide here, on the brokers' counts, each interval."
        ),
    ] = None,
    switch_counts: Annotated[
        Path | None,
        typer.Option("--switch-counts", metavar="DIR", help="Leave the switches' counters of trees here, each minute."),
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", metavar="LEVEL", help="Least severe log line.")] = "info",
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting of a broker, such as links.secret_file=F."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", envvar=CONFIG_VARIABLE, help="Settings in TOML, as a broker's."),
    ] = None,
) -> None:
    """Run OFGate, the gateway between the mesh and an OpenFlow controller, until SIGTERM or SIGINT.

    It is a node of the mesh without MQTT clients. It knows which brokers want which topic, has the controller make a
    tree where that is worth it, and tells the publishers when to use it. A second one takes over when the first dies.

        saps ofgate --controller http://127.0.0.1:8181 --join 127.0.0.1:7300

    Lines on standard input are orders: `exploit TOPIC`, `release TOPIC`, `renew TOPIC`, `status`, `brokers`. Each is
    answered by a line of JSON.
    """
    flags = {
        "name": name,
        "cluster": cluster,
        "overlay.listen": overlay,
        "mqtt": "127.0.0.1:0",
        "join": ",".join(join) if join else None,
        "ofm.mode": mode,
        "ofm.exceptions": ",".join(exceptions) if exceptions else None,
        "ofm.domains": ",".join(domains) if domains else None,
        "log_level": log_level,
    }
    try:
        loaded = load(flags | assigned(assignments or ()), os.environ, config)
        token = token_file.read_text().partition("\n")[0].strip() if token_file is not None else None
        listen = Address.parse(decisions) if decisions is not None else None
        secret = decisions_token_file.read_text().partition("\n")[0].strip() if decisions_token_file else ""
    except (SettingError, OSError, ValueError) as error:
        raise _refuse(error) from None

    # Here, so that --help does not pay for the imports.
    from saps.agents.ofgate.program.decisions import DecisionOptions
    from saps.agents.ofgate.program.gateway import run

    try:
        status = run(
            loaded.settings,
            controller,
            token,
            lease,
            exploit or (),
            DecisionOptions(listen, secret, decide, switch_counts, tuple(decisions_from or ())),
        )
    except SettingError as error:
        raise _refuse(loaded.locate(error)) from None
    raise typer.Exit(status)


def _refuse(error: Exception) -> typer.Exit:
    typer.echo(f"saps: {error}", err=True)
    return typer.Exit(2)
