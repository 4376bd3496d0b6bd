"""Declares a broker's settings. Defaults that a component declares are taken from the component."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from saps.config.access import (
    AuthSettings,
    OperationSettings,
    PolicySettings,
    ProxySettings,
    TlsSettings,
    tls_fault,
)
from saps.config.address import Address
from saps.config.drain import DrainSettings
from saps.config.knobs import SettingError, knob
from saps.config.limits import LimitSettings
from saps.config.links import LinkSettings, links_fault
from saps.config.monitoring import MonitoringSettings
from saps.config.ofm import OfmSettings
from saps.config.priority import PrioritySettings
from saps.config.storage import MissedSettings, SessionSettings, StorageSettings
from saps.config.tracing import TracingSettings
from saps.config.web import WebSettings
from saps.frontend.mqtt.access.options import TlsOptions
from saps.frontend.mqtt.access.origin import is_loopback
from saps.frontend.upstream.address import url_fault
from saps.frontend.upstream.bridge import id_fault
from saps.frontend.upstream.mapping import Mapping, mapping_fault, maps_fault
from saps.overlay.membership.failure_detector import DetectorSettings
from saps.overlay.rendezvous.designer import DesignSettings
from saps.overlay.ring.keys import KeyOrder

_DETECTOR = DetectorSettings()
_DESIGN = DesignSettings()
_KEY_ORDERS = {
    "cluster": KeyOrder.CLUSTER,
    "la": KeyOrder.ALM_LA,
    "plain": KeyOrder.ALM,
    "designed": KeyOrder.CLUSTER,  # for topics that the design leaves out
}
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MAX_CLUSTER_LEVELS = 8


def name_fault(name: str) -> str | None:
    """Return why `name` is not a valid name of a broker, or None if it is valid."""
    if _LABEL.fullmatch(name) is None:
        return f"{name!r} must be 1 to 63 letters, digits, '.', '_' or '-', the first a letter or digit"
    return None


def cluster_fault(path: str) -> str | None:
    """Return why `path` is not a cluster path such as ``tokyo/ward1``, or None if it is one."""
    levels = path.split("/")
    if len(levels) > _MAX_CLUSTER_LEVELS:
        return f"{path!r} has {len(levels)} levels, at most {_MAX_CLUSTER_LEVELS} are allowed"
    for level in levels:
        if _LABEL.fullmatch(level) is None:
            return f"{path!r}: level {level!r} must be 1 to 63 letters, digits, '.', '_' or '-' (tokyo/ward1)"
    return None


def join_fault(address: Address) -> str | None:
    """Return why no broker can listen at `address`, or None if one may."""
    return "port 0 cannot be joined" if address.port == 0 else None


class OverlaySettings(MissedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A broker's part in the Skip Graph (``[overlay]``)."""

    listen: Annotated[
        Address,
        knob(
            "Where other brokers reach this one; beyond loopback only with links.tls, links.secret_file or links.plain",
            flag="--overlay HOST:PORT",
        ),
    ] = Address("127.0.0.1", 7300)
    alm_order: Annotated[
        Literal["cluster", "la", "plain", "designed"],
        knob(
            "How a topic's brokers are sorted: 'cluster', one copy to each other site; 'la' and 'plain', the SAPS "
            "paper's ALM-LA and ALM; 'designed', by a designed overlay. The same on every broker",
            flag="--alm ORDER",
        ),
    ] = "cluster"
    design_levels: Annotated[
        int,
        knob(
            "Levels of a designed tree below its root. 1: at most 2 hops; 2: at most 4, fewer links",
            unit="levels",
            cost="hops",
            ge=1,
            le=2,
        ),
    ] = _DESIGN.levels
    design_interval: Annotated[
        float,
        knob(
            "Interval at which the designing broker asks the others for their subscriptions",
            unit="s",
            cost="new subscriptions stay outside the design longer; lowering it costs 2 frames a broker each time",
            ge=0.1,
            le=86400,
        ),
    ] = _DESIGN.interval
    design_drift: Annotated[
        float,
        knob(
            "Share of changed subscriptions from which all trees are designed anew; below it they are repaired",
            unit="fraction",
            cost="links a little less even; lowering it moves more links and sends more",
            ge=0,
            le=1,
        ),
    ] = _DESIGN.drift
    join_timeout: Annotated[
        float,
        knob(
            "How long starting brokers wait for others, before the one with the smallest name begins the mesh",
            unit="s",
            cost="later service if not all are up; lowering it makes meshes that begin apart likelier",
            gt=0,
            le=3600,
        ),
    ] = 5.0
    heartbeat_interval: Annotated[
        float,
        knob(
            "Silence after which a watched broker is pinged",
            unit="s",
            cost="a crash is found later; lowering it costs 2 small frames an interval and neighbour",
            ge=0.01,
            le=60,
        ),
    ] = _DETECTOR.heartbeat
    suspect_after: Annotated[
        float,
        knob(
            "Silence after which a watched broker is considered dead; at least twice heartbeat_interval",
            unit="s",
            cost="a vanished host is repaired that much later; lowering it mistakes a slow broker for a dead one",
            ge=0.02,
            le=600,
        ),
    ] = _DETECTOR.suspect_after
    dead_after: Annotated[
        float,
        knob(
            "Time after which a broker whose link broke is considered dead, unless it answers",
            unit="s",
            cost="a crashed process is repaired that much later; lowering it leaves less time to reconnect",
            ge=0.01,
            le=600,
        ),
    ] = _DETECTOR.dead_after
    probe_interval: Annotated[
        float,
        knob(
            "Interval of attempts to reach dead brokers again, one at a time, to heal a partition",
            unit="s",
            cost="a healed partition is noticed later",
            ge=0.05,
            le=3600,
        ),
    ] = _DETECTOR.probe
    takeover_timeout: Annotated[
        float,
        knob(
            "How long a CONNECT waits for a living broker that has the client's session and does not answer",
            unit="s",
            cost="such clients wait longer; lowering it refuses clients of slow brokers",
            gt=0,
            le=600,
        ),
    ] = 5.0
    leave_timeout: Annotated[
        float,
        knob(
            "Longest time an orderly leave may take after SIGTERM",
            unit="s",
            cost="a slower stop when a neighbour does not answer",
            gt=0,
            le=600,
        ),
    ] = 10.0

    def key_order(self) -> KeyOrder:
        """Return the order of keys in the form that the overlay takes."""
        return _KEY_ORDERS[self.alm_order]

    def design(self) -> DesignSettings | None:
        """Return the settings of the overlay's design, or None if it is not designed."""
        if self.alm_order != "designed":
            return None
        return DesignSettings(self.design_levels, self.design_interval, self.design_drift)

    def detector(self) -> DetectorSettings:
        """Return the settings of the failure detector."""
        return DetectorSettings(
            heartbeat=self.heartbeat_interval,
            suspect_after=self.suspect_after,
            dead_after=self.dead_after,
            probe=self.probe_interval,
        )


class UpstreamSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The existing MQTT broker that this one bridges to the mesh (``[upstream]``)."""

    url: Annotated[
        str,
        knob(
            "An MQTT broker to bridge, as mqtt://[USER:PASSWORD@]HOST[:PORT]; mqtts:// is TLS. At one broker "
            "of the mesh only",
            check=url_fault,
            flag="--upstream URL",
        ),
    ] = ""
    topics: Annotated[
        tuple[str, ...],
        knob(
            "What is forwarded: PATTERN [in|out|both [QOS [LOCAL-PREFIX [REMOTE-PREFIX]]]] [retain=drop], as in "
            "Mosquitto's bridges; QoS 0 or 1",
            check=mapping_fault,
        ),
    ] = ("#",)
    client_id: Annotated[
        str,
        knob(
            "The bridge's client identifier and mark in messages, unique among all bridges; empty: 'saps-' "
            "and the broker's name",
            check=id_fault,
        ),
    ] = ""
    protocol: Annotated[
        Literal["5", "3.1.1"],
        knob("MQTT version. With 3.1.1, messages lose their marks and properties, and echo_window is needed"),
    ] = "5"
    username: Annotated[str, knob("User name at the upstream, instead of the one in the URL")] = ""
    password_file: Annotated[
        str, knob("File with the password, instead of the one in the URL, which other users of this machine may see")
    ] = ""
    ca_file: Annotated[str, knob("Certificates (PEM) to trust with mqtts://; empty for those of the system")] = ""
    certificate_file: Annotated[str, knob("This broker's certificate (PEM) for the upstream, with mqtts://")] = ""
    key_file: Annotated[str, knob("The private key (PEM) of certificate_file, if it is not in it")] = ""
    echo_window: Annotated[
        float,
        knob(
            "How long a message is recognised by topic and payload, where marks are lost; 0: 2 s with MQTT 3.1.1, "
            "none with 5",
            unit="s",
            cost="equal messages of different bridges within this time are taken for one",
            ge=0,
            le=3600,
        ),
    ] = 0.0
    session_expiry: Annotated[
        int,
        knob(
            "How long the upstream keeps messages for this broker while it is away (MQTT 5)",
            unit="s",
            cost="memory at the upstream",
            ge=0,
            le=4294967295,
        ),
    ] = 86400
    keepalive: Annotated[
        int,
        knob(
            "Silence after which the upstream is pinged",
            unit="s",
            cost="a vanished upstream is noticed later",
            ge=1,
            le=65535,
        ),
    ] = 30
    retry_limit: Annotated[
        float,
        knob(
            "Longest pause between two attempts to connect; they begin at 0.5 s and double",
            unit="s",
            cost="an upstream that is back is noticed later",
            ge=0.1,
            le=3600,
        ),
    ] = 30.0
    in_flight: Annotated[
        int,
        knob(
            "Unacknowledged QoS 1 messages in each direction; at most the upstream's maximum (Mosquitto: "
            "max_inflight_messages)",
            unit="messages",
            cost="that many may arrive twice after a broken connection",
            ge=1,
            le=1000,
        ),
    ] = 20
    maximum_queued: Annotated[
        int,
        knob(
            "Messages kept for the upstream while it is away or slow",
            unit="messages",
            cost="memory, about 0.5 KiB each",
            ge=1,
        ),
    ] = 100_000
    maximum_queued_bytes: Annotated[int, knob("Payload kept for it", unit="bytes", cost="memory", ge=1024)] = 67_108_864

    def mappings(self) -> list[Mapping]:
        """Return the parsed lines of `topics`. Raises `ValueError` for a malformed line."""
        return [Mapping.parse(line) for line in self.topics]


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of `saps broker`."""

    name: Annotated[
        str,
        knob("This broker's name, unique in the mesh; kept over restarts", check=name_fault, flag="--name NAME"),
    ]
    cluster: Annotated[
        str,
        knob(
            "The site, as a path (tokyo/ward1): brokers in one cluster have enough bandwidth between them",
            check=cluster_fault,
            flag="--cluster PATH",
        ),
    ] = "local"
    zone: Annotated[
        str,
        knob(
            "What this broker fails with: rack, power supply or machine. Copies of sessions go to other zones"
            " of its cluster first"
        ),
    ] = ""
    mqtt: Annotated[
        Address, knob("Where MQTT clients attach; loopback unless you say otherwise", flag="--mqtt HOST:PORT")
    ] = Address("127.0.0.1", 1883)
    join: Annotated[
        tuple[Address, ...],
        knob(
            "Overlay addresses of other brokers; those that start together agree which one begins the mesh",
            check=join_fault,
            flag="--join HOST:PORT",
        ),
    ] = ()
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        knob(
            "Least severe log line written to standard error",
            cost="'debug' slows a busy broker",
            flag="--log-level LEVEL",
        ),
    ] = "info"
    sys_interval: Annotated[
        float,
        knob(
            "Interval of the $SYS topics; 0: none",
            unit="s",
            cost="older values; lowering it costs a few microseconds a session",
            ge=0,
            le=86400,
        ),
    ] = 10.0
    overlay: OverlaySettings = OverlaySettings()
    links: LinkSettings = LinkSettings()
    limits: LimitSettings = LimitSettings()
    auth: AuthSettings = AuthSettings()
    tls: TlsSettings = TlsSettings()
    proxy: ProxySettings = ProxySettings()
    web: WebSettings = WebSettings()
    upstream: UpstreamSettings = UpstreamSettings()
    ofm: OfmSettings = OfmSettings()
    priority: PrioritySettings = PrioritySettings()
    policy: PolicySettings = PolicySettings()
    monitoring: MonitoringSettings = MonitoringSettings()
    session: SessionSettings = SessionSettings()
    storage: StorageSettings = StorageSettings()
    drain: DrainSettings = DrainSettings()
    tracing: TracingSettings = TracingSettings()
    operations: OperationSettings = OperationSettings()

    def exposed(self) -> bool:
        """Return whether MQTT clients on other machines can reach this broker."""
        listening = (self.mqtt, *self.tls.listen, *self.web.listen)
        return bool(self.proxy.listen) or not all(is_loopback(address.host) for address in listening)

    def tls_options(self) -> TlsOptions | None:
        """Return the TLS settings in the form that the frontends take, or None if no listener uses TLS."""
        wanted = self.tls.listen or (self.web.listen and self.web.tls) or (self.proxy.listen and self.proxy.tls)
        return msgspec.convert(self.tls, TlsOptions, from_attributes=True) if wanted else None


