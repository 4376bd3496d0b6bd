"""What differs between two brokers, and what the standard says about it (MQTT 5.0; 3.1.1 where named). Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from benchmarks.differential.clients import Event, Got
from benchmarks.differential.scripts import Act, Script, Step
from saps.frontend.mqtt.codec import packets as mqtt
from saps.frontend.mqtt.codec.decode import decode
from saps.frontend.mqtt.codec.packets import PacketType
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.reasons import MqttError
from saps.frontend.mqtt.codec.wire import fixed_header


class Difference(NamedTuple):
    """The first step of a script in which two brokers did not do the same."""

    script: Script
    number: int
    ours: Got
    theirs: Got
    alone: bool = False
    """Theirs is not the one that ours is held against."""

    @property
    def step(self) -> Step:
        return self.script.steps[self.number]

    @property
    def acting(self) -> tuple[list[Event], list[Event]]:
        """What the client whose turn it was got, from ours and from theirs."""
        return self.ours[self.step.client], self.theirs[self.step.client]

    def closes(self, which: int) -> bool:
        """Ours (0) or theirs (1) closed the connection of the client whose turn it was."""
        return ("closed",) in self.acting[which]


def difference(script: Script, ours: Sequence[Got], theirs: Sequence[Got]) -> Difference | None:
    """The first one; None if there is none, also before both wait for the rest of a packet whose length is wrong: what
    the bytes after it mean, nobody can say."""
    for number, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        client = script.steps[number].client
        if ("waits",) in one[client] and ("waits",) in other[client]:
            return None
        if any(merged(one[name]) != merged(other[name]) for name in one):
            return Difference(script, number, one, other)
    if len(theirs) < len(ours):
        return Difference(script, len(theirs), ours[len(theirs)], {name: [("died",)] for name in ours[0]})
    return None


def merged(events: Sequence[Event]) -> list[Event]:
    """Copies of a message for several subscriptions as one, with the highest QoS and all their identifiers: a broker
    may send either (MQTT-3.3.4-2)."""
    found: dict[tuple[str, ...], tuple[str, str, set[str]]] = {}
    others: list[Event] = []
    for event in events:
        if event[0] != "publish":
            others.append(event)
            continue
        _, topic, payload, qos, retain, properties = event
        ids = re.findall(r"subscription_identifier=\(([^)]*)\)", properties)
        numbers = {each.strip() for part in ids for each in part.split(",") if each.strip()}
        plain = re.sub(r"(, )?subscription_identifier=\([^)]*\)", "", properties).removeprefix(", ")
        highest, kept, known = found.get((topic, payload, plain), ("", "", set()))
        found[topic, payload, plain] = max(qos, highest), max(retain, kept), known | numbers
    messages = [("publish", *key, *value[:2], ",".join(sorted(value[2]))) for key, value in found.items()]
    return [*others, *messages]


def fault(step: Step, version: int) -> str:
    """What is wrong with the packet of a step, by this codec; nothing if it can be read."""
    try:
        bounds = fixed_header(step.data, 0)
        if bounds is not None:
            decode(step.data[0], step.data, *bounds, version)
    except MqttError as error:
        return str(error)
    return ""


class Rule(NamedTuple):
    """A difference that stays."""

    what: str
    clause: str
    """Of MQTT 5.0, where nothing else is said."""
    applies: Callable[[Difference], bool]


def named(found: Difference, third: Difference | None = None) -> Rule | None:
    """The rule for a difference. `third`: the first one of another broker from ours; unless it came before and has no
    name, theirs is alone with what it does."""
    rule = next((rule for rule in RULES if rule.applies(found)), None)
    if rule is not None or not found.alone:
        return rule
    if third is not None and third.number <= found.number and named(third) is None:
        return None
    return next((rule for rule in ALONE if rule.applies(found)), None)


def misframed(step: Step) -> bool:
    """Its remaining length is not that of its body."""
    try:
        bounds = fixed_header(step.data, 0)
    except MqttError:
        return True
    return bounds is None or bounds[1] != len(step.data)


def _unframed(found: Difference) -> bool:
    waits = any(("waits",) in events for events in found.acting)
    return misframed(found.step) and (waits or found.closes(0) != found.closes(1))


def _strict(found: Difference) -> bool:
    step = found.step
    packet = _packet(found)
    return (
        found.closes(0)
        and not found.closes(1)
        and (packet is None or not isinstance(packet, FROM_CLIENTS))
        and (step.act is not Act.CLOSE)
    )


def _packet(found: Difference) -> mqtt.Packet | None:
    """What the step sent, if that can be read."""
    data = found.step.data
    try:
        bounds = fixed_header(data, 0)
        return decode(data[0], data, *bounds, found.script.version) if bounds and bounds[1] <= len(data) else None
    except MqttError:
        return None


def _texts(value: object) -> Iterator[str]:
    """All strings in it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Iterable) and not isinstance(value, bytes):
        for each in value:
            yield from _texts(each)


