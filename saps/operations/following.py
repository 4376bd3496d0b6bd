"""Live traces: a client's packets, decoded; the ways of a topic's messages; and the reasons for missing deliveries.

Each broker notes events, within bounds, as long as a live trace runs. The follower collects them from all brokers every
half second. Without a live trace nothing costs time: the hub's tracer and the connections' taps are not set.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from saps.agents.api import remote, repeatable
from saps.frontend.mqtt.access.filters import Levels, admits
from saps.frontend.mqtt.codec.decode import decode
from saps.frontend.mqtt.codec.packets import (
    Ack,
    Connack,
    Disconnect,
    Packet,
    PacketType,
    Publish,
    Suback,
    Subscribe,
    Unsubscribe,
)
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.reasons import MqttError, Reason
from saps.frontend.mqtt.codec.wire import fixed_header
from saps.operations.clients import Subscribes, permitted
from saps.operations.values import shown
from saps.routing.token_bucket import TokenBucket
from saps.topics import filter_fault

if TYPE_CHECKING:
    from saps.agents.user import SubscriberAgent
    from saps.frontend.mqtt.connection.client_connection import ClientConnection
    from saps.frontend.mqtt.frontend import Frontend
    from saps.routing.batch import Batch
    from saps.routing.routes import Route
    from saps.routing.tracer import Trace, Tracer

FOLLOW = "follow"
"""Name of the agent at each broker; it needs no key in the overlay."""
MOST = 8
"""Most live traces at a broker at the same time."""
KEPT = 1000
"""Most events of a live trace kept for collection at each broker; older ones are dropped and counted."""
PER_SECOND = 200.0
"""Most events a second of a live trace at each broker; further ones are dropped and counted."""
LONGEST = 600.0
"""Longest duration of a live trace in seconds."""
NAMED = 8
"""Most subscribers named in one event."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of a live trace."""

    at: float
    """Time in seconds since 1970."""
    broker: str
    """The broker that noted the event."""
    what: str
    """The kind of event: ``in`` or ``out``, a packet from or to the client; ``published`` or ``arrived``, a message
    from a client of this broker or from another broker; ``lost``, ``refused`` or ``not delivered``, with the reason in
    `why`. A ``refused`` event has no QoS and size."""
    client: str = ""
    packet: str = ""
    """Type of the packet, such as ``PUBLISH``."""
    topic: str = ""
    qos: int = 0
    size: int = 0
    """Bytes of the payload."""
    text: str = ""
    """The beginning of the payload, or the content of another packet."""
    why: str = ""


class Follow:
    """One live trace at one broker."""

    def __init__(self, client: str, topic_filter: str, until: float) -> None:
        """`client`: client identifier, or empty. `topic_filter`: empty to follow the client's packets. `until`: end of
        the live trace by the frontend's clock."""
        self.client = client
        self.levels: Levels | None = tuple(topic_filter.split("/")) if topic_filter else None
        self.until = until
        self.events: deque[tuple[int, Event]] = deque(maxlen=KEPT)
        self.serial = 0
        self.left_out = 0
        self._pace = TokenBucket(PER_SECOND, PER_SECOND)

    def wants(self, topic: str) -> bool:
        """Return whether the live trace follows messages to this topic."""
        return self.levels is not None and admits(self.levels, tuple(topic.split("/")))

    def note(self, event: Event, now: float) -> None:
        """Keep an event, or count it as left out if there are too many."""
        if not self._pace.take(now):
            self.left_out += 1
            return
        self.left_out += len(self.events) == KEPT
        self.serial += 1
        self.events.append((self.serial, event))