def disagreement(settings: BrokerSettings) -> SettingError | None:
    """Return the first fault of settings that are valid alone but cannot be used together, or None."""
    overlay = settings.overlay
    if overlay.suspect_after < 2 * overlay.heartbeat_interval:
        return SettingError(
            "overlay.suspect_after",
            f"{overlay.suspect_after:g} s must be at least twice overlay.heartbeat_interval "
            f"({overlay.heartbeat_interval:g} s), or one late sign of life is taken for a crash",
        )
    if settings.mqtt.port and settings.mqtt == overlay.listen:
        return SettingError("overlay.listen", f"{overlay.listen} is the address of mqtt already")
    if overlay.listen.port and overlay.listen in settings.join:
        return SettingError("join", f"{overlay.listen} is this broker's own overlay address")
    if (fault := maps_fault(settings.upstream.mappings())) is not None:
        return SettingError("upstream.topics", fault)
    for address in settings.tls.listen:
        if address.port and address in (settings.mqtt, overlay.listen):
            taken = "mqtt" if address == settings.mqtt else "overlay.listen"
            return SettingError("tls.listen", f"{address} is the address of {taken} already")
    for address in settings.web.listen:
        if address.port and address in (settings.mqtt, overlay.listen, *settings.tls.listen):
            return SettingError("web.listen", f"{address} is taken by mqtt, overlay.listen or tls.listen already")
    others = (settings.mqtt, overlay.listen, *settings.tls.listen, *settings.web.listen)
    for address in settings.proxy.listen:
        if address.port and address in others:
            why = f"{address} is taken by mqtt, overlay.listen, tls.listen or web.listen already"
            return SettingError("proxy.listen", why)
    if settings.web.tls and not settings.tls.certificate:
        return SettingError("web.tls", "needs tls.certificate")
    return tls_fault(settings.tls, settings.proxy) or links_fault(settings.links)
