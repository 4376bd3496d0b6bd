"""PUBACK and PUBREC tell the truth: nobody there, and how many were reached where the publisher asks."""

from __future__ import annotations

import pytest

from saps.agents.user import SubscriberAgent
from saps.frontend.mqtt.codec.packets import V311, Ack
from saps.frontend.mqtt.codec.properties import Property, PropertyMap
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.connection.publish_handler import TELL
from saps.messages import Reached, Subscription
from tests.frontend.mqtt.bench import Bench, puback
from tests.routing.meshes import DelayingMesh

ASKING: PropertyMap = {Property.USER_PROPERTY: ((TELL, ""),)}


def told(ack: Ack) -> tuple[tuple[str, str], ...]:
    return ack.properties.get(Property.USER_PROPERTY, ())  # type: ignore[no-any-return]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize(("here", "elsewhere"), [(0, 0), (2, 0), (0, 3), (2, 3)])
def test_who_asks_is_told_the_number_in_the_whole_mesh(qos: int, here: int, elsewhere: int) -> None:
    mesh = DelayingMesh()
    bench = Bench(mesh=mesh)
    for number in range(here):
        SubscriberAgent(bench.hub, f"s{number}").subscribe(Subscription("a"))
    publisher = bench.client("p")
    publisher.publish("a", b"x", qos=qos, properties=ASKING)
    mesh.complete_publications(Reached(1, elsewhere))
    bench.flush()
    ack = publisher.expect(Ack)
    assert told(ack) == ((TELL, str(here + elsewhere)),)
    assert ack.reason == (Reason.SUCCESS if here + elsewhere else Reason.NO_MATCHING_SUBSCRIBERS)


def test_who_does_not_ask_is_told_nothing_more() -> None:
    bench = Bench()
    publisher = bench.client("p")
    publisher.publish("a", qos=1, properties={Property.USER_PROPERTY: (("other", ""),)})
    assert told(publisher.expect(Ack)) == ()


@pytest.mark.parametrize("options", [{Property.REQUEST_PROBLEM_INFORMATION: 0}, {Property.MAXIMUM_PACKET_SIZE: 20}])
def test_no_user_property_for_a_client_that_does_not_take_it(options: PropertyMap) -> None:
    """MQTT-3.1.2-29, MQTT-3.4.2-3."""
    bench = Bench()
    publisher = bench.client("p", properties=options)
    publisher.publish("a", qos=1, properties=ASKING)
    ack = publisher.expect(Ack)
    assert (told(ack), ack.reason) == ((), Reason.NO_MATCHING_SUBSCRIBERS)


def test_the_property_is_forwarded_like_any_other() -> None:
    """MQTT-3.3.2-17."""
    bench = Bench()
    subscriber = bench.client("s")
    subscriber.subscribe("a")
    bench.client("p").publish("a", qos=1, properties=ASKING)
    (message,) = subscriber.messages()
    assert message.properties[Property.USER_PROPERTY] == ((TELL, ""),)


@pytest.mark.parametrize("known", [True, False])
def test_a_repeated_qos_2_publication_gets_the_same_answer(known: bool) -> None:
    mesh = DelayingMesh()
    bench = Bench(mesh=mesh)
    publisher = bench.client("p", properties={Property.SESSION_EXPIRY: 60})
    publisher.publish("a", qos=2, properties=ASKING)
    if known:
        mesh.complete_publications()
    publisher.lose()
    again = bench.client("p", clean_start=False, properties={Property.SESSION_EXPIRY: 60})
    again.publish("a", qos=2, dup=True, properties=ASKING)
    if not known:
        assert again.take() == []
        mesh.complete_publications()
        bench.flush()
    ack = again.expect(Ack)
    assert (told(ack), ack.reason) == (((TELL, "0"),), Reason.NO_MATCHING_SUBSCRIBERS)


def test_a_3_1_1_client_is_answered_as_ever() -> None:
    bench = Bench()
    publisher = bench.client("p", version=V311)
    publisher.publish("a", qos=1)
    assert publisher.expect(Ack) == puback(1)
