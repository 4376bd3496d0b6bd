"""Real clients at real listeners: TLS, certificates, passwords in threads, and reloads while they are connected."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from saps.frontend.mqtt.access.options import AuthOptions, TlsOptions
from saps.frontend.mqtt.access.users import Scrypt
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, Connect
from saps.frontend.mqtt.driver.access_control import AccessControl
from saps.frontend.mqtt.driver.access_files import AccessError, edit_users
from saps.frontend.mqtt.driver.hashing import ThreadedChecker
from saps.frontend.mqtt.driver.server import MqttServer
from saps.identity.certificates import issue_plain, key_pem, make_authority, make_list, new_key
from tests.frontend.mqtt.access.serving import serving
from tests.frontend.mqtt.peers import need, run

pytestmark = pytest.mark.slow

ALLOW_ALL = '[[rule]]\nallow = "both"\ntopics = "#"\n'
TIMEOUT = 20


class Place:
    """A folder with the files of a broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.client_ca = trustme.CA()
        self.ca.cert_pem.write_to_path(self.file("ca.pem"))
        self.client_ca.cert_pem.write_to_path(self.file("client-ca.pem"))
        self.new_server_certificate()
        self.write("acl.toml", ALLOW_ALL)

    def file(self, name: str) -> str:
        return str(self.folder / name)

    def new_server_certificate(self) -> None:
        self.ca.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
            self.file("server.pem")
        )

    def client_certificate(self, user: str, ca: trustme.CA | None = None) -> str:
        """The file with a client's key and certificate."""
        issued = (ca or self.client_ca).issue_cert(f"{user}@example.org", common_name=user)
        issued.private_key_and_cert_chain_pem.write_to_path(self.file(f"{user}.pem"))
        return self.file(f"{user}.pem")

    def tls(self, **options: Any) -> TlsOptions:
        return TlsOptions(certificate=self.file("server.pem"), client_ca=self.file("client-ca.pem"), **options)

    def auth(self, passwords: str = "", acl: str = "") -> AuthOptions:
        return AuthOptions(
            passwords=self.file(passwords) if passwords else "",
            acl=self.file(acl) if acl else "",
        )

    def write(self, name: str, text: str) -> None:
        Path(self.file(name)).write_text(text)

    def client_context(self, user: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.file("ca.pem"))
        if user is not None:
            context.load_cert_chain(self.client_certificate(user))
        return context


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def client(address: tuple[str, int], **options: Any) -> aiomqtt.Client:
    options.setdefault("protocol", aiomqtt.ProtocolVersion.V5)
    return aiomqtt.Client(*address, timeout=TIMEOUT, **options)


async def passes(sender: aiomqtt.Client, receiver: aiomqtt.Client, topic: str = "a/b") -> None:
    """A message goes from one to the other."""
    await receiver.subscribe("#", qos=1)
    await sender.publish(topic, b"x", qos=1)
    async with asyncio.timeout(TIMEOUT):
        assert (await anext(aiter(receiver.messages))).topic.value == topic


async def reload(server: MqttServer) -> bool:
    reloading = server.reload()
    assert reloading is not None
    return await reloading