class Following:
    """All live traces at one broker: the agent ``!follow``, the hub's `Tracer`, the connections' `Tap`, a `Witness`."""

    def __init__(self, broker: str, frontend: Frontend, wall: Callable[[], float]) -> None:
        """`broker`: the broker's name. `wall` returns seconds since 1970."""
        self._broker = broker
        self._frontend = frontend
        self._wall = wall
        self._follows: dict[str, Follow] = {}
        self._inner: Tracer | None = None
        """The hub's own tracer, which is called as well while live traces run."""

    # ---- the agent

    @remote
    def begin(self, name: str, client: str, topic_filter: str, seconds: float) -> Any:
        """Begin a live trace called `name` for at most `seconds`, and return the broker's name; an empty one if the
        client has no session here. It follows the packets of `client`, or the messages of `topic_filter`; with both,
        whether these messages reach that client: that no subscription matches is noted at once. Raises `ValueError` if
        the filter is invalid, both are empty, or there are too many live traces."""
        frontend, now = self._frontend, self._frontend.clock()
        if topic_filter and (fault := filter_fault(topic_filter)) is not None:
            raise ValueError(f"{topic_filter!r}: {fault}")
        if not client and not topic_filter:
            raise ValueError("a client or a topic filter is wanted")
        if len(self._follows) >= MOST:
            raise ValueError(f"there are {MOST} live traces at {self._broker} already")
        if not self._follows:
            self._inner, frontend.hub.tracer = frontend.hub.tracer, self
        follow = self._follows[name] = Follow(client, topic_filter, now + max(0.0, min(seconds, LONGEST)))
        frontend.timers.at(follow.until, lambda now: self.end(name))
        session = frontend.sessions.get(client) if client else None
        if session is None:
            return "" if client else self._broker
        if session.connection is not None:
            session.connection.output.tap = self
        if topic_filter and not Subscribes(topic_filter)(session):
            why = NOT_SUBSCRIBED if permitted(session.rights, topic_filter) else f"{NOT_SUBSCRIBED}; {NOT_SUBSCRIBE}"
            self._note(follow, what="not delivered", client=client, why=why)
        return self._broker

    @repeatable
    def take(self, name: str, seen: Any) -> Any:
        """Return ``[broker, number of the last event, events left out, events]``, or None if the live trace is over.
        `seen` maps the broker's name to the number of the last event already collected; only later events are
        returned."""
        follow = self._follows.get(name)
        if follow is None or not isinstance(seen, Mapping):
            return None
        after = seen.get(self._broker, 0)
        events = [msgspec.to_builtins(event) for serial, event in follow.events if serial > after]
        return [self._broker, follow.serial, follow.left_out, events]

    @remote
    def end(self, name: str) -> Any:
        """End a live trace. Unknown names are ignored."""
        self._follows.pop(name, None)
        if not self._follows and self._frontend.hub.tracer is self:
            self._frontend.hub.tracer, self._inner = self._inner, None
        for connection in self._frontend.connections:
            if connection.output.tap is self and not self._of(connection.output.client_id):
                connection.output.tap = None

    # ---- connecting clients

    def entered(self, connection: ClientConnection) -> None:
        """Note that a client has got its session, and tap its connection if a live trace follows its packets."""
        client_id = connection.output.client_id
        if self._of(client_id):
            connection.output.tap = self
            self._packet(client_id, "in", packet="CONNECT", text=f"from {connection.peer}")

    def refused(
        self, connection: ClientConnection, client_id: str, user: str | None, reason: Reason, text: str
    ) -> None:
        """Note that a client was refused."""
        for follow in self._follows.values():
            if follow.client == client_id:
                why = text or _words(reason)
                self._note(follow, what="refused", client=client_id, packet="CONNECT", why=why, text=connection.peer)

    def _of(self, client_id: str) -> list[Follow]:
        """Return the live traces that follow this client's packets."""
        return [each for each in self._follows.values() if each.client == client_id and each.levels is None]

    # ---- packets of a client

    def received(self, client_id: str, data: bytes, pos: int, end: int) -> None:
        """Note whole packets from the client, in `data[pos:end]`."""
        self._packets(client_id, "in", data[pos:end])

    def sent(self, client_id: str, data: bytes) -> None:
        """Note whole packets to the client."""
        self._packets(client_id, "out", data)

    def _packets(self, client_id: str, what: str, data: bytes) -> None:
        session = self._frontend.sessions.get(client_id)
        if session is None or session.outbound is None:
            return
        version, pos = session.outbound.version, 0
        while (bounds := fixed_header(data, pos)) is not None and bounds[1] <= len(data):
            body, end = bounds
            try:
                packet = decode(data[pos], data, body, end, version)
                self._packet(client_id, what, **_described(packet, PacketType(data[pos] >> 4)))
            except MqttError as error:
                self._packet(client_id, what, why=str(error))
            pos = end

    def _packet(self, client_id: str, what: str, **more: Any) -> None:
        for follow in self._of(client_id):
            self._note(follow, what=what, client=client_id, **more)

    # ---- the hub's tracer

    def published(
        self, batch: Batch, routes: Sequence[Route], sender: SubscriberAgent | None
    ) -> tuple[Batch, Trace | None]:
        """Note a batch published at this broker (`saps.routing.tracer.Tracer`)."""
        self._messages(batch, routes, "published", "" if sender is None else sender.client_id)
        return (batch, None) if self._inner is None else self._inner.published(batch, routes, sender)

    def arrived(self, batch: Batch, routes: Sequence[Route]) -> Trace | None:
        """Note a batch that has come from another broker (`saps.routing.tracer.Tracer`)."""
        self._messages(batch, routes, "arrived", "")
        return None if self._inner is None else self._inner.arrived(batch, routes)

    def denied(self, agent: SubscriberAgent | None, topics: Sequence[str]) -> None:
        """Note that a client may not publish to these topics. `agent`: the client's, or None."""
        client = "" if agent is None else agent.client_id
        for topic in topics:
            for follow in self._follows.values():
                if follow.wants(topic) or (client and follow.client == client and follow.levels is None):
                    self._note(follow, what="refused", client=client, packet="PUBLISH", topic=topic, why=NOT_PUBLISH)

    def lost(self, agent: SubscriberAgent, batch: Batch, why: str) -> None:
        """Note that a subscriber does not receive the messages of a batch."""
        client = agent.client_id
        for message in batch.messages:
            for follow in self._follows.values():
                concerned = follow.client in ("", client) and (follow.levels is None or follow.wants(message.topic))
                if concerned:
                    self._note(
                        follow, what="lost", client=client, topic=message.topic, qos=message.qos,
                        size=len(message.payload), text=shown(message.payload), why=why,
                    )  # fmt: skip

    def _messages(self, batch: Batch, routes: Sequence[Route], what: str, publisher: str) -> None:
        wanted = [follow for follow in self._follows.values() if any(map(follow.wants, batch.topics))]
        if not wanted:
            return
        for message, number in zip(batch.messages, batch.which, strict=True):
            more = {
                "topic": message.topic, "qos": message.qos, "size": len(message.payload), "text": shown(message.payload)
            }  # fmt: skip
            for follow in wanted:
                if follow.wants(message.topic):
                    found = self._fate(follow, routes[number], what, publisher)
                    if found is not None:
                        self._note(follow, **found, **more)

    def _fate(self, follow: Follow, route: Route, what: str, publisher: str) -> dict[str, Any] | None:
        """Return the fields of the event for a message on this route: its receivers, or whether it reaches the client
        that is followed. None if that client has no session here."""
        names = [target.agent.client_id for target in route.targets]
        hub = self._frontend.hub
        matching = [target.agent.client_id for target in hub.index.targets(route.topic)]
        if follow.client:
            if follow.client in names:
                return {"what": what, "client": publisher, "why": f"goes to {follow.client}"}
            if follow.client not in self._frontend.sessions:
                return None
            reason = NOT_READ if follow.client in matching else NOT_SUBSCRIBED
            return {"what": "not delivered", "client": follow.client, "why": reason}
        barred = [name for name in matching if name not in names]
        parts = [f"to {_some(names)}"] if names else []
        parts += [f"to one of {group.name}" for group in route.groups]
        if barred:
            parts.append(f"not to {_some(barred)}: {NOT_READ}")
        if what == "published" and route.mesh.remote:
            parts.append("to other brokers, if they want it")
        return {"what": what, "client": publisher, "why": "; ".join(parts) or "no subscription matches"}

    def _note(self, follow: Follow, **more: Any) -> None:
        event = Event(at=round(self._wall(), 3), broker=self._broker, **more)
        follow.note(event, self._frontend.clock())


