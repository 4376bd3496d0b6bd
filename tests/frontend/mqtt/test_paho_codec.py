"""The codec against paho's packing of properties and packets, an independent implementation."""

from __future__ import annotations

from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from saps.frontend.mqtt.codec.properties import RULES, WILL, Property, PropertyMap, decode_properties, encode_properties
from saps.frontend.mqtt.codec.wire import Reader

VALUES: dict[int, Any] = {0: 1, 1: 1, 2: 513, 4: 70_000, 5: (300,), 6: "grüße", 7: b"\0\1", 8: (("a", "1"), ("a", "2"))}


def paho_bytes(packet: int, identifier: int, value: Any) -> bytes:
    properties = PahoProperties(PacketTypes.WILLMESSAGE if packet == WILL else packet)  # type: ignore[no-untyped-call]
    name = properties.getNameFromIdent(identifier).replace(" ", "")  # type: ignore[no-untyped-call]
    setattr(properties, name, list(value) if RULES[identifier].kind == 8 else value[0] if value == (300,) else value)
    packed: bytes = properties.pack()  # type: ignore[no-untyped-call]
    return packed


@pytest.mark.parametrize("identifier", list(Property))
def test_each_property_in_each_packet_is_packed_as_paho_packs_it(identifier: Property) -> None:
    rule = RULES[identifier]
    for packet in sorted(rule.packets):
        value = VALUES[rule.kind]
        properties: PropertyMap = {identifier: value}
        encoded = paho_bytes(packet, identifier, value)
        assert encode_properties(properties) == encoded
        assert decode_properties(Reader(encoded, 0, len(encoded)), packet) == properties


def test_paho_and_the_table_agree_on_which_packet_carries_what() -> None:
    reference = PahoProperties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    for identifier, (_, packets) in reference.properties.items():
        ours = {PacketTypes.WILLMESSAGE if p == WILL else p for p in RULES[identifier].packets}
        assert ours == set(packets), Property(identifier).name