@pytest.mark.interop
@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
async def test_mosquitto_clients_over_tls_with_password_and_with_certificate(place: Place, version: str) -> None:
    need("mosquitto_sub", "mosquitto-clients")
    edit_users(Path(place.file("passwords")), "ann", b"secret")
    place.write(
        "acl.toml",
        '[[rule]]\nallow = "publish"\nusers = "ann"\ntopics = "%u/#"\n'
        '[[rule]]\nallow = "subscribe"\nusers = "dash"\ntopics = "ann/open/#"\n',
    )
    options = place.tls(client_certificates="optional")
    async with serving(place.auth(passwords="passwords", acl="acl.toml"), options) as server:
        common = ["-V", version, "-h", "localhost", "-p", str(server.tls_addresses[0][1])]
        common += ["--cafile", place.file("ca.pem")]
        dash = place.client_certificate("dash")
        watching = await asyncio.create_subprocess_exec(
            *("stdbuf", "-oL", "mosquitto_sub", *common, "--cert", dash, "--key", dash),
            *("-d", "-q", "1", "-t", "#", "-t", "nothing/of/this", "-F", "MSG %t %p", "-C", "1"),
            stdout=-1,
        )
        assert watching.stdout is not None
        async with asyncio.timeout(TIMEOUT):
            while b"Subscribed" not in (said := await watching.stdout.readline()):
                assert said
            assert said.split()[-2:] == [b"1,", b"135" if version == "mqttv5" else b"128"]
            ann = ["mosquitto_pub", *common, "-i", "sensor", "-u", "ann", "-q", "1"]
            await run(*ann, "-P", "secret", "-t", "ann/secret", "-m", "no")
            await run(*ann, "-P", "secret", "-t", "ann/open/x", "-m", "yes")
            heard, _ = await watching.communicate()
            assert [line for line in heard.decode().splitlines() if line.startswith("MSG")] == ["MSG ann/open/x yes"]
            assert server.describe()["refused_publications"] == server.describe()["refused_logins"] == 0
            with pytest.raises(AssertionError, match=r"(?i)bad user name|not authori"):
                await run(*ann, "-P", "guess", "-t", "ann/open/x", "-m", "no")
            assert server.describe()["refused_logins"] == 1


async def greeted(address: tuple[str, int], context: ssl.SSLContext) -> bytes:
    """What a listener says to CONNECT. In TLS 1.3 a client learns of its refusal only after the handshake."""
    reader, writer = await asyncio.open_connection(*address, ssl=context)
    try:
        writer.write(encode(Connect("c"), V5))
        return await reader.readexactly(4)
    finally:
        writer.close()


async def test_required_certificates_stop_others_in_the_handshake(place: Place) -> None:
    async with serving(place.auth(), place.tls(client_certificates="required")) as server:
        address = "localhost", server.tls_addresses[0][1]
        async with client(address, tls_context=place.client_context("ann"), identifier="c"):
            assert server.frontend.sessions["c"].user == "ann"
        stranger = place.client_context()
        stranger.load_cert_chain(place.client_certificate("eve", trustme.CA()))
        for context in (place.client_context(), stranger):
            with pytest.raises((ssl.SSLError, ConnectionResetError, asyncio.IncompleteReadError)):
                await greeted(address, context)
        assert server.describe()["accepted"] == 1


async def test_the_first_alternative_name_can_be_the_user(place: Place) -> None:
    async with serving(place.auth(), place.tls(client_certificates="required", user_from="san")) as server:
        address = "localhost", server.tls_addresses[0][1]
        async with client(address, tls_context=place.client_context("ann"), identifier="c"):
            assert server.frontend.sessions["c"].user == "ann@example.org"


@pytest.mark.parametrize(("minimum", "spoken"), [("1.2", "TLSv1.2"), ("1.3", None)])
async def test_no_older_version_of_tls_is_spoken_than_the_setting_allows(
    place: Place, minimum: str, spoken: str | None
) -> None:
    async with serving(place.auth(), place.tls(minimum_version=minimum)) as server:
        context = place.client_context()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        opening = asyncio.open_connection("localhost", server.tls_addresses[0][1], ssl=context)
        if spoken is None:
            with pytest.raises((ssl.SSLError, ConnectionResetError)):
                await opening
            return
        _, writer = await opening
        assert writer.get_extra_info("ssl_object").version() == spoken
        writer.close()


async def test_a_reload_renews_the_certificate_and_keeps_the_connections(place: Place) -> None:
    async with serving(place.auth(), place.tls()) as server:
        address = "localhost", server.tls_addresses[0][1]
        before = await shown(place, address)
        async with client(address, tls_context=place.client_context()) as first:
            place.new_server_certificate()
            assert await shown(place, address) == before
            assert await reload(server)
            after = await shown(place, address)
            assert after != before
            async with client(address, tls_context=place.client_context()) as second:
                await passes(first, second)
                assert await reload(server)
                await passes(second, first)
            assert await shown(place, address) == after
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", address[1])