NOT_SUBSCRIBED = "no subscription of the client matches"
NOT_SUBSCRIBE = "the access rules do not let it subscribe there"
NOT_PUBLISH = "the access rules do not let it publish there"
NOT_READ = "the access rules or a policy do not let it be received"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _words(reason: int) -> str:
    known = reason in Reason._value2member_map_
    return Reason(reason).name.lower().replace("_", " ") if known else f"0x{reason:02x}"


def _described(packet: Packet, kind: PacketType) -> dict[str, Any]:
    """Return the fields of the event for a packet. Never reveals a password, as CONNECT is not described here."""
    said: dict[str, Any] = {"packet": kind.name}
    if isinstance(packet, Publish):
        alias = packet.properties.get(Property.TOPIC_ALIAS)
        said |= {
            "topic": packet.topic or f"(alias {alias})",
            "qos": packet.qos,
            "size": len(packet.payload),
            "text": shown(packet.payload),
        }
        marks = [name for name, holds in (("retained", packet.retain), ("repeated", packet.dup)) if holds]
        said["why"] = ", ".join([*([f"number {packet.packet_id}"] if packet.qos else []), *marks])
    elif isinstance(packet, Subscribe):
        said["text"] = ", ".join(f"{entry.filter} (QoS {entry.qos})" for entry in packet.entries[:NAMED])
    elif isinstance(packet, Unsubscribe):
        said["text"] = ", ".join(packet.filters[:NAMED])
    elif isinstance(packet, Suback):
        said["text"] = ", ".join(f"QoS {r}" if r <= 2 else _words(r) for r in packet.reasons[:NAMED])
    elif isinstance(packet, Ack):
        said["text"] = f"number {packet.packet_id}" + (f": {_words(packet.reason)}" if packet.reason else "")
    elif isinstance(packet, Connack | Disconnect):
        said["text"] = _words(packet.reason)
    return said
