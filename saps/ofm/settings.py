"""The settings of the controller: what can be set, in which unit, to what by default, and what raising it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from saps.config.address import Address
from saps.config.knobs import knob
from saps.ofm.planner.choice import Choice


class ControllerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything `saps controller` can be told."""

    listen: Annotated[Address, knob("Where OpenFlow switches connect")] = Address("127.0.0.1", 6653)
    northbound: Annotated[Address, knob("Where OFGate and others ask for OFMs, by HTTP")] = Address("127.0.0.1", 8181)
    ofm_range: Annotated[
        str, knob("OFM addresses to give out; UDP to this network that belongs to no OFM is dropped by the switches")
    ] = "239.77.0.0/16:5000-5999"
    loopback: Annotated[
        str,
        knob(
            "Where loopback packets seem to come from: an address in the brokers' subnet that no host has. Hosts drop "
            "what seems to come from outside it (rp_filter)"
        ),
    ] = "10.77.255.254"
    flow_budget: Annotated[
        int,
        knob(
            "Flow entries that all OFMs together may use on one switch; beyond it an OFM is refused",
            unit="entries",
            cost="table space that other uses of the switch may need",
            ge=0,
        ),
    ] = 1000
    bucket_budget: Annotated[
        int,
        knob(
            "Group buckets that all OFMs together may use on one switch",
            unit="buckets",
            cost="memory of the switch",
            ge=0,
        ),
    ] = 10_000
    state: Annotated[
        Path | None,
        knob("File to keep OFMs and the network in over a restart; without one OFGate asks again, and trees are read"),
    ] = None
    token: Annotated[str, knob("What requests must carry as `Authorization: Bearer`; empty: nothing")] = ""
    certificate: Annotated[Path | None, knob("File with the northbound's certificate chain and key (PEM): HTTPS")] = (
        None
    )
    clients: Annotated[
        Path | None,
        knob(
            "File with the authorities (PEM) of which clients must have a certificate; with a token too, either is "
            "enough. Needs certificate"
        ),
    ] = None
    openflow_certificate: Annotated[
        Path | None, knob("File with the OpenFlow channel's certificate chain and key (PEM): switches connect by TLS")
    ] = None
    openflow_clients: Annotated[
        Path | None,
        knob("File with the authorities (PEM) of which switches must have a certificate; needs openflow_certificate"),
    ] = None
    grace: Annotated[
        float,
        knob(
            "Time for a lost switch to come back before its links are given up; and time after a start in which no "
            "further switch connects until those that have not are taken for gone",
            unit="s",
            cost="a switch that has died is noticed later; entries of OFMs that nobody wants stay that much longer",
            gt=0,
            le=3600,
        ),
    ] = 10.0
    probe_interval: Annotated[
        float,
        knob(
            "Time between two probes of a port for links; a link that dies without its port is noticed after five",
            unit="s",
            cost="later notice; lowering it costs a packet for each port and interval",
            ge=0.05,
            le=60,
        ),
    ] = 2.0
    planner: Annotated[
        Choice,
        knob(
            "How trees are made: steiner (few links), balanced (away from links that other topics use), sdnps (widest "
            "paths), shortest, mehlhorn or cost-first; all but the first need numpy"
        ),
    ] = "steiner"
    policy: Annotated[
        str,
        knob(
            "Policy files, .xml or TOML, separated by commas: the clusters they name, with their switches, carry no "
            "tree of the topics named. Read again on SIGHUP: all are applied, or none"
        ),
    ] = ""
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], knob("Least severe log line written to standard error")
    ] = "info"
