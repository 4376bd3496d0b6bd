"""Enhanced authentication (MQTT 5.0, sections 3.15 and 4.12), by SCRAM-SHA-256."""

from __future__ import annotations

import pytest
from scramp import ScramClient

from saps.frontend.mqtt.access.logins.scram import METHOD
from saps.frontend.mqtt.access.users import Users, scram_keys
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, Auth, Connack, Connect, Disconnect, Packet, Pingreq, Pingresp, Publish
from saps.frontend.mqtt.codec.properties import Property, PropertyMap
from saps.frontend.mqtt.codec.reasons import Reason
from tests.frontend.mqtt.access.guarded import REMOTE, GuardedBench, GuardedClient
from tests.frontend.mqtt.conformance.conforms import mqtt5

pytestmark = pytest.mark.one_broker("authentication is between a client and its broker")

USERS: Users = {name: scram_keys(word, bytes(16), 4096) for name, word in (("ann", b"secret"), ("bob", b"bobs"))}
CONTINUE, AGAIN = Reason.CONTINUE_AUTHENTICATION, Reason.REAUTHENTICATE


class Prover:
    """A client that authenticates by SCRAM."""

    def __init__(self, user: str = "ann", word: str = "secret", bench: GuardedBench | None = None) -> None:
        self.bench = bench or GuardedBench(dict(USERS))
        self.client: GuardedClient = self.bench.arriving(V5, REMOTE)
        self.scram = ScramClient([METHOD], user, word)

    def properties(self, data: str, method: str = METHOD) -> PropertyMap:
        return {Property.AUTHENTICATION_METHOD: method, Property.AUTHENTICATION_DATA: data.encode()}

    def begin(self, user: str | None = None, **more: object) -> Auth:
        """CONNECT, and the server's challenge."""
        properties = self.properties(self.scram.get_client_first())
        self.client.send(Connect("c", username=user, properties={**properties, **more.get("properties", {})}))  # type: ignore[dict-item]
        return self.challenged()

    def challenged(self) -> Auth:
        auth = self.client.expect(Auth)
        self.scram.set_server_first(auth.properties[Property.AUTHENTICATION_DATA].decode())
        return auth

    def answer(self) -> None:
        """AUTH with the proof."""
        self.client.send(Auth(CONTINUE, self.properties(self.scram.get_client_final())))

    def verified(self, packet: Connack | Auth) -> bool:
        """The server has proven that it knows the password, too."""
        self.scram.set_server_final(packet.properties[Property.AUTHENTICATION_DATA].decode())
        method: str = packet.properties[Property.AUTHENTICATION_METHOD]
        return method == METHOD

    def enter(self) -> None:
        self.begin()
        self.answer()
        assert self.client.expect(Connack).reason == 0


@mqtt5("3.15.2-1", "3.15.2-2", "3.15.2-3", "4.12.0-2", "4.12.0-5", "3.2.0-1")
def test_a_user_that_proves_its_password_is_let_in_with_the_method_in_each_packet() -> None:
    prover = Prover()
    auth = prover.begin()
    assert auth.reason == CONTINUE
    assert set(auth.properties) == {Property.AUTHENTICATION_METHOD, Property.AUTHENTICATION_DATA}
    assert auth.properties[Property.AUTHENTICATION_METHOD] == METHOD
    assert not prover.bench.frontend.sessions
    prover.answer()
    connack = prover.client.expect(Connack)
    assert connack.reason == 0
    assert prover.verified(connack)
    assert prover.client.connection.user == "ann"


@pytest.mark.parametrize(("user", "word"), [("ann", "guess"), ("eve", "secret")])
@mqtt5("4.12.0-4")
def test_who_proves_nothing_is_told_so_and_cut_off(user: str, word: str) -> None:
    prover = Prover(user, word)
    prover.begin()  # a user that does not exist is asked like others
    prover.answer()
    assert prover.client.expect(Connack).reason == Reason.BAD_USER_NAME_OR_PASSWORD
    assert prover.client.closed
    assert not prover.bench.frontend.sessions
    assert prover.bench.guard.counts.logins == 1


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"n,,", b"n,,n=ann,r=", b"y,,m=x,n=ann,r=1", b"p=tls-unique,,n=ann,r=1"]
)
@mqtt5("4.12.0-4")
def test_what_is_no_proof_is_refused(data: bytes) -> None:
    prover = Prover()
    properties: PropertyMap = {Property.AUTHENTICATION_METHOD: METHOD, Property.AUTHENTICATION_DATA: data}
    prover.client.send(Connect("c", properties=properties))
    assert prover.client.expect(Connack).reason == Reason.BAD_USER_NAME_OR_PASSWORD
    assert prover.client.closed


