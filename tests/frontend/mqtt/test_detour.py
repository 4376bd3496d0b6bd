"""What clients are told by a broker that lets nobody in (MQTT 5.0, sections 3.2.2.2, 3.14.2.1 and 4.11)."""

from __future__ import annotations

import pytest

from saps.frontend.mqtt.codec.packets import V5, V311, Connack, Connect, Disconnect
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.orders import Redirect
from tests.frontend.mqtt.bench import Bench, Client

ADDRESSES = "b2.example.org:1883 b3.example.org:1883"


def closed(bench: Bench, reason: Reason, reference: str = ADDRESSES) -> None:
    bench.frontend.orders.redirect = Redirect(reason, reason, lambda connection: reference)


def turned_away(bench: Bench, version: int = V5, **fields: object) -> Connack:
    client = Client(bench, version)
    client.send(Connect("late", version, **fields))  # type: ignore[arg-type]
    assert client.closed
    return client.expect(Connack)


@pytest.mark.parametrize("reason", [Reason.USE_ANOTHER_SERVER, Reason.SERVER_MOVED])
def test_a_client_of_mqtt_5_is_told_where_to_go(reason: Reason) -> None:
    bench = Bench()
    here = bench.client("here")
    closed(bench, reason)
    told = turned_away(bench)
    assert (told.reason, told.properties) == (reason, {Property.SERVER_REFERENCE: ADDRESSES})
    here.connection.close(reason)
    bench.flush()
    leave_ack = here.expect(Disconnect)
    assert (leave_ack.reason, leave_ack.properties) == (reason, {Property.SERVER_REFERENCE: ADDRESSES})
    assert here.closed


def test_without_an_address_or_room_for_it_the_reason_comes_alone() -> None:
    bench = Bench()
    tight = {Property.MAXIMUM_PACKET_SIZE: 20}
    here = bench.client("here", properties=tight)
    closed(bench, Reason.USE_ANOTHER_SERVER)
    assert turned_away(bench, properties=tight).properties == {}
    here.connection.close(Reason.USE_ANOTHER_SERVER)
    bench.flush()
    assert here.expect(Disconnect) == Disconnect(Reason.USE_ANOTHER_SERVER)
    closed(bench, Reason.USE_ANOTHER_SERVER, reference="")
    assert turned_away(bench) == Connack(False, Reason.USE_ANOTHER_SERVER)


@pytest.mark.parametrize("reason", [Reason.USE_ANOTHER_SERVER, Reason.SERVER_MOVED, Reason.SERVER_UNAVAILABLE])
def test_a_client_of_mqtt_3_1_1_is_told_that_the_server_is_unavailable(reason: Reason) -> None:
    bench = Bench()
    here = bench.client("here", version=V311)
    closed(bench, reason)
    assert turned_away(bench, V311) == Connack(False, 3)
    here.take()
    here.connection.close(reason)
    bench.flush()
    assert (here.take(), here.closed) == ([], True)


def test_other_reasons_have_no_address() -> None:
    bench = Bench()
    here = bench.client("here")
    closed(bench, Reason.SERVER_UNAVAILABLE)
    assert turned_away(bench) == Connack(False, Reason.SERVER_UNAVAILABLE)
    here.connection.close(Reason.SERVER_SHUTTING_DOWN)
    bench.flush()
    assert here.expect(Disconnect) == Disconnect(Reason.SERVER_SHUTTING_DOWN)
