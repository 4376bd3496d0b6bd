"""Sealed links on loopback sockets: who gets in, who learns what, and what becomes of a link when certificates end."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from saps.identity import listener, live
from saps.identity.certificates import Authority, issue, key_pem, make_authority, new_key, read_certificates
from saps.identity.credentials import CredentialError, FileSet, from_files, from_secret, secret_in
from saps.identity.live import LinkIdentity
from saps.identity.names import Identity
from saps.identity.secret import SHORTEST, SecretError, authority_of, new_secret
from saps.links import GUEST, HIGH_WATER, LinkError
from saps.overlay.frames.base import Frame
from saps.overlay.frames.delivery import Publish
from saps.overlay.frames.framing import FrameReader, encode_into, hello
from saps.overlay.frames.ring import Ping, Pong
from saps.overlay.ring.keys import BrokerRef
from tests.identity.authorities import HOUR, Town
from tests.identity.sealed import Clock, Middle, credentials_of, identity, impostor_context, sealed, stranger_context
from tests.links.test_links import LOOPS, ORDER, TIMEOUT, End, address, data, ends, everything


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Town:
    return Town(tmp_path_factory.mktemp("town"))


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return LOOPS[request.param]


def run(loop: Callable[[], asyncio.AbstractEventLoop], scene: Callable[[], object]) -> None:
    """Run a scene on a loop, at most `TIMEOUT` seconds."""

    async def limited() -> None:
        async with asyncio.timeout(TIMEOUT):
            await scene()  # type: ignore[misc]

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(limited())


Loop = Callable[[], asyncio.AbstractEventLoop]


def greeting(name: str, cluster: str = "c", *frames: Frame) -> bytes:
    """A hello as that broker, and frames."""
    buffer = bytearray(hello(BrokerRef(name, 1, "127.0.0.1:1", cluster), ORDER))
    for frame in frames:
        encode_into(buffer, frame)
    return bytes(buffer)


# --- brokers among themselves -------------------------------------------------------------------------------------


def test_brokers_with_certificates_exchange_frames_in_order(town: Town, loop: Loop) -> None:
    async def scene() -> None:
        async with sealed(town, "a", "b") as (a, b):
            large = data(9, bytes(range(256)) * (1 << 14))
            for end, other in ((a, b), (b, a)):
                for number in range(300):
                    end.send(other.ref, data(number))
                end.send(other.ref, large)
            for here, there in ((a, b), (b, a)):
                await here.until(lambda here=here: len(here.frames) == 301)  # type: ignore[misc]
                assert here.frames == [*((there.ref, data(number)) for number in range(300)), (there.ref, large)]
                assert here.sessions == [there.ref]
            assert await a.links.meet(*address(b.ref)) == b.ref
            assert await a.links.whois(*address(b.ref), "b") == b.ref

    run(loop, scene)


def test_links_speak_tls_1_3_and_keep_no_session(town: Town) -> None:
    async def scene() -> None:
        async with sealed(town, "a") as (a,):
            own = credentials_of(town, town.issue("b"))
            reader, writer = await asyncio.open_connection(*address(a.ref), ssl=own.client, server_hostname="")
            await reader.readexactly(4)
            over_tls = writer.get_extra_info("ssl_object")
            assert over_tls.version() == "TLSv1.3"
            assert over_tls.session is None or not over_tls.session.has_ticket
            writer.close()

    run(asyncio.new_event_loop, scene)


def test_a_peer_that_does_not_read_holds_back_the_publishers_through_tls(town: Town, loop: Loop) -> None:
    async def scene() -> None:
        accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        server = await asyncio.start_server(
            lambda reader, writer: accepted.put_nowait((reader, writer)),
            "127.0.0.1",
            0,
            ssl=credentials_of(town, town.issue("slow")).server,
        )
        slow = BrokerRef("slow", 1, f"127.0.0.1:{server.sockets[0].getsockname()[1]}", "c")
        async with sealed(town, "a") as (a,):
            a.send(slow, data(0, bytes(8 * HIGH_WATER)))
            reader, writer = await accepted.get()
            writer.write(hello(slow, ORDER))
            await a.until(lambda: bool(a.congestion))
            assert a.congestion == [True]
            frames = FrameReader()
            while not frames.feed(await reader.read(1 << 20)):
                pass
            await a.until(lambda: len(a.congestion) == 2)
            assert a.congestion == [True, False]
            writer.close()
        server.close()

    run(loop, scene)


def test_the_express_lane_is_sealed_and_marked_as_well(town: Town, loop: Loop) -> None:
    async def scene() -> None:
        async with sealed(town, "a", "b") as (a, b):
            for end in (a, b):
                end.links.express, end.links.side.dscp = lambda frame: isinstance(frame, Publish), 46
            a.send(b.ref, data(1))
            a.send(b.ref, Pong())
            await b.until(lambda: len(b.frames) == 2)
            lanes = [*a.links._outbound.values(), *a.links._expresses.values()]
            assert len(lanes) == 2
            assert all(lane.sealed is not None for lane in lanes)
            made = a.links._expresses[b.ref]._transport
            assert made is not None
            assert made.get_extra_info("ssl_object").version() == "TLSv1.3"
            assert made.get_extra_info("socket").getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 46 << 2

    run(loop, scene)


# --- strangers who connect ----------------------------------------------------------------------------------------

PLAIN = {
    "plain": lambda: greeting("b", "c", Ping(), data(1)),
    "rubbish": lambda: bytes(range(256)) * 8,
    "an http client": lambda: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "nothing but the beginning of TLS": lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("sent", PLAIN.values(), ids=PLAIN)
def test_who_does_not_speak_tls_learns_and_changes_nothing(town: Town, loop: Loop, sent: Callable[[], bytes]) -> None:
    async def scene() -> None:
        async with sealed(town, "a", "b") as (a, b):
            reader, writer = await asyncio.open_connection(*address(b.ref))
            writer.write(sent())
            writer.write_eof()
            answered = await everything(reader)
            assert len(answered) <= 7, "more than an alert of TLS"
            writer.close()
            await unharmed(a, b)

    run(loop, scene)


def wrong_authority(town: Town) -> bytes:
    other = make_authority("town", new_key(), 0, 4e9)
    return issue(other, Identity("c", "b"), 0, 4e9).pem


def self_signed(town: Town) -> bytes:
    made = make_authority("b", new_key(), 0, 4e9)
    return key_pem(made.key) + made.pem


def vouched_by_a_broker(town: Town) -> bytes:
    """A broker that plays authority with its own certificate."""
    broker = issue(town.authority, Identity("c", "x"), 0, 4e9)
    forged = issue(Authority(broker.certificate, broker.key), Identity("c", "b"), 0, 4e9)
    return forged.pem + broker.certificate.public_bytes(serialization.Encoding.PEM)


def of_no_broker(town: Town) -> bytes:
    """Signed by the town's authority, as for a user of MQTT: there is a name, but no broker's."""
    authority, key = town.authority, new_key()
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "b")]))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2090, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("b")]), critical=False)
        .add_extension(signer, critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return key_pem(key) + made.public_bytes(serialization.Encoding.PEM)


def revoked(town: Town) -> bytes:
    pem = town.issue("b").read_bytes()
    town.folder.revoke(None, f"{read_certificates(pem)[0].serial_number:x}", 1.0)
    return pem


OUTSIDERS: dict[str, Callable[[Town], bytes]] = {
    "no certificate": lambda town: b"",
    "signed by another authority of the same name": wrong_authority,
    "signed by itself": self_signed,
    "signed by a broker": vouched_by_a_broker,
    "expired": lambda town: town.issue("b", seconds=-1).read_bytes(),
    "not valid yet": lambda town: issue(town.authority, Identity("c", "b"), 3e9, 4e9).pem,
    "of no broker": of_no_broker,
    "revoked": revoked,
}
"""Keys and chains of those who are not of the mesh, although they say to be b of c."""
INSIDERS: dict[str, Callable[[Town], bytes]] = {
    "of another broker": lambda town: town.issue("x").read_bytes(),
    "of another cluster": lambda town: town.issue("b", "c/d").read_bytes(),
}
"""Of those who are, and say to be somebody else."""


@pytest.mark.parametrize("who", OUTSIDERS.values(), ids=OUTSIDERS)
@pytest.mark.parametrize("said", [hello(GUEST, ORDER), greeting("b", "c", Ping())], ids=["a guest", "a broker"])
def test_who_is_not_of_the_mesh_learns_and_changes_nothing(
    town: Town, loop: Loop, who: Callable[[Town], bytes], said: bytes
) -> None:
    async def scene() -> None:
        own = who(town)
        async with sealed(town, "a", "b") as (a, b):
            context = stranger_context(own, town.folder.certificate.read_bytes())
            assert await converse(address(a.ref), context, said) == b""
            await unharmed(b, a)

    run(loop, scene)


@pytest.mark.parametrize("who", INSIDERS.values(), ids=INSIDERS)
def test_a_broker_cannot_say_to_be_another_one(
    town: Town, loop: Loop, who: Callable[[Town], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        own = who(town)
        async with sealed(town, "a", "b") as (a, b):
            context = stranger_context(own, town.folder.certificate.read_bytes())
            assert await converse(address(a.ref), context, greeting("b", "c", Ping())) in (b"", hello(a.ref, ORDER))
            assert "says to be b of c, and its certificate is of " in caplog.text
            await unharmed(b, a)

    run(loop, scene)


async def converse(where: tuple[str, int], context: ssl.SSLContext, said: bytes) -> bytes:
    """What the other side answers inside TLS to what is said, until it closes."""
    try:
        reader, writer = await asyncio.open_connection(*where, ssl=context, server_hostname="")
    except (ssl.SSLError, ConnectionError):
        return b""
    writer.write(said)
    try:
        heard = await everything(reader)
    except ssl.SSLError:
        heard = b""
    writer.close()
    return heard


async def unharmed(a: End, b: End) -> None:
    """Nothing has reached `b` but what `a` sends, and `a` still gets through."""
    assert (b.sessions, b.frames, b.found, b.down) == ([], [], [], [])
    a.send(b.ref, Pong())
    await b.until(lambda: bool(b.frames))
    assert (b.sessions, b.frames, b.found) == ([a.ref], [(a.ref, Pong())], [])


def test_strangers_who_knock_cost_a_bounded_number_of_handshakes(
    town: Town, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Beyond it they are turned away at once; links that stand do not notice, and there is one line in the log."""
    monkeypatch.setattr(listener, "HANDSHAKES", 12)
    monkeypatch.setattr(live, "HANDSHAKE", TIMEOUT)

    async def scene() -> None:
        async with sealed(town, "a", "b") as (a, b):
            a.send(b.ref, Ping())
            await b.until(lambda: bool(b.frames))
            silent = [await asyncio.open_connection(*address(b.ref)) for _ in range(3)]
            for _ in range(20):
                reader, writer = await asyncio.open_connection(*address(b.ref))
                assert await everything(reader) == b""
                writer.close()
            a.send(b.ref, Pong())
            await b.until(lambda: len(b.frames) == 2)
            for _, writer in silent:
                writer.close()

    run(asyncio.new_event_loop, scene)
    lines = [record for record in caplog.records if record.name == "saps.identity.listener"]
    assert len(lines) == 1


