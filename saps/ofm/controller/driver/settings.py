"""The settings of the controller: values, units, defaults, and the costs of raising them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from saps.config.address import Address
from saps.config.knobs import knob
from saps.config.sources_io import Program
from saps.ofm.planner.choice import Choice


class ControllerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of `saps controller` (``[controller]``)."""

    listen: Annotated[
        Address,
        knob(
            "Where OpenFlow switches connect",
            flag="--listen HOST:PORT",
        ),
    ] = Address("127.0.0.1", 6653)
    northbound: Annotated[
        Address,
        knob(
            "Where OFGate and others ask for OFMs, by HTTP",
            flag="--northbound HOST:PORT",
        ),
    ] = Address("127.0.0.1", 8181)
    ofm_range: Annotated[
        str,
        knob(
            "OFM addresses to give out; UDP to this network that belongs to no OFM is dropped by the switches",
            flag="--ofm-range NETWORK:FIRST-LAST",
        ),
    ] = "239.77.0.0/16:5000-5999"
    addresses: Annotated[
        Literal["allocated", "coded"],
        knob(
            "allocated: each OFM has an address of ofm_range; coded: the code of its topic in ff18::/25, so that "
            "one flow entry serves topics with one tree (IPv6)",
            flag="--addresses PLAN",
        ),
    ] = "allocated"
    topic_code: Annotated[
        Literal["delimited", "published"],
        knob(
            "With coded addresses: delimited is ours, published that of SDNPS (2016)",
            flag="--topic-code NAME",
        ),
    ] = "delimited"
    topics: Annotated[
        Path | None,
        knob(
            "With coded addresses: TOML file with the topics that may be used, and how many below which prefix; "
            "without one, all",
            flag="--topics FILE",
        ),
    ] = None
    loopback: Annotated[
        str,
        knob(
            "Where loopback packets seem to come from: an address in the brokers' subnet that no host has",
            flag="--loopback IP",
        ),
    ] = "10.77.255.254"
    flow_budget: Annotated[
        int,
        knob(
            "Flow entries that all OFMs together may use on one switch; beyond it an OFM is refused",
            unit="entries",
            cost="table space that other uses of the switch may need",
            ge=0,
            flag="--flow-budget N",
        ),
    ] = 1000
    bucket_budget: Annotated[
        int,
        knob(
            "Group buckets that all OFMs together may use on one switch",
            unit="buckets",
            cost="memory of the switch",
            ge=0,
            flag="--bucket-budget N",
        ),
    ] = 10_000
    meter: Annotated[
        int,
        knob(
            "Datagrams that may enter the tree of one topic by one port of a switch, by a meter. 0: any number. "
            "Not with coded addresses",
            unit="1/s",
            cost="a flood in a broker's name costs more; below what the topic has, datagrams are repaired by ALM",
            ge=0,
            le=0xFFFFFFFF,
            flag="--meter PACKETS_PER_SECOND",
        ),
    ] = 0
    parallel_links: Annotated[
        Literal["topic", "select", "failover"],
        knob(
            "Of parallel links between two switches a tree uses one (topic), all by SELECT groups (select), or the "
            "first that is up by FAST_FAILOVER groups (failover): with these switches leave out a link that fails. "
            "Not with coded addresses",
            cost="but for topic a group on both switches for each topic",
            flag="--parallel-links HOW",
        ),
    ] = "topic"
    planes: Annotated[
        int,
        knob(
            "Spanning trees for stateless delivery; with more, the failure of a link leaves more of them whole. 0: "
            "none. Not with coded addresses",
            unit="planes",
            cost="two entries for each of its links in a switch",
            ge=0,
            le=8,
            flag="--planes N",
        ),
    ] = 4
    spanning_tree: Annotated[
        Literal["switches", "controller"],
        knob(
            "Who keeps the switches' own flooding free of loops: switches, or controller, which closes links beyond "
            "a spanning tree to all but OFM. Not with coded addresses",
            cost="three entries at each end of a closed link",
            flag="--spanning-tree WHOSE",
        ),
    ] = "switches"
    state: Annotated[
        Path | None,
        knob(
            "File to keep OFMs and the network in over a restart; without one OFGate asks again, and trees are read",
            flag="--state FILE",
        ),
    ] = None
    peer: Annotated[
        str,
        knob(
            "Northbound address (http://HOST:PORT) of a second controller of the same switches, which takes over "
            "when the master dies. To be given to both",
            flag="--peer URL",
        ),
    ] = ""
    takeover: Annotated[
        float,
        knob(
            "Time without a word from the peer after which it is considered dead; the same for both",
            unit="s",
            cost="a later takeover; lowering it makes a slow master lose its role",
            ge=0.5,
            le=600,
            flag="--takeover SECONDS",
        ),
    ] = 2.0
    token_file: Annotated[
        Path | None,
        knob(
            "File whose first line requests must carry as `Authorization: Bearer`; none: nothing",
            flag="--token-file FILE",
        ),
    ] = None
    certificate: Annotated[
        Path | None,
        knob(
            "File with the northbound's certificate chain and key (PEM): HTTPS",
            flag="--certificate FILE",
        ),
    ] = None
    clients: Annotated[
        Path | None,
        knob(
            "File with the authorities (PEM) of which clients must have a certificate; with a token too, either is "
            "enough. Needs certificate",
            flag="--clients FILE",
        ),
    ] = None
    client_names: Annotated[
        str,
        knob(
            "Names of brokers in clients' certificates (`saps ca`), separated by commas: nobody else may ask; empty: "
            "all that `clients` vouch for",
            flag="--client-names NAME[,NAME...]",
        ),
    ] = ""
    revoked: Annotated[
        Path | None,
        knob(
            "File with the revocation lists (PEM) of `clients`, as `saps ca` writes it. Read again on SIGHUP",
            flag="--revoked FILE",
        ),
    ] = None
    openflow_certificate: Annotated[
        Path | None,
        knob(
            "File with the OpenFlow channel's certificate chain and key (PEM): switches connect by TLS",
            flag="--openflow-certificate FILE",
        ),
    ] = None
    openflow_clients: Annotated[
        Path | None,
        knob(
            "File with the authorities (PEM) of which switches must have a certificate; needs openflow_certificate",
            flag="--openflow-clients FILE",
        ),
    ] = None
    grace: Annotated[
        float,
        knob(
            "Time for a lost switch to come back before its links are given up; the same after a start",
            unit="s",
            cost="a switch that has died is noticed later",
            gt=0,
            le=3600,
            flag="--grace SECONDS",
        ),
    ] = 10.0
    probe_interval: Annotated[
        float,
        knob(
            "Time between two probes of a port; a link that dies without its port is noticed after five",
            unit="s",
            cost="later notice; lowering it costs a packet for each port and interval",
            ge=0.05,
            le=60,
            flag="--probe-interval SECONDS",
        ),
    ] = 2.0
    planner: Annotated[
        Choice,
        knob(
            "How trees are made: steiner (few links), balanced (away from busy links), sdnps (widest paths), "
            "shortest, mehlhorn, cost-first; all but the first need numpy",
            flag="--planner NAME",
        ),
    ] = "steiner"
    clusters: Annotated[
        Path | None,
        knob(
            "File with the cluster of each switch (JSON: 16 hexadecimal digits to a name), for trees on two "
            "levels. Only with the planner balanced",
            flag="--clusters FILE",
        ),
    ] = None
    capacities: Annotated[
        Path | None,
        knob(
            "File with capacities of links (JSON: GET /v1/topology's answer with `capacity` in bit/s); else what "
            "the ports say, or 1 Gbit/s",
            flag="--capacities FILE",
        ),
    ] = None
    demands: Annotated[
        Path | None,
        knob(
            "File with the demands of topics (JSON list of `topic` and `rate` in bit/s, or `messages` a second "
            "and `size` in bytes); else what OFGate says, or 1 Mbit/s",
            flag="--demands FILE",
        ),
    ] = None
    move_share: Annotated[
        float,
        knob(
            "Share of all trees that may move to other links in a minute, at least one; 0: none. Only with the "
            "planner balanced",
            cost="more changes of tables; lowering it, links are uneven for longer",
            ge=0,
            le=1,
            flag="--move-share SHARE",
        ),
    ] = 0.1
    move_overlap: Annotated[
        float,
        knob(
            "How long a tree that has moved stays where it was as well; must be longer than OFGate's lease",
            unit="s",
            cost="entries are used twice for longer",
            ge=1,
            le=7200,
            flag="--move-overlap SECONDS",
        ),
    ] = 30.0
    policy: Annotated[
        str,
        knob(
            "Policy files, .xml or TOML, separated by commas: the clusters they name carry no tree of the topics "
            "named. Read again on SIGHUP",
            flag="--policy FILE[,FILE...]",
        ),
    ] = ""
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        knob(
            "Least severe log line written to standard error",
            flag="--log-level LEVEL",
        ),
    ] = "info"


PROGRAM = Program(ControllerSettings, "controller.")