def _control_characters(found: Difference) -> bool:
    words: list[str] = []
    match _packet(found):
        case mqtt.Publish(topic, properties=properties):
            words = [topic, *_texts(properties.values())]
        case mqtt.Subscribe(entries=entries):
            words = [entry.filter for entry in entries]
        case mqtt.Unsubscribe(filters=filters):
            words = filters
        case mqtt.Connect(client_id, will=will):
            words = [client_id, will.topic if will is not None else ""]
    return any(unicodedata.category(c) in ("Cc", "Cn") for word in words for c in word) and found.closes(1)


def _shared_retained(found: Difference) -> bool:
    packet = _packet(found)
    if not isinstance(packet, mqtt.Subscribe) or not any(e.filter.startswith("$share/") for e in packet.entries):
        return False
    ours, theirs = found.acting
    extra = [event for event in merged(theirs) if event not in merged(ours)]
    return bool(extra) and all(event[0] == "publish" and event[5] == "retain 1" for event in extra)


def _higher_quality(found: Difference) -> bool:
    for name, ours in found.ours.items():
        one, other = merged(ours), merged(found.theirs[name])
        if len(one) != len(other):
            return False
        for a, b in zip(one, other, strict=True):
            if a != b and not (a[0] == b[0] == "publish" and a[:4] == b[:4] and a[4] >= b[4]):
                return False
    return True


def _unknown_release(found: Difference) -> bool:
    ours, theirs = ([event for event in events if event[0] != "connack"] for events in found.acting)
    same = [each[:2] for each in ours] == [each[:2] for each in theirs]
    return same and bool(ours) and ours[0][0] == "pubcomp"


def _alias(found: Difference) -> bool:
    packet = _packet(found)
    return isinstance(packet, mqtt.Publish) and Property.TOPIC_ALIAS in packet.properties and found.closes(1)


def _second_connect(found: Difference) -> bool:
    """Now, or before by the client whose turn it is: the will comes, or the session is there."""
    before = found.script.steps[: found.number + 1]
    again = any(s.client == found.step.client and s.act is Act.SEND and s.data[0] >> 4 == 1 for s in before if s.data)
    present = ("connack", "session present 1") in found.acting[0]
    return again and (
        present or any(_count(found.ours[n], "publish") > _count(found.theirs[n], "publish") for n in found.ours)
    )


def _partly(found: Difference) -> bool:
    """A client that sent such a SUBSCRIBE or UNSUBSCRIBE, now or before, gets something else."""
    differ = {name for name, events in found.ours.items() if merged(events) != merged(found.theirs[name])}
    steps = found.script.steps[: found.number + 1]
    kinds = (PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE)
    wrong = {s.client for s in steps if s.data and s.data[0] >> 4 in kinds and fault(s, found.script.version)}
    return bool(differ) and differ <= wrong


def _receive_maximum(found: Difference) -> bool:
    """Only clients that take few at a time get something else."""
    differ = {name for name, events in found.ours.items() if merged(events) != merged(found.theirs[name])}
    sent = list(found.script.connects.items())
    sent += [(s.client, s.data) for s in found.script.steps[: found.number + 1] if s.act is Act.CONNECT]
    few = {client for client, data in sent if bytes([Property.RECEIVE_MAXIMUM, 0]) in data}
    return found.script.version == mqtt.V5 and bool(differ) and differ <= few


