"""The clients agent: each broker answers for its own sessions; a call to ``!clients`` reaches all brokers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from saps.agents.api import remote, repeatable
from saps.frontend.mqtt.access.filters import meet
from saps.frontend.mqtt.codec.packets import V5
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.session.session import FOREVER
from saps.operations.rates import Rate, Rates
from saps.operations.values import (
    LONGEST,
    MOST_CLIENTS,
    Client,
    ClientRow,
    MessageRow,
    Question,
    SubscriptionRow,
    WillRow,
    of_topics,
    packed,
    shown,
)

if TYPE_CHECKING:
    from saps.agents.user import Rights
    from saps.frontend.mqtt.connection.client_connection import ClientConnection
    from saps.frontend.mqtt.frontend import Frontend
    from saps.frontend.mqtt.session.session import Session
    from saps.frontend.mqtt.session.window import Copy
    from saps.messages import Message

CLIENTS = "clients"
"""Name of the agent at each broker; it needs no key in the overlay."""
MOST_SHOWN = 200
"""Most subscriptions, messages in flight and queued messages described of one client."""
MOST_STARS = 4
"""Most ``*`` in a pattern, which bounds the time of a comparison."""

Wanted = Callable[["Session"], bool]


class ClientsAgent:
    """The agent ``!clients`` of one broker."""

    def __init__(
        self,
        broker: str,
        frontend: Frontend,
        wall: Callable[[], float],
        transport: Callable[[ClientConnection], str],
    ) -> None:
        """`broker`: the broker's name. `wall` returns seconds since 1970. `transport` returns a connection's kind:
        ``TCP``, ``TLS`` or ``Web``."""
        self._broker = broker
        self._frontend = frontend
        self._wall = wall
        self._transport = transport
        self._rates = Rates(frontend)

    @repeatable
    def find(self, question: Any) -> Any:
        """Return ``[number of matching clients here, the first matching rows after question.after]``, the rows as in
        `values.packed`. `question`: a `Question` as plain values. Raises `ValueError` if it is invalid."""
        asked = msgspec.convert(question, Question)
        wanted = [*_conditions(asked)]
        found = [each for each in self._frontend.sessions.values() if all(condition(each) for condition in wanted)]
        most, key, after = max(0, min(asked.limit, MOST_CLIENTS + 1)), self._key(asked.sort), asked.after
        rest = found if after is None else (each for each in found if key(each) > after)
        return [len(found), packed(map(self._row, nsmallest(most, rest, key=key)))]

    @repeatable
    def describe(self, client: str) -> Any:
        """Return a `Client` as plain values, or None if the client has no session here."""
        session = self._frontend.sessions.get(client)
        return None if session is None else msgspec.to_builtins(self._client(session))

    @remote
    def disconnect(self, client: str, end_session: bool) -> Any:
        """Close the client's connection, and end its session if `end_session` is set. Returns ``[broker, whether the
        client was connected, whether its session has ended]``, or None if the client has no session here or its session
        is migrating. MQTT 5 clients receive reason 0x98, administrative action."""
        session = self._frontend.sessions.get(client)
        if session is None or self._frontend.sessions.is_moving(client):
            return None
        connection = session.connection
        if connection is not None:
            connection.close(Reason.ADMINISTRATIVE_ACTION, "by an operator")
        ended = self._frontend.sessions.get(client) is not session  # as one that ends with its connection
        if end_session and not ended:
            self._frontend.sessions.end(session)
        return [self._broker, connection is not None, end_session or ended]

    # ---- rows

    def _key(self, sort: str) -> Callable[[Session], Any]:
        """Return a key function that sorts sessions as `values.order` sorts their rows."""
        numbers, broker = self._numbers(sort), self._broker
        return lambda each: (*numbers(each), each.client_id, broker)

    def _numbers(self, sort: str) -> Callable[[Session], tuple[float, ...]]:
        rates, none = self._rates.now(), Rate(-1.0, -1.0)
        match sort:
            case "rate":
                return lambda each: (-rates.get(each.client_id, none).published, -each.publisher.published)
            case "delivered":
                return lambda each: (-rates.get(each.client_id, none).delivered, -each.delivered)
            case "queued":
                return lambda each: (-len(each.queue.copies or ()), -each.queue.bytes)
            case "dropped":
                return lambda each: (-each.dropped,)
            case "since":
                return lambda each: (-self._since(each),)
            case _:
                return lambda each: ()

    def _since(self, session: Session) -> float:
        """Return the time at which the client connected or disconnected, in seconds since 1970."""
        return round(self._wall() - self._frontend.clock() + self._began(session), 3)

    @staticmethod
    def _began(session: Session) -> float:
        """Return the time at which the client connected or disconnected, by the frontend's clock."""
        connection = session.connection
        return session.ends_at - session.expiry if connection is None else connection.since

    def _row(self, session: Session) -> ClientRow:
        connection, queue = session.connection, session.queue
        rate = self._rates.now().get(session.client_id)
        return ClientRow(
            client=session.client_id,
            broker=self._broker,
            user=session.user,
            address="" if connection is None else connection.peer,
            connected=connection is not None,
            since=self._since(session),
            protocol="" if connection is None else self._protocol(connection),
            subscriptions=len(session.subscriptions),
            inflight=len(session.window.inflight),
            queued=len(queue.copies or ()),
            queued_bytes=queue.bytes,
            published=session.publisher.published,
            delivered=session.delivered,
            dropped=session.dropped,
            published_rate=None if rate is None else rate.published,
            delivered_rate=None if rate is None else rate.delivered,
        )

    def _protocol(self, connection: ClientConnection) -> str:
        return f"MQTT {'5' if connection.outbound.version == V5 else '3.1.1'} over {self._transport(connection)}"

    def _client(self, session: Session) -> Client:
        connection, frontend, rights = session.connection, self._frontend, session.rights
        epoch = self._wall() - frontend.clock()
        outbound, will = session.outbound, session.will
        inflight = islice(session.window.inflight.items(), MOST_SHOWN)
        return Client(
            row=self._row(session),
            expiry=session.expiry,
            ends=None if connection is not None or session.expiry == FOREVER else round(session.ends_at + epoch, 3),
            stored=session.stored,
            keep_alive=None if connection is None else connection.keep_alive.interval or None,
            receive_maximum=None if outbound is None else outbound.send_maximum,
            maximum_packet_size=None if outbound is None else outbound.maximum_packet_size or None,
            reading=None if connection is None else connection.flow.reading,
            releasing=len(session.incoming or ()),
            will=None if will is None else WillRow(**_message(will.message), delay=will.delay),
            subscriptions=[
                SubscriptionRow(
                    filter=each.filter,
                    qos=each.qos,
                    no_local=each.no_local,
                    retain_as_published=each.retain_as_published,
                    identifier=each.identifier,
                    permitted=permitted(rights, of_topics(each.filter)),
                )
                for each in islice(session.subscriptions.values(), MOST_SHOWN)
            ],
            inflight=[self._copy(copy, number) for number, copy in inflight if copy is not None],
            queue=[self._copy(copy, None) for copy in islice(session.queue.copies or (), MOST_SHOWN)],
        )

    def _copy(self, copy: Copy, packet_id: int | None) -> MessageRow:
        single, form = copy
        left = None if single.deadline is None else round(single.deadline - self._frontend.clock(), 1)
        return MessageRow(**_message(single.message) | {"qos": form.qos}, packet_id=packet_id, expires=left)


