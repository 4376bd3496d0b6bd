"""The command `saps monitor`: the Spark job that decides which topics get OpenFlow trees.

Exit status: 0 after an orderly end, 1 if OFGate has not got all decisions or batches fail again and again, 2 for an
option that cannot be used.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saps.config import Address
from saps.runtime.logs import configure_logging

if TYPE_CHECKING:
    from monitoring.settings import Rules

app = typer.Typer(
    name="monitor",
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Seconds = float


def duration(text: str) -> Seconds:
    """``60``, ``60s``, ``5m``, ``1h`` in seconds. Raises ValueError."""
    number, unit = (text[:-1], text[-1]) if text and text[-1] in "smh" else (text, "s")
    value = float(number) * {"s": 1, "m": 60, "h": 3600}[unit]
    if not 0 < value <= 7 * 86_400:
        raise ValueError(f"{text!r}: more than 0, at most 7 days")
    return value


@app.command()
def monitor(
    source: Annotated[Path, typer.Option("--source", metavar="DIR", help="Where the brokers leave their counts.")],
    ofgate: Annotated[
        list[str] | None, typer.Option("--ofgate", metavar="URL", help="OFGate's door for decisions; repeat for more.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="DIR", help="What the job keeps [default: SOURCE/../monitor].")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="MASTER", help="local\\[*], spark://..., k8s://..., as Spark has it."),
    ] = "local[*]",
    once: Annotated[bool, typer.Option("--once", help="Process what is there, send the decisions, and exit.")] = False,
    interval: Annotated[str, typer.Option("--interval", metavar="TIME", help="Time between two batches.")] = "60s",
    window: Annotated[str, typer.Option("--window", metavar="TIME", help="Length of a window of event time.")] = "5m",
    lateness: Annotated[
        str,
        typer.Option("--lateness", metavar="TIME", help="How late rows may come: a window is closed that much later."),
    ] = "2m",
    horizon: Annotated[int, typer.Option("--horizon", min=1, max=168, help="Hours ahead whose mean decides.")] = 6,
    hysteresis: Annotated[
        float, typer.Option("--hysteresis", min=0, max=10, help="Share by which an existing tree counts for more.")
    ] = 0.25,
    least: Annotated[
        float,
        typer.Option("--least", min=0, metavar="BYTES", help="What a tree must save a second beyond what it costs."),
    ] = 1000.0,
    dwell: Annotated[str, typer.Option("--dwell", metavar="TIME", help="How long a decision stays at least.")] = "15m",
    budget: Annotated[
        list[str] | None,
        typer.Option("--budget", metavar="[SWITCH=]ENTRIES:BUCKETS", help="Room for OFMs on a switch, or on each."),
    ] = None,
    network: Annotated[
        Path | None, typer.Option("--network", metavar="FILE", help="Budgets and switches of clusters, in JSON.")
    ] = None,
    budgets: Annotated[
        str | None,
        typer.Option(
            "--budgets", metavar="URL|FILE", help="The controller's northbound, or its /v1/budgets: the room there is."
        ),
    ] = None,
    budgets_token_file: Annotated[
        Path | None,
        typer.Option("--budgets-token-file", metavar="FILE", help="Its first line goes to the controller."),
    ] = None,
    both: Annotated[bool, typer.Option("--both", help="Membership is managed by BOTH, not by EITHER.")] = False,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="Its first line goes to OFGate with each table.")
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE", help="For https: OFGates: own certificate and key (`saps ca`)."),
    ] = None,
    authority: Annotated[
        Path | None, typer.Option("--authority", metavar="FILE", help="With it: certificate of the mesh's authority.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", metavar="SIZE", help="Java heap of the driver [default: as Spark is told, else 3g]."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            min=1,
            help="Parts of the topics, as spark.sql.shuffle.partitions; stays as it was with the first run.",
        ),
    ] = None,
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="HOST:PORT", help="Answer GET /metrics there, for Prometheus.")
    ] = None,
    event_log: Annotated[
        str | None,
        typer.Option("--event-log", metavar="DIR|URI", help="Keep Spark's event log there, for its history server."),
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", metavar="LEVEL", help="Least severe log line.")] = "info",
) -> None:
    """Decide which topics get OpenFlow trees, from the brokers' counts, and tell OFGate.

    Brokers count with `--set monitoring.directory=DIR`; OFGate listens with `--decisions HOST:PORT`.

        saps monitor --source /var/lib/saps/counts --ofgate http://127.0.0.1:8282 --once

    The state directory makes it exact: killed at any point and started again, the job neither loses nor repeats a
    decision. Needs the extra `saps[spark]` and Java 17.
    """
    configure_logging(log_level)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        rules = rules_of(window, lateness, horizon, hysteresis, dwell, budget or (), network, both, least)
        every = None if once else duration(interval)
        at = Address.parse(metrics) if metrics is not None else None
        token, asking = _first_line(token_file), _first_line(budgets_token_file)
        if (certificate is None) != (authority is None):
            raise ValueError("--certificate and --authority belong together")
    except (ValueError, KeyError, OSError) as error:
        typer.echo(f"saps: {error}", err=True)
        raise typer.Exit(2) from None
    try:  # here, so that --help does not pay for Spark
        from monitoring.run import Order, run
        from monitoring.sink import Identity
        from monitoring.spark import NoSparkError, session
    except ImportError as error:
        typer.echo(f"saps: {error}: install saps[spark]", err=True)
        raise typer.Exit(2) from None
    identity = Identity(certificate, authority) if certificate is not None and authority is not None else None
    from monitoring.budgets import Budgets

    told = Budgets(budgets, rules.network, asking) if budgets is not None else None
    kept = state or source.absolute().parent / "monitor"
    try:
        spark = session(master or None, memory, partitions, event_log=event_log)
    except (NoSparkError, OSError) as error:
        typer.echo(f"saps: {error}", err=True)
        raise typer.Exit(1) from None
    try:
        typer.echo(f"ready source={source} state={kept}")
        order = Order(
            source, kept, ofgate or [], token, every, rules=rules, budgets=told, identity=identity, metrics=at
        )
        status = run(spark, order)
    except OSError as error:
        typer.echo(f"saps: {error}", err=True)
        raise typer.Exit(2) from None
    finally:
        spark.stop()
    raise typer.Exit(status)


def _first_line(file: Path | None) -> str | None:
    """Raises OSError."""
    return file.read_text().partition("\n")[0].strip() if file is not None else None


def rules_of(
    window: str,
    lateness: str,
    horizon: int,
    hysteresis: float,
    dwell: str,
    budgets: list[str] | tuple[()],
    network: Path | None,
    both: bool,
    least: float,
) -> Rules:
    """The rules that the options say. Raises ValueError, KeyError or OSError."""
    from monitoring.model import Pace
    from monitoring.network import Network, parse_budget, read_network
    from monitoring.score import Weights
    from monitoring.selection import Calm
    from monitoring.settings import Rules

    known = read_network(network) if network is not None else Network()
    given = dict(parse_budget(text) for text in budgets)
    default = given.pop("", known.default)
    return Rules(
        pace=Pace(window=int(duration(window) * 1000), horizon=horizon),
        weights=Weights(both=both),
        calm=Calm(hysteresis, int(duration(dwell) * 1000), review=horizon, least=least),
        network=Network(default, {**known.budgets, **given}, known.switches, known.dpids),
        lateness=int(duration(lateness) * 1000),
    )