def test_tls_1_2_is_refused_also_with_a_good_certificate(town: Town, loop: Loop) -> None:
    async def scene() -> None:
        async with sealed(town, "a", "b") as (a, b):
            context = stranger_context(town.issue("x").read_bytes(), town.folder.certificate.read_bytes())
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection(*address(b.ref), ssl=context, server_hostname="")
            await unharmed(a, b)

    run(loop, scene)


# --- strangers who are connected to -------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [*OUTSIDERS, *INSIDERS])
def test_an_impostor_at_a_brokers_address_is_sent_nothing(town: Town, loop: Loop, who: str) -> None:
    async def scene() -> None:
        own = (OUTSIDERS | INSIDERS)[who](town)
        heard: list[bytes] = []
        closed = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(greeting("b"))
            with suppress(ssl.SSLError):
                heard.append(await everything(reader))
            writer.close()
            closed.set()

        context = impostor_context(own) if own else None
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        async with sealed(town, "a") as (a,):
            a.send(BrokerRef("b", 1, f"127.0.0.1:{port}", "c"), data(1, b"secret"))
            await a.until(lambda: bool(a.down))
            assert a.found == []
            with pytest.raises(LinkError):
                await a.links.meet("127.0.0.1", port)
        server.close()
        # One of the mesh may learn who calls, and nothing more; others not even that.
        told = b"".join(heard)
        assert b"secret" not in told
        assert who in INSIDERS or b"SAPS" not in told

    run(loop, scene)


