"""The settings of `saps ofgate`: a broker's settings, and its own (``[ofgate]``)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from saps.config.address import Address
from saps.config.knobs import knob
from saps.config.settings import BrokerSettings, cluster_fault, disagreement, name_fault
from saps.config.sources_io import Program


class OfgateSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that OFGate has beyond a broker's (``[ofgate]``)."""

    controller: Annotated[
        tuple[str, ...],
        knob("The controller's northbound interface; of a pair, one after the other", flag="--controller URL"),
    ]
    name: Annotated[
        str,
        knob("Name in the mesh. Of several OFGates the lowest leads", check=name_fault, flag="--name NAME"),
    ] = "ofgate"
    cluster: Annotated[str, knob("The site", check=cluster_fault, flag="--cluster PATH")] = "local"
    overlay: Annotated[Address, knob("Where other brokers reach it", flag="--overlay HOST:PORT")] = Address(
        "127.0.0.1", 7399
    )
    mqtt: Annotated[Address, knob("Where it would take MQTT clients in; it has none")] = Address("127.0.0.1", 0)
    mode: Annotated[Literal["either", "both"], knob("As `ofm.mode` at the brokers", flag="--mode MODE")] = "either"
    token_file: Annotated[
        Path | None,
        knob("File whose first line is sent to the controller with each request", flag="--token-file FILE"),
    ] = None
    lease: Annotated[
        float,
        knob(
            "How long an answer holds",
            unit="s",
            cost="publishers use a tree that is gone for longer",
            flag="--lease SECONDS",
            ge=0.5,
            le=3600,
        ),
    ] = 10.0
    exploit: Annotated[
        tuple[str, ...], knob("Topics to use OFM for from the start", flag="--exploit TOPIC", split=False)
    ] = ()
    decisions: Annotated[
        Address | None,
        knob("Where `saps monitor` sends its decisions, by HTTP", flag="--decisions HOST:PORT"),
    ] = None
    decisions_token_file: Annotated[
        Path | None,
        knob("File whose first line must come with each table", flag="--decisions-token-file FILE"),
    ] = None
    decisions_from: Annotated[
        tuple[str, ...],
        knob(
            "With sealed links: whose certificate must come with each table; else any of the mesh",
            flag="--decisions-from NAME",
        ),
    ] = ()
    decide: Annotated[
        float | None,
        knob(
            "Decide here, on the brokers' counts, each interval",
            unit="s",
            cost="decisions come later",
            flag="--decide SECONDS",
            ge=0.5,
        ),
    ] = None
    switch_counts: Annotated[
        Path | None,
        knob("Directory for the switches' counters of trees, each minute", flag="--switch-counts DIR"),
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        knob("Least severe log line written to standard error", flag="--log-level LEVEL"),
    ] = "info"


class GatewaySettings(BrokerSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of `saps ofgate`, which is a broker without clients."""

    ofgate: OfgateSettings


PROGRAM = Program(
    GatewaySettings,
    flagged="ofgate.",
    declared_flags={"join": "--join HOST:PORT", "ofm.exceptions": "--except FILTER", "ofm.domains": "--domain CLUSTER"},
    replaced={
        "name": "ofgate.name",
        "cluster": "ofgate.cluster",
        "overlay.listen": "ofgate.overlay",
        "mqtt": "ofgate.mqtt",
        "ofm.mode": "ofgate.mode",
        "log_level": "ofgate.log_level",
    },
    disagreement=disagreement,
)
