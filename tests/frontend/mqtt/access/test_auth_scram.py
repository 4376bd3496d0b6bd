"""SCRAM beside passwords: its keys in the password file, guesses, any bytes in its place, and a real connection."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient

from saps.frontend.mqtt.access.faults import FileError
from saps.frontend.mqtt.access.guard import Origin
from saps.frontend.mqtt.access.logins.scram import METHOD, Exchange, ScramError
from saps.frontend.mqtt.access.options import AuthOptions
from saps.frontend.mqtt.access.users import ScramKeys, parse_users, scram_keys
from saps.frontend.mqtt.codec.decode import PacketReader
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, Auth, Connack, Connect, Packet
from saps.frontend.mqtt.codec.properties import Property, PropertyMap
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.driver.access_files import edit_users
from tests.frontend.mqtt.access.guarded import GuardedBench
from tests.frontend.mqtt.access.serving import serving
from tests.frontend.mqtt.peers import need, run
from tests.frontend.mqtt.test_interop_mqttjs import PACKAGE, need_mqttjs

KEYS = scram_keys(b"secret", bytes(range(16)), 4096)
ATTACKER = Origin("192.0.2.66")


def test_keys_are_a_line_of_the_password_file_and_know_the_password(tmp_path: Path) -> None:
    users = parse_users(f"ann:{KEYS}\n")
    assert users == {"ann": KEYS}
    assert [KEYS.matches(word) for word in (b"secret", b"guess", b"\xff", b"")] == [True, False, False, False]
    file = tmp_path / "passwords"
    assert edit_users(file, "bob", b"bobs", scram=True) == "added"
    stored = parse_users(file.read_text())["bob"]
    assert isinstance(stored, ScramKeys)
    assert stored.matches(b"bobs")


def test_keys_are_those_of_the_standard() -> None:
    """RFC 7677, section 3: the exchange of user "user" with password "pencil"."""
    stored = parse_users("user:" + str(scram_keys(b"pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)))
    exchange = Exchange(stored, b"k" * 32, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = exchange.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    proof = b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    final = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0," + proof
    assert exchange.step(final) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert exchange.done


@pytest.mark.parametrize(
    "change", [("4096", "1"), ("4096", "99999999"), ("AAECAwQFBgcICQoLDA0ODw==", "AAEC"), ("$4096", "4096")]
)
def test_keys_that_cannot_be_used(change: tuple[str, str]) -> None:
    with pytest.raises(FileError):
        parse_users(f"ann:{str(KEYS).replace(*change)}\n")


def answer(bench: GuardedBench, origin: Origin, user: str, word: str) -> Reason:
    """What CONNACK says to a client that proves this password."""
    client, scram = bench.arriving(V5, origin), ScramClient([METHOD], user, word)
    client.send(Connect(user, properties=said(scram.get_client_first())))
    if client.connection.closing:
        return Reason(client.expect(Connack).reason)
    scram.set_server_first(client.expect(Auth).properties[Property.AUTHENTICATION_DATA].decode())
    client.send(Auth(Reason.CONTINUE_AUTHENTICATION, said(scram.get_client_final())))
    return Reason(client.expect(Connack).reason)


def said(data: str) -> PropertyMap:
    return {Property.AUTHENTICATION_METHOD: METHOD, Property.AUTHENTICATION_DATA: data.encode()}


def test_wrong_proofs_back_off_by_address_and_a_known_user_is_never_kept_out() -> None:
    bench = GuardedBench({"ann": KEYS, "bob": scram_keys(b"bobs", bytes(16), 4096)})
    assert answer(bench, ATTACKER, "ann", "secret") is Reason.SUCCESS
    for _ in range(10):
        assert answer(bench, ATTACKER, "bob", "guess") is Reason.BAD_USER_NAME_OR_PASSWORD
    for user, word in (("bob", "bobs"), ("eve", "x")):
        assert answer(bench, ATTACKER, user, word) is Reason.CONNECTION_RATE_EXCEEDED
    assert answer(bench, ATTACKER, "ann", "secret") is Reason.SUCCESS
    assert answer(bench, Origin("192.0.2.1"), "bob", "bobs") is Reason.SUCCESS


def test_the_same_user_can_send_its_password() -> None:
    bench = GuardedBench({"ann": KEYS})
    client = bench.arriving(V5, ATTACKER)
    client.send(Connect("c", username="ann", password=b"secret"))
    bench.check_passwords()
    assert client.expect(Connack).reason == 0


def test_a_user_that_does_not_exist_looks_like_one_that_does() -> None:
    said = [Exchange({"ann": KEYS}, b"k" * 32, nonce).step(b"n,,n=eve,r=1") for nonce in ("x", "x", "y")]
    assert said[0] == said[1]
    assert said[0].partition(b",")[2] == said[2].partition(b",")[2]
    assert said[0].endswith(b",i=15000")


parts = st.lists(
    st.sampled_from(
        [b"n,,", b"y,,", b"p=x,,", b"n=ann", b"r=1", b"r=1x", b"c=biws", b"p=AAAA", b"m=1", b"e=2", b"=", b"\xff"]
    )
    | st.binary(max_size=8),
    max_size=6,
).map(b",".join)


@given(st.binary(max_size=40) | parts | parts.map(lambda text: text.replace(b",,,", b",,")), parts)
def test_any_bytes_are_a_step_or_one_error(first: bytes, final: bytes) -> None:
    exchange = Exchange({"ann": KEYS}, b"k" * 32, "x")
    for data in (first, final):
        try:
            exchange.step(data)
        except ScramError:
            break
    assert not exchange.done


def knowing_ann(folder: Path) -> AuthOptions:
    """Of a broker that knows ann by SCRAM."""
    edit_users(folder / "passwords", "ann", b"secret", scram=True)
    return AuthOptions(passwords=f"{folder}/passwords", anonymous="never")


@pytest.mark.interop
async def test_mqttjs_proves_its_password_and_is_shown_that_the_broker_knows_it(tmp_path: Path) -> None:
    need("node", "nodejs")
    need_mqttjs()
    async with serving(knowing_ann(tmp_path)) as server:
        host, port = server.address
        for word, said in (("secret", "true"), ("guess", "Connection refused: Bad User Name or Password")):
            assert await run("node", str(PACKAGE / "scram.mjs"), f"mqtt://{host}:{port}", "ann", word) == f"{said}\n"
        assert [message.topic for message in server.hub.retained_for("#")] == ["js"]


async def test_a_client_on_a_socket_proves_its_password(tmp_path: Path) -> None:
    async with serving(knowing_ann(tmp_path)) as server:
        reader, writer = await asyncio.open_connection(*server.address)
        scram, packets = ScramClient([METHOD], "ann", "secret"), PacketReader(V5)

        async def exchanged(packet: Packet) -> Packet:
            writer.write(encode(packet, V5))
            while not (found := packets.feed(await asyncio.wait_for(reader.read(4096), 20))):
                pass
            return found[0]

        challenge = await exchanged(Connect("c", properties=said(scram.get_client_first())))
        assert isinstance(challenge, Auth)
        scram.set_server_first(challenge.properties[Property.AUTHENTICATION_DATA].decode())
        connack = await exchanged(Auth(Reason.CONTINUE_AUTHENTICATION, said(scram.get_client_final())))
        assert isinstance(connack, Connack)
        assert connack.reason == 0
        scram.set_server_final(connack.properties[Property.AUTHENTICATION_DATA].decode())
        assert server.frontend.sessions["c"].user == "ann"
        writer.close()
