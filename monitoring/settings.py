"""The settings of `saps monitor` (``[monitor]``), and `Rules`: everything the decisions depend on, in one value.

The job, OFGate's own decider and the replay take the same `Rules`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from monitoring.forecasts.forecast import DEFAULT_MEMORY, Memory
from monitoring.forecasts.model import Pace
from monitoring.selection.network import Network, parse_budget, read_network
from monitoring.selection.score import Weights
from monitoring.selection.selection import Calm
from saps.config import Address, SettingError
from saps.config.knobs import knob
from saps.config.sources_io import Program

LEAST_SKEW = 1000
"""Difference in milliseconds that synchronised clocks may always have, however short the lateness is."""


@dataclass(frozen=True, slots=True)
class Rules:
    """All parameters of the decisions."""

    pace: Pace = field(default_factory=Pace)
    weights: Weights = field(default_factory=Weights)
    calm: Calm = field(default_factory=Calm)
    memory: Memory = DEFAULT_MEMORY
    network: Network = field(default_factory=Network)
    lateness: int = 120_000
    """Milliseconds that rows may come late. A window closes when the median of the brokers' clocks is this far beyond
    its end. A longer lateness delays every decision; a shorter one loses rows of slow writers."""
    most: int = 50_000
    """Most candidates for new trees that the selection gets: those with the highest density (`decider.density`)."""

    @property
    def skew(self) -> int:
        """Most milliseconds that a broker's clock may be ahead of this machine's; rows further ahead are refused.

        A clock within the lateness closes no window early, because windows close that much later."""
        return max(self.lateness, LEAST_SKEW)


def rules_for(interval: float, rules: Rules | None = None) -> Rules:
    """Return rules for brokers that count in intervals of `interval` seconds.

    A window is one interval, the lateness half of one, and the dwell time three. Everything else is as in `rules`, or
    by default."""
    milliseconds = int(interval * 1000)
    given = rules or Rules()
    return replace(
        given,
        pace=given.pace._replace(window=milliseconds),
        calm=given.calm._replace(dwell=3 * milliseconds),
        lateness=milliseconds // 2,
    )


def duration(text: str) -> float:
    """Return the seconds of a text such as ``60``, ``60s``, ``5m`` or ``1h``.

    Raises ValueError for any other text, and for a time that is not positive or exceeds 7 days."""
    number, unit = (text[:-1], text[-1]) if text and text[-1] in "smh" else (text, "s")
    value = float(number) * {"s": 1, "m": 60, "h": 3600}[unit]
    if not 0 < value <= 7 * 86_400:
        raise ValueError(f"{text!r}: more than 0, at most 7 days")
    return value


def lake_fault(text: str) -> str | None:
    """Return why `text` names no place for tables (`monitoring.decisions.tables_io.lake_of`), or None if it does.

    An empty text is no fault."""
    kind, _, place = text.partition(":")
    if text and (kind not in ("delta", "iceberg") or not place or "?" in place):
        return f"{text!r} is not delta:URI or iceberg:NAMESPACE"
    return None


def budget_fault(text: str) -> str | None:
    """Return why `text` is no budget of a switch, or None if it is one."""
    try:
        parse_budget(text)
    except ValueError as error:
        return str(error)
    return None


class MonitorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything `saps monitor` can be told (``[monitor]``). Times are written ``60``, ``60s``, ``5m`` or ``1h``."""

    source: Annotated[
        str,
        knob(
            "Where the counts are: a directory or its URI (s3://, hdfs://, gs://), kafka://HOST:PORT/TOPIC, or "
            "mqtt[s]://[USER@]HOST[:PORT] of any broker",
            flag="--source DIR|URI",
        ),
    ]
    ofgate: Annotated[
        tuple[str, ...], knob("Where OFGates take decisions (`saps ofgate --decisions`)", flag="--ofgate URL")
    ] = ()
    source_password_file: Annotated[
        Path | None, knob("File whose first line is the password for mqtt://", flag="--source-password-file FILE")
    ] = None
    kafka_options: Annotated[
        Path | None,
        knob("File with options of librdkafka, name=value on each line", flag="--kafka-options FILE"),
    ] = None
    state: Annotated[
        str,
        knob("What the job keeps, by path or URI; empty: SOURCE/../monitor of a directory", flag="--state DIR|URI"),
    ] = ""
    tables: Annotated[
        str,
        knob(
            "Windows and decisions as tables, too: delta:URI, or iceberg:NAMESPACE of PyIceberg's default catalog",
            check=lake_fault,
            flag="--tables FORMAT:PLACE",
        ),
    ] = ""
    master: Annotated[
        str, knob("local[*], spark://..., k8s://..., as Spark has it; empty: as it is told", flag="--master MASTER")
    ] = "local[*]"
    once: Annotated[bool, knob("Process what is there, send the decisions, and exit", flag="--once")] = False
    interval: Annotated[
        float,
        knob(
            "Time between two batches",
            unit="s",
            cost="decisions come later; lowering it makes more and smaller files",
            parse=duration,
            flag="--interval TIME",
        ),
    ] = 60.0
    window: Annotated[
        float,
        knob(
            "Length of a window of event time",
            unit="s",
            cost="decisions come later",
            parse=duration,
            flag="--window TIME",
        ),
    ] = 300.0
    lateness: Annotated[
        float,
        knob(
            "How late rows may come: a window is closed that much later",
            unit="s",
            cost="decisions come later; lowering it loses rows of slow writers",
            parse=duration,
            flag="--lateness TIME",
        ),
    ] = 120.0
    horizon: Annotated[
        int,
        knob("Hours ahead whose mean decides", unit="h", cost="slower to follow", flag="--horizon N", ge=1, le=168),
    ] = 6
    hysteresis: Annotated[
        float,
        knob(
            "Share by which an existing tree counts for more",
            unit="fraction",
            cost="trees that pay less stay longer",
            flag="--hysteresis SHARE",
            ge=0,
            le=10,
        ),
    ] = 0.25
    least: Annotated[
        float,
        knob(
            "What a tree must save a second beyond what it costs",
            unit="bytes",
            cost="fewer trees",
            flag="--least BYTES",
            ge=0,
        ),
    ] = 1000.0
    dwell: Annotated[
        float,
        knob(
            "How long a decision stays at least",
            unit="s",
            cost="slower to follow",
            parse=duration,
            flag="--dwell TIME",
        ),
    ] = 900.0
    budget: Annotated[
        tuple[str, ...],
        knob("Room for OFMs on a switch, or on each", check=budget_fault, flag="--budget [SWITCH=]ENTRIES:BUCKETS"),
    ] = ()
    network: Annotated[
        Path | None, knob("File with budgets and switches of clusters, in JSON", flag="--network FILE")
    ] = None
    budgets: Annotated[
        str,
        knob("The controller's northbound, or its /v1/budgets: the room there is", flag="--budgets URL|FILE"),
    ] = ""
    budgets_token_file: Annotated[
        Path | None,
        knob("File whose first line goes to the controller", flag="--budgets-token-file FILE"),
    ] = None
    both: Annotated[bool, knob("Membership is managed by BOTH, not by EITHER", flag="--both")] = False
    token_file: Annotated[
        Path | None, knob("File whose first line goes to OFGate with each table", flag="--token-file FILE")
    ] = None
    certificate: Annotated[
        Path | None,
        knob("For https: OFGates and mqtts: sources: own certificate and key (`saps ca`)", flag="--certificate FILE"),
    ] = None
    authority: Annotated[Path | None, knob("With it: certificate of the mesh's authority", flag="--authority FILE")] = (
        None
    )
    memory: Annotated[str, knob("Java heap of the driver; empty: as Spark is told, else 3g", flag="--memory SIZE")] = ""
    partitions: Annotated[
        int | None,
        knob(
            "Parts of the topics, as spark.sql.shuffle.partitions; stays as it was with the first run",
            flag="--partitions N",
            ge=1,
        ),
    ] = None
    metrics: Annotated[
        Address | None, knob("Where GET /metrics is answered, for Prometheus", flag="--metrics HOST:PORT")
    ] = None
    event_log: Annotated[
        str,
        knob(
            "Where Spark's event log is kept, for its history server; none: nowhere; empty: events/ of a local state",
            flag="--event-log DIR|URI",
        ),
    ] = ""
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        knob("Least severe log line written to standard error", flag="--log-level LEVEL"),
    ] = "info"

    def place(self) -> str:
        """Return the path or URI of the job's state."""
        return self.state or str(Path(self.source).absolute().parent / "monitor")

    def events(self) -> str | None:
        """Return the directory or URI of Spark's event log, or None for no log."""
        if self.event_log:
            return None if self.event_log == "none" else self.event_log
        return None if "://" in self.place() else f"{self.place()}/events"

    def rules(self) -> Rules:
        """Return the rules that these settings give. Raises SettingError if the network file cannot be used."""
        try:
            known = read_network(self.network) if self.network is not None else Network()
        except (ValueError, OSError) as error:
            raise SettingError("network", f"cannot use {self.network}: {error}") from None
        given = dict(map(parse_budget, self.budget))
        default = given.pop("", known.default)
        return Rules(
            pace=Pace(window=int(self.window * 1000), horizon=self.horizon),
            weights=Weights(both=self.both),
            calm=Calm(self.hysteresis, int(self.dwell * 1000), review=self.horizon, least=self.least),
            network=Network(default, {**known.budgets, **given}, known.switches, known.dpids),
            lateness=int(self.lateness * 1000),
        )


def _disagreement(settings: MonitorSettings) -> SettingError | None:
    if (settings.certificate is None) != (settings.authority is None):
        return SettingError("certificate", "certificate and authority belong together")
    if not settings.state and "://" in settings.source:
        return SettingError("state", "is needed with a source by URI")
    return None


PROGRAM = Program(MonitorSettings, "monitor.", disagreement=_disagreement)