# --- someone in the middle ----------------------------------------------------------------------------------------


def test_recorded_bytes_are_worth_nothing(town: Town, loop: Loop) -> None:
    """The same bytes once more, on a connection of their own."""

    async def scene() -> None:
        async with sealed(town, "a", "b", "c") as (a, b, c), Middle(address(b.ref)) as middle:
            # The broker at the middle's address is b, as far as names go; its true address makes the hello differ.
            b.ref = b.links.side.me = BrokerRef("b", 1, f"127.0.0.1:{middle.port}", "c")
            a.send(b.ref, data(1))
            await b.until(lambda: bool(b.frames))
            recorded = b"".join(middle.sent)
            assert len(recorded) > 500
            reader, writer = await asyncio.open_connection(*middle.target)
            writer.write(recorded)
            await everything(reader)
            writer.close()
            assert (b.frames, b.sessions) == ([(a.ref, data(1))], [a.ref])
            c.send(b.ref, Pong())
            await b.until(lambda: len(b.frames) == 2)
            assert b.frames[1] == (c.ref, Pong())

    run(loop, scene)


@pytest.mark.parametrize("how", ["doubled", "changed", "left out"])
def test_who_changes_what_passes_breaks_the_link_and_nothing_else(town: Town, loop: Loop, how: str) -> None:
    alterations: dict[str, Callable[[bytes], bytes]] = {
        "doubled": lambda chunk: chunk + chunk,
        "changed": lambda chunk: chunk[:-1] + bytes([chunk[-1] ^ 1]),
        "left out": lambda chunk: b"",
    }

    async def scene() -> None:
        async with sealed(town, "a", "b") as (a, b), Middle(address(b.ref)) as middle:
            b.ref = b.links.side.me = BrokerRef("b", 1, f"127.0.0.1:{middle.port}", "c")
            a.send(b.ref, data(1))
            await b.until(lambda: bool(b.frames))
            middle.alter = alterations[how]
            a.send(b.ref, data(2))
            await once_more(middle)
            middle.alter = bytes
            a.send(b.ref, data(3))
            await a.until(lambda: bool(a.down))
            arrived = [frame for _, frame in b.frames]
            assert arrived in ([data(1)], [data(1), data(2)])
            if how != "doubled":
                assert arrived == [data(1)]

    async def once_more(middle: Middle) -> None:
        count = len(middle.sent)
        while len(middle.sent) <= count:  # noqa: ASYNC110
            await asyncio.sleep(0)

    run(loop, scene)


