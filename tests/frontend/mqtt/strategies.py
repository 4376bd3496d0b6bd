"""Hypothesis strategies: every packet of both protocol versions, with every property it may carry."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from saps.frontend.mqtt.codec.packets import (
    V5,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Unsuback,
    Unsubscribe,
    Will,
)
from saps.frontend.mqtt.codec.properties import RULES, WILL, Kind, Property, PropertyMap
from saps.frontend.mqtt.codec.reasons import ACK_REASONS, AUTH_REASONS, DISCONNECT_REASONS, Reason
from saps.frontend.mqtt.codec.wire import MAX_VARINT
from saps.topics import SHARE, subscription_fault

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
binary = st.binary(max_size=12)
packet_ids = st.integers(1, 0xFFFF)
qualities = st.integers(0, 2)
reasons = st.integers(0, 255)
versions = st.sampled_from([4, 5])
filters = (text | st.sampled_from(["#", "a/+", "$share/g/a"])).filter(lambda wanted: subscription_fault(wanted) is None)


def _values(identifier: int, packet: int) -> st.SearchStrategy[object]:
    rule = RULES[identifier]
    low = 1 if rule.positive or identifier == Property.TOPIC_ALIAS else 0
    match rule.kind:
        case Kind.FLAG:
            return st.integers(0, 1)
        case Kind.STRING:
            return text
        case Kind.BINARY:
            return binary
        case Kind.PAIRS:
            return st.lists(st.tuples(text, text), min_size=1, max_size=3).map(tuple)
        case Kind.VARINTS:
            most = 3 if packet == PacketType.PUBLISH else 1
            return st.lists(st.integers(1, MAX_VARINT), min_size=1, max_size=most).map(tuple)
        case kind:
            return st.integers(low, (1 << 8 * kind) - 1)


def properties(packet: int, version: int) -> st.SearchStrategy[PropertyMap]:
    if version != V5:
        return st.just({})
    allowed = {i: _values(i, packet) for i, rule in RULES.items() if packet in rule.packets}
    return st.fixed_dictionaries({}, optional=allowed)


def packets(version: int) -> st.SearchStrategy[Packet]:
    def props(packet: PacketType) -> st.SearchStrategy[PropertyMap]:
        return properties(packet, version)

    v5 = version == V5
    no_reason = st.just(0)
    wills = st.builds(Will, text, binary, qualities, st.booleans(), properties(WILL, version))
    users = st.tuples(text | st.none(), binary | st.none()).filter(lambda u: v5 or u[0] is not None or u[1] is None)
    connects = st.builds(
        lambda client, clean, alive, will, user, p: Connect(client, version, clean, alive, will, user[0], user[1], p),
        text,
        st.booleans(),
        st.integers(0, 0xFFFF),
        st.none() | wills,
        users,
        props(PacketType.CONNECT),
    )
    publishes = st.builds(
        lambda topic, payload, qos, retain, dup, number, p: Publish(
            topic, payload, qos, retain, dup and qos > 0, number if qos else None, p
        ),
        text,
        binary,
        qualities,
        st.booleans(),
        st.booleans(),
        packet_ids,
        props(PacketType.PUBLISH),
    )
    acks = st.sampled_from([PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP]).flatmap(
        lambda kind: st.builds(
            Ack, st.just(kind), packet_ids, st.sampled_from(sorted(ACK_REASONS[kind])) if v5 else no_reason, props(kind)
        )
    )
    ends = sorted({*DISCONNECT_REASONS, Reason.DISCONNECT_WITH_WILL})
    entries = st.builds(SubscribeEntry, filters, qualities)
    if v5:
        entries = st.builds(SubscribeEntry, filters, qualities, st.booleans(), st.booleans(), st.integers(0, 2)).filter(
            lambda entry: not (entry.no_local and entry.filter.startswith(SHARE))
        )
    kinds: list[st.SearchStrategy[Packet]] = [
        connects,
        st.builds(Connack, st.booleans(), reasons, props(PacketType.CONNACK)),
        publishes,
        acks,
        st.builds(Subscribe, packet_ids, st.lists(entries, min_size=1, max_size=4), props(PacketType.SUBSCRIBE)),
        st.builds(Suback, packet_ids, st.lists(reasons, max_size=4), props(PacketType.SUBACK)),
        st.builds(Unsubscribe, packet_ids, st.lists(filters, min_size=1, max_size=4), props(PacketType.UNSUBSCRIBE)),
        st.builds(Unsuback, packet_ids, st.lists(reasons, max_size=4 if v5 else 0), props(PacketType.UNSUBACK)),
        st.just(Pingreq()),
        st.just(Pingresp()),
        st.builds(Disconnect, st.sampled_from(ends) if v5 else no_reason, props(PacketType.DISCONNECT)),
    ]
    if v5:
        kinds.append(st.builds(Auth, st.sampled_from(sorted(AUTH_REASONS)), props(PacketType.AUTH)))
    return st.one_of(kinds)


def chunked(data: bytes, cuts: list[int]) -> list[bytes]:
    """The bytes in pieces, cut at the given places (modulo the length)."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(places)]


cut_lists = st.lists(st.integers(0, 1 << 16), max_size=12)


def publications() -> st.SearchStrategy[Publish]:
    """Publications as devices send them, around the sizes at which the remaining length grows; some that no server
    takes."""
    described: list[PropertyMap] = [
        {},
        {},
        {Property.CONTENT_TYPE: "t"},
        {Property.USER_PROPERTY: (("unit", "µg/m³"), ("site", "7"))},
        {Property.MESSAGE_EXPIRY: 60},
        {Property.TOPIC_ALIAS: 1},
        {Property.TOPIC_ALIAS: 1},
        {Property.TOPIC_ALIAS: 9},
        {Property.RESPONSE_TOPIC: "an/swer"},
        {Property.RESPONSE_TOPIC: "an/#"},
        {Property.SUBSCRIPTION_IDENTIFIER: (3,)},
    ]
    return st.builds(
        lambda topic, payload, qos, retain, dup, number, properties: Publish(
            topic, payload, qos, retain, dup and qos > 0, number if qos else None, properties
        ),
        st.sampled_from(["a", "a", "a", "b", "c/d", "ü", "a/b/c/d/e", "a/#", ""]),
        st.sampled_from([b"", b"x", b"x" * 115, b"x" * 124, b"x" * 125, b"x" * 130, b"y" * 200, b"x" * 300]),
        st.sampled_from([0, 0, 0, 1, 1, 1, 2]),
        st.sampled_from([False, False, False, True]),
        st.sampled_from([False, False, False, True]),
        packet_ids,
        st.sampled_from(described),
    )