def test_the_user_of_connect_must_be_the_one_that_is_proven() -> None:
    prover = Prover()
    properties = prover.properties(prover.scram.get_client_first())
    prover.client.send(Connect("c", username="bob", properties=properties))
    assert prover.client.expect(Connack).reason == Reason.BAD_USER_NAME_OR_PASSWORD
    assert Prover().begin(user="ann").reason == CONTINUE


@mqtt5("4.12.0-1")
def test_a_method_that_is_not_there_is_refused() -> None:
    for method, users in (("SCRAM-SHA-1", USERS), (METHOD, {})):
        prover = Prover(bench=GuardedBench(dict(users)))
        prover.client.send(Connect("c", properties=prover.properties(prover.scram.get_client_first(), method)))
        assert prover.client.expect(Connack).reason == Reason.BAD_AUTHENTICATION_METHOD
        assert prover.client.closed


@pytest.mark.parametrize(
    "packet",
    [
        Pingreq(),
        Publish("a", b"x"),
        Connect("c"),
        Auth(Reason.SUCCESS),
        Auth(AGAIN, {Property.AUTHENTICATION_METHOD: METHOD}),
        Auth(CONTINUE, {Property.AUTHENTICATION_METHOD: "other"}),
        Auth(CONTINUE),
    ],
)
@mqtt5("3.1.2-30", "4.12.0-3")
def test_nothing_but_auth_0x18_goes_on_with_an_authentication(packet: Packet) -> None:
    prover = Prover()
    prover.begin()
    prover.client.send(packet, Pingreq())
    assert prover.client.expect(Connack).reason == Reason.PROTOCOL_ERROR
    assert prover.client.closed
    assert prover.bench.hub.published == 0


@mqtt5("3.1.2-30")
def test_a_client_may_give_up_its_authentication() -> None:
    prover = Prover()
    prover.begin()
    prover.client.send(Disconnect())
    assert prover.client.closed
    assert prover.client.packets == []


def test_an_authentication_that_is_not_gone_on_with_ends_with_the_time_for_connect() -> None:
    prover = Prover()
    prover.begin()
    prover.bench.advance(prover.bench.frontend.limits.connect_timeout)
    assert prover.client.closed


@mqtt5("3.1.2-24")
def test_a_challenge_larger_than_the_client_takes_is_not_sent() -> None:
    prover = Prover()
    properties = {**prover.properties(prover.scram.get_client_first()), Property.MAXIMUM_PACKET_SIZE: 60}
    prover.client.send(Connect("c", properties=properties))
    assert prover.client.expect(Connack).reason == Reason.PACKET_TOO_LARGE
    assert prover.client.closed


def again(prover: Prover, user: str, word: str) -> None:
    """Re-authentication up to the proof."""
    prover.scram = ScramClient([METHOD], user, word)
    prover.client.send(Auth(AGAIN, prover.properties(prover.scram.get_client_first())), Pingreq())
    assert prover.challenged().reason == CONTINUE
    assert prover.client.expect(Pingresp) == Pingresp()  # all goes on meanwhile
    prover.answer()


@mqtt5("4.12.1-1", "4.12.0-2", "4.12.0-5", "3.15.2-1")
def test_a_client_authenticates_again_by_the_same_method() -> None:
    prover = Prover()
    prover.enter()
    for _ in range(2):
        again(prover, "ann", "secret")
        auth = prover.client.expect(Auth)
        assert auth.reason == 0
        assert prover.verified(auth)
    assert not prover.client.closed


@pytest.mark.parametrize(("user", "word"), [("ann", "guess"), ("bob", "bobs")])
@mqtt5("4.12.1-2")
def test_a_failure_of_it_or_another_user_ends_the_connection(user: str, word: str) -> None:
    prover = Prover()
    prover.enter()
    if user == "bob":
        scram = ScramClient([METHOD], user, word)
        prover.client.send(Auth(AGAIN, prover.properties(scram.get_client_first())))
    else:
        again(prover, user, word)
    assert prover.client.expect(Disconnect).reason == Reason.NOT_AUTHORIZED
    assert prover.client.closed


@pytest.mark.parametrize("reason", [Reason.SUCCESS, CONTINUE, AGAIN])
@mqtt5("4.12.1-1", "4.12.0-7")
def test_auth_out_of_place_ends_the_connection(reason: int) -> None:
    for method in (METHOD, "other"):
        prover = Prover()
        prover.enter()
        if (reason, method) != (AGAIN, METHOD):
            prover.client.send(Auth(reason, prover.properties("n,,n=ann,r=1", method)))
            assert prover.client.expect(Disconnect).reason == Reason.PROTOCOL_ERROR
    plain = GuardedBench().login("c", "ann")
    plain.send_bytes(encode(Auth(reason, {Property.AUTHENTICATION_METHOD: METHOD}), V5))
    assert plain.expect(Disconnect).reason == Reason.PROTOCOL_ERROR
