"""SAPS beside Mosquitto (and rumqttd, where it is installed) under random and mutated packets, in short."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from benchmarks.city.build import CACHE
from benchmarks.differential.clients import Event
from benchmarks.differential.compare import Difference, difference, merged, named
from benchmarks.differential.run import start
from benchmarks.differential.scripts import STEPS, Act, Script, Step, script
from benchmarks.peers import executable
from saps.frontend.mqtt.codec import packets as mqtt
from saps.frontend.mqtt.codec.encode import encode

SEEDS = range(40)
CLOSED: Event = ("closed",)
MESSAGE: Event = ("publish", "d0/a", "31", "QoS 1", "retain 0", "")


@pytest.mark.interop
@pytest.mark.skipif(executable("mosquitto") is None, reason="Mosquitto is not installed")
def test_subscribers_get_the_same_from_saps_and_mosquitto_or_the_standard_says_why() -> None:
    with contextlib.ExitStack() as stack:
        comparison = start(stack, rumqttd=(CACHE / "rumqttd").exists())

        async def compare() -> None:
            for seed in SEEDS:
                await comparison.one(seed)

        asyncio.run(compare())
        assert not comparison.unnamed, "\n".join(comparison.unnamed)
        assert comparison.ended["SAPS"] == 0
        same = sum(times for (_, what, _), times in comparison.counts.items() if not what)
        assert same > len(SEEDS) // 4, comparison.counts


def test_a_script_is_its_seeds_and_has_well_formed_and_mutated_packets() -> None:
    assert script(3) == script(3)
    assert script(3) != script(4)
    steps = [step for seed in range(50) for step in script(seed).steps]
    assert len(steps) == 50 * (STEPS + 2)
    assert {step.act for step in steps} == set(Act)
    assert 0.1 < sum(step.mutated for step in steps) / len(steps) < 0.4


def _found(packet: bytes, ours: list[Event], theirs: list[Event]) -> Difference | None:
    sender = Script(0, mqtt.V5, "d0", {}, [Step("p0", Act.SEND, packet)])
    return difference(sender, [{"p0": ours, "s0": []}], [{"p0": theirs, "s0": []}])


def test_a_lost_or_doubled_message_or_a_closed_connection_has_no_name() -> None:
    """MQTT 5.0, 3.3.4 and 4.13: nothing explains these after a valid packet."""
    publish = encode(mqtt.Publish("d0/a", b"1"), mqtt.V5)
    pairs: list[tuple[list[Event], list[Event]]] = [([], [MESSAGE]), ([MESSAGE], []), ([CLOSED], []), ([], [CLOSED])]
    for ours, theirs in pairs:
        found = _found(publish, ours, theirs)
        assert found is not None
        assert named(found) is None
    assert _found(publish, [MESSAGE], [MESSAGE]) is None


def test_copies_for_several_subscriptions_count_as_one_with_the_highest_qos() -> None:
    """MQTT-3.3.4-2: a broker may send either."""
    lower = (*MESSAGE[:3], "QoS 0", *MESSAGE[4:])
    assert merged([lower, MESSAGE]) == merged([MESSAGE])
    assert merged([lower]) != merged([MESSAGE])


def test_what_a_malformed_packet_ends_is_named() -> None:
    """MQTT-4.13.1-1."""
    found = _found(b"\xc1\x00", [CLOSED], [])
    assert found is not None
    rule = named(found)
    assert rule is not None
    assert rule.clause == "4.13.1-1"