# --- certificates that end, are renewed, are revoked --------------------------------------------------------------


def test_a_new_certificate_is_taken_and_running_links_stay(tmp_path: Path, loop: Loop) -> None:
    town = Town(tmp_path / "ca")

    async def scene() -> None:
        async with sealed(town, "a", "b", "c") as (a, b, c):
            b.send(a.ref, Ping())
            await a.until(lambda: bool(a.frames))
            before = shown(a)
            town.issue("b")
            assert b.links.side.identity is not None
            b.links.side.identity.look()
            b.links.review()
            b.send(a.ref, Pong())
            await a.until(lambda: len(a.frames) == 2)
            assert shown(a) == before
            assert len(a.sessions) == 1
            b.send(c.ref, Ping())
            await c.until(lambda: bool(c.frames))
            assert shown(c) != before
            assert a.down == b.down == []

    run(loop, scene)


def shown(end: End) -> set[int]:
    """The numbers of the certificates that have been shown to an end by those linked to it."""
    return {link.shown.serial.number for link in end.links.receiver.connections if link.shown is not None}


def test_links_of_a_certificate_that_ends_are_made_anew_without_losing_a_frame(tmp_path: Path, loop: Loop) -> None:
    town, clock = Town(tmp_path / "ca"), Clock()

    async def scene() -> None:
        async with sealed(town, "a", "b", clock=clock) as (a, b):
            for number in range(100):
                a.send(b.ref, data(number, bytes(10_000)))
            await b.until(lambda: bool(b.frames))
            clock.ahead = 0.9 * HOUR
            town.issue("a", seconds=2 * HOUR)
            town.issue("b", seconds=2 * HOUR)
            for end in (a, b):
                assert end.links.side.identity is not None
                end.links.side.identity.look()
            clock.ahead = 1.1 * HOUR
            a.links.review()
            await a.until(lambda: bool(a.down))
            assert len(b.frames) == 100
            a.send(b.ref, Ping())
            await b.until(lambda: len(b.frames) == 101)
            assert b.frames == [*((a.ref, data(n, bytes(10_000))) for n in range(100)), (a.ref, Ping())]

    run(loop, scene)