def _disconnect(found: Difference) -> bool:
    step = found.step
    leaves = bool(step.data) and step.data[0] >> 4 == PacketType.DISCONNECT
    return leaves and bool(fault(step, found.script.version)) and _lacks("publish")(found)


FROM_CLIENTS = (
    *(mqtt.Connect, mqtt.Publish, mqtt.Ack, mqtt.Subscribe, mqtt.Unsubscribe, mqtt.Pingreq, mqtt.Disconnect, mqtt.Auth),
)
"""What a client may send (2.1.2)."""
RULES = [
    Rule("after a wrong remaining length one waits for bytes that another has given up", "4.13", _unframed),
    Rule("SAPS ends the connection of who sends something malformed, or what only servers send", "4.13.1-1", _strict),
    Rule("control characters: either is allowed", "1.5.4", _control_characters),
    Rule("a new shared subscription gets no retained messages", "4.8.2", _shared_retained),
    Rule("of overlapping subscriptions the highest QoS is kept", "3.3.4-2", _higher_quality),
    Rule("PUBREL of an unknown identifier is answered with reason 0x92", "3.7.2.1", _unknown_release),
    Rule("SAPS takes more topic aliases", "3.2.2.3.8", _alias),
    Rule("of a malformed SUBSCRIBE nothing is done", "4.13.1-1", _partly),
    Rule("a DISCONNECT with a reason that it must not have: the will is published", "3.14.2.1", _disconnect),
    Rule("what waited for Receive Maximum comes as soon as it may", "4.9", _receive_maximum),
    Rule("session and will outlive a malformed second CONNECT", "3.1.2-8, 3.1.2-5", _second_connect),
]
"""Differences from any broker."""


def _lacks(kind: str) -> Callable[[Difference], bool]:
    def applies(found: Difference) -> bool:
        return any(_count(found.ours[name], kind) > _count(found.theirs[name], kind) for name in found.ours)

    return applies


def _adds(kind: str) -> Callable[[Difference], bool]:
    def applies(found: Difference) -> bool:
        return any(_count(found.ours[name], kind) < _count(found.theirs[name], kind) for name in found.ours)

    return applies


def _count(events: Sequence[Event], kind: str) -> int:
    return sum(event[0] == kind for event in merged(events))


ANSWERS = ("puback", "pubrec", "pubcomp")
ALONE = [
    Rule("it dies", "4.13", lambda f: any(each == ("died",) for each in f.acting[1])),
    Rule("it sends what cannot be read", "3.3.1-2", _adds("unreadable")),
    Rule("it ends the connection of who sends a valid packet", "4.13", _adds("closed")),
    Rule("it goes on with who sends something malformed", "4.13.1-1", _lacks("closed")),
    Rule("it ends a connection before it has answered CONNECT", "3.2", _lacks("connack")),
    Rule("it does not answer UNSUBSCRIBE", "3.10.4-4", _lacks("unsuback")),
    Rule("it does not answer SUBSCRIBE", "3.8.4-1", _lacks("suback")),
    Rule("it does not answer a publication", "4.3.2-4, 4.3.3-8", lambda f: any(_lacks(k)(f) for k in ANSWERS)),
    Rule("it does not deliver what matches", "3.3.4", _lacks("publish")),
    Rule("it delivers what nobody else does", "3.3.4", _adds("publish")),
    Rule(
        "it answers otherwise: session present, or reasons", "3.2.2-2, 3.9.3", lambda f: _otherwise(f, "publish", False)
    ),
    Rule(
        "it delivers with another QoS, retain flag or other properties",
        "3.3.1, 3.3.2.3",
        lambda f: _otherwise(f, "publish", True),
    ),
]
"""Of a broker that is alone with what it does: the others agree with each other."""


def _otherwise(found: Difference, kind: str, same: bool) -> bool:
    return any(
        (event[0] == kind) is same
        for name in found.ours
        for event in merged(found.theirs[name])
        if event not in merged(found.ours[name])
    )
