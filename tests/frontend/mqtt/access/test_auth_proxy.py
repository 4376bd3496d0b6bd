"""The PROXY protocol: its headers, any bytes in their place, and clients that come by a load balancer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.mqtt.access.options import AuthOptions, ProxyOptions, TlsOptions
from saps.frontend.mqtt.access.proxy_header import (
    SIGNATURE,
    Proxied,
    ProxyError,
    binary_header,
    binary_size,
    text_header,
)
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, Connect
from saps.frontend.mqtt.driver.access_control import AccessControl
from saps.frontend.mqtt.driver.server import MqttServer
from saps.frontend.mqtt.limits import Limits
from saps.routing.hub import Hub
from tests.frontend.mqtt.access.balancer import balancer, binary, value
from tests.frontend.mqtt.peers import need, run

CONNECT = encode(Connect("c"), V5)
LET_IN, REFUSED = 0, 0x87


def certified(name: bytes, flags: int = 3, verdict: int = 0) -> bytes:
    """What a load balancer says of a TLS client with a certificate of this common name."""
    return value(0x20, bytes((flags,)) + verdict.to_bytes(4) + value(0x21, b"TLSv1.3") + value(0x22, name))


def test_what_a_text_header_says() -> None:
    assert text_header(b"PROXY TCP4 192.0.2.7 10.0.0.1 56324 1883\r\n") == Proxied("192.0.2.7", 56324)
    assert text_header(b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n") == Proxied("2001:db8::1", 1)
    assert text_header(b"PROXY UNKNOWN ffff:f...f 1 2\r\n") == text_header(b"PROXY UNKNOWN\r\n") == Proxied()


@pytest.mark.parametrize(
    "line",
    [
        b"PROXY TCP4 192.0.2.7 10.0.0.1 56324 1883\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 56324\r\n",
        b"PROXY TCP4 192.0.2.700 10.0.0.1 1 2\r\n",
        b"PROXY TCP4 ::1 10.0.0.1 1 2\r\n",
        b"PROXY TCP6 10.0.0.1 ::1 1 2\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 -1 2\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 01 2\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 65536 2\r\n",
        b"PROXY UDP4 192.0.2.7 10.0.0.1 1 2\r\n",
        b"PROXY UNKNOWN " + bytes(100) + b"\r\n",
    ],
)
def test_a_text_header_with_a_fault(line: bytes) -> None:
    with pytest.raises(ProxyError):
        text_header(line)


def test_what_a_binary_header_says() -> None:
    assert binary_header(binary("192.0.2.7", 56324)) == Proxied("192.0.2.7", 56324)
    assert binary_header(binary("2001:db8::1", 1, value(4, b"\0"))) == Proxied("2001:db8::1", 1)
    assert binary_header(binary("192.0.2.7", 1, command=0x20)) == Proxied()  # LOCAL: a health check
    assert binary_header(SIGNATURE + b"\x21\x00\0\0") == Proxied()
    assert binary_header(binary("192.0.2.7", 1, certified(b"ann"))).common_name == "ann"
    assert binary_header(binary("192.0.2.7", 1, certified(b"ann", flags=1))).common_name is None
    assert binary_header(binary("192.0.2.7", 1, certified(b"ann", verdict=10))).common_name is None


@pytest.mark.parametrize(
    "header",
    [
        binary("192.0.2.7", 1, command=0x11),
        binary("192.0.2.7", 1, command=0x22),
        SIGNATURE + b"\x21\x11\0\x0b" + bytes(11),
        SIGNATURE + b"\x21\x41\0\0",
        binary("192.0.2.7", 1, b"\x04\0"),
        binary("192.0.2.7", 1, value(4, b"x")[:-1]),
        binary("192.0.2.7", 1, certified(b"\xff")),
        binary("192.0.2.7", 1, bytes(5000)),
        binary("192.0.2.7", 1)[:-1],
    ],
)
def test_a_binary_header_with_a_fault(header: bytes) -> None:
    with pytest.raises(ProxyError):
        binary_header(header)


@given(st.binary(max_size=120), st.integers(0, 0x22), st.integers(0, 0x32))
def test_any_bytes_are_a_header_or_one_error(data: bytes, command: int, family: int) -> None:
    framed = SIGNATURE + bytes((command, family)) + len(data).to_bytes(2) + data
    parsers: list[tuple[Callable[[bytes], object], bytes]] = [
        (text_header, data),
        (text_header, b"PROXY TCP4 " + data + b"\r\n"),
        (binary_size, (data + bytes(16))[:16]),
        (binary_header, data),
        (binary_header, framed),
    ]
    for parse, text in parsers:
        try:
            found = parse(text)
        except ProxyError:
            continue
        if isinstance(found, Proxied) and found.host is not None:
            assert ip_address(found.host)


# ---- on sockets


@asynccontextmanager
async def balanced(
    options: ProxyOptions | None = None, auth: AuthOptions | None = None, tls: TlsOptions | None = None
) -> AsyncIterator[MqttServer]:
    """A server that listens for load balancers on a port of its own."""
    access = AccessControl(auth or AuthOptions(), tls, exposed=True)
    server = MqttServer(Hub(), Limits(connect_timeout=5.0), access=access)
    await server.start("127.0.0.1", 0)
    await server.start_proxy("127.0.0.1", 0, options or ProxyOptions())
    try:
        yield server
    finally:
        await server.stop()


async def reason(server: MqttServer, header: bytes, pieces: int = 1 << 20) -> int | None:
    """What CONNACK says to a client that comes with this header; None if it is cut off."""
    reader, writer = await asyncio.open_connection(*server.proxy_addresses[0])
    try:
        data = header + CONNECT
        for pos in range(0, len(data), pieces):
            writer.write(data[pos : pos + pieces])
            await asyncio.sleep(0)
        return (await reader.readexactly(4))[3]
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return None
    finally:
        writer.close()


@pytest.mark.parametrize("pieces", [1 << 20, 7, 1])
async def test_a_client_is_where_the_header_says(pieces: int) -> None:
    """Anonymous clients are let in from loopback only, and the load balancer is there."""
    async with balanced() as server:
        assert await reason(server, b"PROXY TCP4 192.0.2.7 10.0.0.1 5 1883\r\n", pieces) == REFUSED
        assert await reason(server, b"PROXY TCP4 127.0.0.1 127.0.0.1 5 1883\r\n", pieces) == LET_IN
        assert await reason(server, binary("2001:db8::1", 5), pieces) == REFUSED
        assert await reason(server, binary("::1", 5, value(4, bytes(300))), pieces) == LET_IN
        for unknown in (b"PROXY UNKNOWN\r\n", binary("192.0.2.7", 1, command=0x20)):
            assert await reason(server, unknown, pieces) == REFUSED


async def test_what_is_no_header_or_comes_from_elsewhere_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    async with balanced() as server:
        for header in (b"", b"PROXY\r\n", b"GET / HTTP/1.1\r\n\r\n", b"PROXY " + bytes(200), SIGNATURE + bytes(200)):
            assert await reason(server, header) is None
        assert server.describe()["accepted"] == 0
    assert "connection of load balancer 127.0.0.1 closed: no header of the PROXY protocol" in caplog.text
    async with balanced(ProxyOptions(trusted=("192.0.2.0/24",))) as server:
        assert await reason(server, binary("127.0.0.1", 5)) is None
    assert "it is not of proxy.trusted" in caplog.text


async def test_a_header_that_never_ends_holds_nothing_up() -> None:
    async with balanced() as server:
        idle = [await asyncio.open_connection(*server.proxy_addresses[0]) for _ in range(20)]
        idle[0][1].write(b"PROXY TCP4 ")
        assert await reason(server, binary("127.0.0.1", 5)) == LET_IN
        for _, writer in idle:
            writer.close()


def test_a_listener_with_two_addresses_lets_as_many_begin_as_one_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name has two addresses, which only asyncio's own loop can be told here: uvloop asks the system."""
    monkeypatch.setattr("saps.frontend.mqtt.driver.proxy_listener.MOST_BEGINNING", 2)
    known = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in ("127.0.0.1", "127.0.0.2")]

    async def three() -> None:
        async with balanced() as server:
            with monkeypatch.context() as patched:
                patched.setattr(socket, "getaddrinfo", lambda *arguments, **more: known)
                await server.start_proxy("two.test", 0, ProxyOptions())
            peers = [await asyncio.open_connection(*server.proxy_addresses[1]) for _ in range(3)]
            assert await peers[2][0].read() == b""
            for _, writer in peers[:2]:
                writer.write(binary("127.0.0.1", 5) + CONNECT)
            assert [(await reader.readexactly(4))[3] for reader, _ in peers[:2]] == [LET_IN] * 2
            for _, writer in peers:
                writer.close()

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(three())