def test_a_link_whose_maker_is_not_renewed_is_cut_when_the_grace_is_over(tmp_path: Path, loop: Loop) -> None:
    town, clock = Town(tmp_path / "ca"), Clock()

    async def scene() -> None:
        async with sealed(town, "a", "b", clock=clock, grace=60.0) as (a, b):
            a.send(b.ref, Ping())
            await b.until(lambda: bool(b.frames))
            clock.ahead = HOUR + 50
            b.links.review()
            a.send(b.ref, Pong())
            await b.until(lambda: len(b.frames) == 2)
            clock.ahead = HOUR + 61
            b.links.review()
            await a.until(lambda: bool(a.down))
            a.send(b.ref, Ping())
            await a.until(lambda: len(a.down) == 2)
            assert len(b.frames) == 2

    run(loop, scene)


def test_a_revoked_broker_loses_its_links_and_gets_no_new_ones(tmp_path: Path, loop: Loop) -> None:
    town = Town(tmp_path / "ca")

    async def scene() -> None:
        async with sealed(town, "a", "b") as (a, b):
            a.send(b.ref, Ping())
            b.send(a.ref, Ping())
            await asyncio.gather(b.until(lambda: bool(b.frames)), a.until(lambda: bool(a.frames)))
            town.folder.revoke("a", None, 1.0)
            assert b.links.side.identity is not None
            b.links.side.identity.look()
            b.links.review()
            await asyncio.gather(a.until(lambda: bool(a.down)), b.until(lambda: bool(b.down)))
            a.send(b.ref, Pong())
            b.send(a.ref, Pong())
            await asyncio.gather(a.until(lambda: len(a.down) >= 2), b.until(lambda: len(b.down) >= 2))
            assert len(b.frames) == len(a.frames) == 1

    run(loop, scene)


BAD_FILES: dict[str, Callable[[Town, LinkIdentity], None]] = {
    "half a certificate": lambda town, _: _half(town.folder.directory / "issued" / "a.pem"),
    "another broker's": lambda town, _: _copy(town.issue("x"), town.folder.directory / "issued" / "a.pem"),
    "expired": lambda town, _: _copy(town.issue("a", seconds=-1), town.folder.directory / "issued" / "a.pem"),
    "no authority": lambda town, _: town.folder.certificate.unlink(),
    "an older list": lambda town, _: _put(town.folder.revoked, _OLD_LISTS[town.folder.directory]),
    "a list of somebody else": lambda town, _: _put(town.folder.revoked, _foreign(town)),
}
_OLD_LISTS: dict[Path, bytes] = {}


def _half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:300])


def _put(file: Path, content: bytes) -> None:
    file.write_bytes(content)


def _copy(source: Path, target: Path) -> None:
    target.write_bytes(source.read_bytes())


def _foreign(town: Town) -> bytes:
    return Town(town.folder.directory.with_name("foreign")).folder.revoked.read_bytes()