async def test_a_reload_ends_the_connections_of_revoked_certificates_and_no_others(place: Place) -> None:
    now = time.time()
    authority, other = (make_authority(name, new_key(), now, now + 3600) for name in ("clients", "others"))
    issued = {user: issue_plain(authority, user, now, now + 3600, None) for user in ("ann", "bob")}
    for user, each in issued.items():
        place.write(f"{user}.pem", (key_pem(each.key) + pem(each.certificate)).decode())
    place.write("client-ca.pem", (pem(authority.certificate) + pem(other.certificate)).decode())
    ann = [(issued["ann"].certificate.serial_number, now)]
    nobody, by_another = make_list(authority, [], 1, now), make_list(other, ann, 1, now)
    place.write("revoked.pem", (nobody + by_another).decode())
    options = place.tls(client_certificates="required", client_revoked=place.file("revoked.pem"))

    def context(user: str) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=place.file("ca.pem"))
        made.load_cert_chain(place.file(f"{user}.pem"))
        return made

    async with serving(place.auth(), options) as server:
        address = "localhost", server.tls_addresses[0][1]
        first = client(address, tls_context=context("ann"), identifier="a")
        async with client(address, tls_context=context("bob"), identifier="b") as second:
            await first.__aenter__()
            assert await reload(server)
            await passes(second, first)
            place.write("revoked.pem", (make_list(authority, ann, 2, now) + by_another).decode())
            assert await reload(server)
            with pytest.raises(aiomqtt.MqttError):
                await asyncio.wait_for(anext(aiter(first.messages)), TIMEOUT)
            await passes(second, second)
            async with client(address, tls_context=context("bob"), identifier="c") as third:
                await passes(third, third)
            # Without the client library, which waits for a CONNACK. With TLS 1.3 its own handshake ends before ours.
            reader, writer = await asyncio.open_connection(*address, ssl=context("ann"))
            async with asyncio.timeout(2):
                assert await reader.read() == b""
            writer.close()


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


async def shown(place: Place, address: tuple[str, int]) -> bytes:
    """The certificate a listener shows."""
    _, writer = await asyncio.open_connection(*address, ssl=place.client_context())
    certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return certificate


BAD_FILES: list[tuple[str, Callable[[Path], object], str]] = [
    (
        "acl.toml",
        lambda file: file.write_text("\n[[rule]]\nallow = 1\ntopics='a'"),
        "auth.acl: {file}:3: allow must be",
    ),
    ("acl.toml", lambda file: file.write_bytes(b"#\n# \xff"), "auth.acl: {file}:2: not UTF-8"),
    ("acl.toml", lambda file: file.unlink(), "auth.acl: cannot read {file}: No such file or directory"),
    ("passwords", lambda file: file.write_text("# \nann:secret\n"), "auth.passwords: {file}:2: not a password hash"),
    ("server.pem", lambda file: file.write_text(""), "tls.certificate: {file}: "),
    ("client-ca.pem", lambda file: file.write_text("nonsense"), "tls.client_ca: {file}: "),
    ("client-ca.pem", lambda file: file.unlink(), "tls.client_ca: cannot read {file}: No such file"),
]