async def test_the_common_name_that_a_load_balancer_has_verified_is_the_user_if_that_is_wanted() -> None:
    for wanted, found in ((True, "ann"), (False, None)):
        async with balanced(ProxyOptions(certificates=wanted)) as server:
            reader, writer = await asyncio.open_connection(*server.proxy_addresses[0])
            writer.write(binary("127.0.0.1", 5, certified(b"ann")) + CONNECT)
            assert (await reader.readexactly(4))[3] == LET_IN
            assert server.frontend.sessions["c"].user == found
            assert next(iter(server.frontend.connections)).peer == "127.0.0.1:5"
            writer.close()


@pytest.mark.interop
async def test_mosquitto_clients_over_tls_by_a_load_balancer_that_passes_it_through(tmp_path: Path) -> None:
    need("mosquitto_pub", "mosquitto-clients")
    ca, client_ca = trustme.CA(), trustme.CA()
    for name, blob in {
        "ca.pem": ca.cert_pem,
        "client-ca.pem": client_ca.cert_pem,
        "server.pem": ca.issue_cert("localhost").private_key_and_cert_chain_pem,
        "ann.pem": client_ca.issue_cert("x@y", common_name="ann").private_key_and_cert_chain_pem,
    }.items():
        blob.write_to_path(str(tmp_path / name))
    tls = TlsOptions(
        certificate=f"{tmp_path}/server.pem", client_ca=f"{tmp_path}/client-ca.pem", client_certificates="required"
    )
    async with (
        balanced(ProxyOptions(tls=True), AuthOptions(anonymous="never"), tls) as server,
        balancer(server.proxy_addresses[0]) as port,
    ):
        await run(
            *("mosquitto_pub", "-h", "localhost", "-p", str(port), "--cafile", f"{tmp_path}/ca.pem", "-i", "sensor"),
            *("--cert", f"{tmp_path}/ann.pem", "--key", f"{tmp_path}/ann.pem", "-q", "1", "-t", "a", "-m", "x", "-r"),
        )
        assert [each.payload for each in server.hub.retained_for("a")] == [b"x"]
        assert server.describe()["refused_logins"] == 0