@pytest.mark.parametrize("spoil", BAD_FILES.values(), ids=BAD_FILES)
def test_bad_files_are_not_taken_and_good_ones_are_again(
    tmp_path: Path, spoil: Callable[[Town, LinkIdentity], None], caplog: pytest.LogCaptureFixture
) -> None:
    town = Town(tmp_path / "ca")
    _OLD_LISTS[town.folder.directory] = town.folder.revoked.read_bytes()
    town.issue("gone")
    town.folder.revoke("gone", None, 1.0)
    held = identity(town, "a", clock=Clock())
    before = held.credentials
    authority, lists = town.folder.certificate.read_bytes(), town.folder.revoked.read_bytes()
    spoil(town, held)
    with caplog.at_level(logging.ERROR):
        held.look()
        held.look()
    assert held.credentials is before
    assert len(caplog.records) == 1, "one line, however often it is looked at"
    town.folder.certificate.write_bytes(authority)
    town.folder.revoked.write_bytes(lists)
    town.issue("a")
    held.look()
    assert held.credentials is not before


# --- with a secret ------------------------------------------------------------------------------------------------


def by_secret(secret: str, name: str) -> LinkIdentity:
    authority = authority_of(secret)
    me = Identity("c", name)
    clock = Clock()
    return LinkIdentity(lambda: from_secret(authority, me, clock()), (), me, 0.0, clock, renews=True)


def test_who_knows_the_secret_is_in_and_who_knows_another_is_not(loop: Loop) -> None:
    secret = new_secret()

    async def scene() -> None:
        a, b, x = End("a"), End("b"), End("x")
        for end, known in ((a, secret), (b, secret), (x, new_secret())):
            end.links.side.identity = by_secret(known, end.ref.name)
            await end.listen()
        x.send(b.ref, Ping())
        await x.until(lambda: bool(x.down))
        with pytest.raises(LinkError):
            await x.links.meet(*address(b.ref))
        await unharmed(a, b)
        for end in (a, b, x):
            await end.links.close()

    run(loop, scene)


def test_a_secret_makes_one_authority_everywhere() -> None:
    secret = new_secret()
    assert authority_of(secret).pem == authority_of(secret).pem
    assert authority_of(secret).pem != authority_of(new_secret()).pem


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SecretError, match=f"at least {SHORTEST}"):
        authority_of("x" * (SHORTEST - 1))
    (tmp_path / "secret").write_text("password\n")
    with pytest.raises(CredentialError, match="at least"):
        secret_in(str(tmp_path / "secret"))


def test_by_a_secret_a_broker_renews_itself() -> None:
    held = by_secret(new_secret(), "a")
    before = held.credentials
    held.look()
    assert held.credentials is before
    clock = held.clock
    assert isinstance(clock, Clock)
    clock.ahead = 0.6 * (before.own.ends - before.own.begins)
    held.look()
    assert held.credentials.own.ends > before.own.ends


# --- plain and sealed do not mix ----------------------------------------------------------------------------------


def test_a_plain_broker_and_a_sealed_one_have_no_link(town: Town, loop: Loop) -> None:
    async def scene() -> None:
        async with sealed(town, "a") as (a,), ends("b") as (b,):
            a.send(b.ref, data(1))
            b.send(a.ref, data(1))
            await asyncio.gather(a.until(lambda: bool(a.down)), b.until(lambda: bool(b.down)))
            assert (a.frames, a.sessions, a.found) == ([], [], [])
            assert (b.frames, b.sessions, b.found) == ([], [], [])

    run(loop, scene)


def test_files_without_what_they_need_are_named(tmp_path: Path) -> None:
    town = Town(tmp_path / "ca")
    good = FileSet(str(town.issue("a")), "", str(town.folder.certificate), str(town.folder.revoked))
    for which in ("certificate", "authority", "revoked"):
        with pytest.raises(CredentialError) as caught:
            from_files(good._replace(**{which: str(tmp_path / "nowhere")}))
        assert caught.value.which == which
    with pytest.raises(CredentialError) as caught:
        from_files(good._replace(key=str(town.folder.key)))
    assert caught.value.which == "key"