@pytest.mark.parametrize(("name", "spoil", "line"), BAD_FILES)
async def test_a_reload_with_a_fault_in_one_file_changes_nothing_and_says_so(
    place: Place, caplog: pytest.LogCaptureFixture, name: str, spoil: Callable[[Path], object], line: str
) -> None:
    passwords = Path(place.file("passwords"))
    edit_users(passwords, "ann", b"secret")
    auth, tls = place.auth(passwords="passwords", acl="acl.toml"), place.tls(client_certificates="optional")
    async with serving(auth, tls) as server:
        address = "localhost", server.tls_addresses[0][1]
        login = {"username": "ann", "password": "secret"}
        async with client(server.address, **login) as sender, client(server.address, **login) as receiver:
            certificate = await shown(place, address)
            edit_users(passwords, "ann", b"other")
            place.new_server_certificate()
            place.write("acl.toml", 'default = "deny"')
            spoil(Path(place.file(name)))
            caplog.clear()
            assert not await reload(server)
            await passes(sender, receiver)
            assert await shown(place, address) == certificate
            async with client(server.address, **login):
                pass
    said = [record.getMessage() for record in caplog.records if record.name.endswith("access_control")]
    assert said[0].startswith(line.format(file=place.file(name)))
    assert said[1:] == ["reload refused: passwords, access rules and certificates stay as they were"]
    with pytest.raises(AccessError):
        AccessControl(auth, tls, exposed=False)


async def test_a_good_reload_holds_at_once_and_is_said(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    passwords = Path(place.file("passwords"))
    for name in ("ann", "bob"):
        edit_users(passwords, name, b"secret")
    async with serving(place.auth(passwords="passwords", acl="acl.toml")) as server:
        bob = client(server.address, username="bob", password="secret")
        async with client(server.address, username="ann", password="secret", identifier="ann") as ann:
            await bob.__aenter__()
            await passes(ann, bob)
            place.write("acl.toml", ALLOW_ALL.replace("#", "only/#"))
            edit_users(passwords, "bob", None)
            assert await reload(server)
            with pytest.raises(aiomqtt.MqttError):
                await asyncio.wait_for(anext(aiter(bob.messages)), TIMEOUT)
            await ann.publish("a/b", b"x", qos=1)
            await passes(ann, ann, "only/b")
            with pytest.raises(aiomqtt.MqttError):
                await client(server.address, username="bob", password="secret").__aenter__()
    assert "reload done: 1 users, 1 access rules, no TLS" in caplog.text


async def test_reloads_asked_for_during_a_reload_are_one_more(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(place.auth(acl="acl.toml")) as server:
        tasks = {server.reload() for _ in range(5)}
        await asyncio.sleep(0)  # it begins, and reads the files in a thread
        tasks |= {server.reload() for _ in range(5)}
        assert len(tasks) == 1
        assert await reload(server)
    assert caplog.text.count("reload done") == 2


async def test_passwords_are_checked_beside_the_loop_and_no_more_than_fit_in_the_queue() -> None:
    stored = Scrypt(1, 1, 1, b"salt", hashlib.scrypt(b"right", salt=b"salt", n=2, r=1, p=1, dklen=32))
    checker, threads = ThreadedChecker(1, queue=8), set[int]()
    answers: asyncio.Queue[tuple[int, bool]] = asyncio.Queue()

    def ask(number: int, host: str, password: bytes, wanted: bool = True) -> bool:
        def is_wanted() -> bool:
            threads.add(threading.get_ident())
            return wanted

        return checker.check(stored, password, host, is_wanted, lambda good: answers.put_nowait((number, good)))

    taken = [ask(n, "a", b"right" if n % 2 else b"wrong") for n in range(4)]
    assert taken == [True, True, False, False]  # a quarter of the queue is for one host
    assert [ask(4 + n, f"host{n}", b"right", wanted=n > 2) for n in range(7)] == [True] * 6 + [False]
    found = [await answers.get() for _ in range(8)]
    assert found == [(0, False), (1, True), *((4 + n, n > 2) for n in range(6))]
    assert ask(20, "a", b"right")
    assert await answers.get() == (20, True)
    assert threading.get_ident() not in threads
    await checker.close()
    assert answers.empty()


async def test_a_broker_that_lets_everyone_in_spends_nothing_on_it() -> None:
    for options, exposed in ((AuthOptions(), False), (AuthOptions(anonymous="always"), True)):
        assert AccessControl(options, None, exposed=exposed).guard is None
    for options, exposed in ((AuthOptions(), True), (AuthOptions(anonymous="never"), False)):
        access = AccessControl(options, None, exposed=exposed)
        assert access.guard is not None
        await access.close()
