"""The settings themselves. Defaults that a component declares are taken from it."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from saps.config.address import Address
from saps.config.knobs import SettingError, knob
from saps.frontend.mqtt.limits import Limits
from saps.overlay.detector import DetectorSettings
from saps.overlay.keys import KeyOrder

_DETECTOR = DetectorSettings()
_LIMITS = Limits()
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MAX_CLUSTER_LEVELS = 8


def name_fault(name: str) -> str | None:
    """Why `name` cannot name a broker, or None if it can."""
    if _LABEL.fullmatch(name) is None:
        return f"{name!r} must be 1 to 63 letters, digits, '.', '_' or '-', the first a letter or digit"
    return None


def cluster_fault(path: str) -> str | None:
    """Why `path` is not a cluster path such as ``tokyo/ward1``, or None if it is one."""
    levels = path.split("/")
    if len(levels) > _MAX_CLUSTER_LEVELS:
        return f"{path!r} has {len(levels)} levels, at most {_MAX_CLUSTER_LEVELS} are allowed"
    for level in levels:
        if _LABEL.fullmatch(level) is None:
            return f"{path!r}: level {level!r} must be 1 to 63 letters, digits, '.', '_' or '-' (tokyo/ward1)"
    return None


def join_fault(address: Address) -> str | None:
    """Why no broker can be reached at `address`, or None if one may."""
    return "port 0 cannot be joined" if address.port == 0 else None


class OverlaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a broker takes part in the Skip Graph (``[overlay]``)."""

    listen: Annotated[
        Address,
        knob(
            "Where other brokers reach this one. Links are not authenticated yet: leave loopback only in a "
            "network you trust"
        ),
    ] = Address("127.0.0.1", 7300)
    alm_order: Annotated[
        Literal["la", "plain"],
        knob(
            "Order of a topic's keys: 'la' by cluster path, which keeps links inside a site; 'plain' by the "
            "hash of the broker's name. The same on every broker of a mesh"
        ),
    ] = "la"
    join_timeout: Annotated[
        float,
        knob(
            "How long to try the addresses of `join` before giving up",
            unit="s",
            cost="a wrong address is reported later",
            gt=0,
            le=3600,
        ),
    ] = 10.0
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
            "Silence after which a watched broker is taken for dead; at least twice heartbeat_interval",
            unit="s",
            cost="a vanished host is repaired that much later; lowering it mistakes a slow broker for a dead one",
            ge=0.02,
            le=600,
        ),
    ] = _DETECTOR.suspect_after
    dead_after: Annotated[
        float,
        knob(
            "Time after which a broker whose link broke is taken for dead, unless it answers",
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
    leave_timeout: Annotated[
        float,
        knob(
            "How long an orderly leave may take after SIGTERM before the broker just goes",
            unit="s",
            cost="a slower stop when a neighbour does not answer",
            gt=0,
            le=600,
        ),
    ] = 10.0

    def key_order(self) -> KeyOrder:
        """The order of the keys, as the overlay takes it."""
        return KeyOrder.ALM_LA if self.alm_order == "la" else KeyOrder.ALM

    def detector(self) -> DetectorSettings:
        """The part that the failure detector takes."""
        return DetectorSettings(
            heartbeat=self.heartbeat_interval,
            suspect_after=self.suspect_after,
            dead_after=self.dead_after,
            probe=self.probe_interval,
        )


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one MQTT client may ask of this broker (``[limits]``)."""

    maximum_packet_size: Annotated[
        int,
        knob(
            "Largest packet accepted from a client",
            unit="bytes",
            cost="a client can make the broker buffer one such packet",
            ge=128,
            le=268435460,
        ),
    ] = _LIMITS.maximum_packet_size
    receive_maximum: Annotated[
        int,
        knob(
            "QoS 1 and 2 publications a client may have unacknowledged; an MQTT 3.1.1 client is not read beyond",
            unit="messages",
            cost="memory for each of them",
            ge=1,
            le=65535,
        ),
    ] = _LIMITS.receive_maximum
    send_maximum: Annotated[
        int,
        knob(
            "QoS 1 and 2 messages in flight to a client that does not ask for fewer",
            unit="messages",
            cost="about 150 bytes each",
            ge=1,
            le=65535,
        ),
    ] = _LIMITS.send_maximum
    topic_alias_maximum: Annotated[
        int,
        knob(
            "Topic aliases a client may set",
            unit="aliases",
            cost="one topic name each, for as long as the connection lives",
            ge=0,
            le=65535,
        ),
    ] = _LIMITS.topic_alias_maximum
    outgoing_topic_aliases: Annotated[
        int,
        knob(
            "Topic aliases used towards a client that allows them",
            unit="aliases",
            cost="packets with an alias are not shared with other clients",
            ge=0,
            le=65535,
        ),
    ] = _LIMITS.outgoing_topic_aliases
    maximum_queued: Annotated[
        int,
        knob(
            "Messages kept for a client that is away or slow, of QoS 0 and of QoS 1 and 2 each",
            unit="messages",
            cost="memory for each such client",
            ge=0,
        ),
    ] = _LIMITS.maximum_queued
    maximum_queued_bytes: Annotated[
        int,
        knob(
            "Payload kept for such a client",
            unit="bytes",
            cost="memory for each such client",
            ge=0,
        ),
    ] = _LIMITS.maximum_queued_bytes
    maximum_session_expiry: Annotated[
        int,
        knob(
            "Longest time a session is kept without a connection",
            unit="s",
            cost="abandoned sessions stay that much longer",
            ge=0,
            le=4294967294,
        ),
    ] = _LIMITS.maximum_session_expiry
    connect_timeout: Annotated[
        float,
        knob(
            "Time within which a new connection must send CONNECT",
            unit="s",
            cost="silent connections hold their socket longer",
            gt=0,
            le=3600,
        ),
    ] = _LIMITS.connect_timeout
    linger: Annotated[
        float,
        knob(
            "Time a closed connection may take to receive its last packets",
            unit="s",
            cost="dead peers hold their socket longer",
            ge=0,
            le=3600,
        ),
    ] = _LIMITS.linger
    write_high_water: Annotated[
        int,
        knob(
            "Bytes waiting in a client's transport above which its messages are queued",
            unit="bytes",
            cost="memory for each slow client",
            ge=1024,
        ),
    ] = _LIMITS.write_high_water
    patience: Annotated[
        float,
        knob(
            "Time publishers wait for a slow subscriber before its messages are queued and then dropped",
            unit="s",
            cost="a slow subscriber holds publishers longer",
            ge=0,
            le=60,
        ),
    ] = _LIMITS.patience
    patience_again: Annotated[
        float,
        knob(
            "Time until a subscriber that used up the patience is waited for again; at most patience / "
            "patience_again of the publishers' time is lost to it",
            unit="s",
            cost="a subscriber slow in bursts loses messages sooner",
            ge=0,
            le=86400,
        ),
    ] = _LIMITS.patience_again

    def limits(self) -> Limits:
        """The same, as the MQTT frontend takes it."""
        return msgspec.convert(self, Limits, from_attributes=True)


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything `saps broker` can be told."""

    name: Annotated[
        str,
        knob("This broker's name, unique in the mesh; kept over restarts", check=name_fault),
    ]
    cluster: Annotated[
        str,
        knob(
            "The site, as a path (tokyo/ward1): brokers in one cluster have enough bandwidth between them",
            check=cluster_fault,
        ),
    ] = "local"
    mqtt: Annotated[Address, knob("Where MQTT clients attach; loopback unless you say otherwise")] = Address(
        "127.0.0.1", 1883
    )
    join: Annotated[
        tuple[Address, ...],
        knob(
            "Overlay addresses of brokers of the mesh, tried in order; none starts a new mesh",
            check=join_fault,
        ),
    ] = ()
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        knob("Least severe log line written to standard error", cost="'debug' slows a busy broker"),
    ] = "info"
    overlay: OverlaySettings = OverlaySettings()
    limits: LimitSettings = LimitSettings()


def disagreement(settings: BrokerSettings) -> SettingError | None:
    """The first pair of settings, each good alone, that cannot be used together, or None."""
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
    return None