def permitted(rights: Rights | None, topic_filter: str) -> bool:
    """Return whether the rights permit a subscription that the client has."""
    if rights is None:
        return True
    return (rights.may_subscribe if rights.asker is None else rights.asker.may_keep)(topic_filter)


def _message(message: Message) -> dict[str, Any]:
    """Return the fields of a `MessageRow` that come from the message itself."""
    return {
        "topic": message.topic,
        "qos": message.qos,
        "retain": message.retain,
        "size": len(message.payload),
        "text": shown(message.payload),
    }


# ---- conditions


def _conditions(asked: Question) -> Iterator[Wanted]:
    """Yield the conditions that a session must fulfil, cheapest first. Raises `ValueError` for an invalid pattern."""
    if asked.connected is not None:
        yield lambda session: (session.connection is not None) == asked.connected
    if asked.client is not None:
        named = _pattern(asked.client)
        yield lambda session: named(session.client_id)
    if asked.user is not None:
        owned = _pattern(asked.user)
        yield lambda session: session.user is not None and owned(session.user)
    if asked.address is not None:
        at = _pattern(asked.address)
        yield lambda session: session.connection is not None and at(session.connection.address)
    if asked.search:
        yield partial(_has, asked.search[:LONGEST].lower())
    if asked.topic_filter is not None:
        yield Subscribes(asked.topic_filter)


def _has(text: str, session: Session) -> bool:
    return (
        text in session.client_id.lower()
        or (session.user is not None and text in session.user.lower())
        or (session.connection is not None and text in session.connection.peer)
    )


def _pattern(text: str) -> Callable[[str], bool]:
    """Return a function that matches names against a pattern; ``*`` stands for any characters. Raises `ValueError` for
    a pattern that would take too long."""
    if text.count("*") > MOST_STARS or len(text) > 65535:
        raise ValueError(f"a pattern has at most {MOST_STARS} stars")
    if "*" not in text:
        return text.__eq__
    compiled = re.compile(".*".join(map(re.escape, text.split("*"))), re.DOTALL)
    return lambda name: compiled.fullmatch(name) is not None


class Subscribes:
    """Tests whether a session has a subscription with a topic in common with a filter. Compares each filter once."""

    def __init__(self, topic_filter: str) -> None:
        self._wanted = tuple(of_topics(topic_filter).split("/"))
        self._known: dict[str, bool] = {}

    def __call__(self, session: Session) -> bool:
        return self._any(session.subscriptions)

    def _any(self, filters: Iterable[str]) -> bool:
        known = self._known
        for each in filters:
            fits = known.get(each)
            if fits is None:
                fits = known[each] = meet(tuple(of_topics(each).split("/")), self._wanted)
            if fits:
                return True
        return False
