"""The Web port (target ``web``): HTTP requests, and WebSockets with operations of any kind."""

from __future__ import annotations

import struct

import msgspec

from saps.frontend.mqtt.driver.server import MqttServer
from saps.frontend.web.clients.messages import Op
from saps.frontend.web.frontend import add_document, add_topics, web_server
from saps.routing.hub import Hub
from tests.fuzzing.http import Visit, request
from tests.fuzzing.mqtt import LIMITS, check_frontend
from tests.fuzzing.pipes import play, settle
from tests.fuzzing.supply import Builder, Supply
from tests.fuzzing.target import Target

TEXTS = [
    "a/b",
    "a/#",
    "#",
    "$share/g/a",
    "",
    "a/+/b",
    "\0",
    "$SYS/x",
    "a#",
    "x" * 70_000,
    "é" * 40_000,
    "a/" * 30,
    "\ud800",
]
PATHS = [
    "/v1/topics/a%2Fb",
    "/v1/topics/a/b",
    "/v1/events",
    "/v1/socket",
    "/mqtt",
    "/openapi.json",
    "/v1/topics/",
    "/",
    "/v1/topics/%23",
    "/v1/topics/%00",
    "/v1/topics/%FF",
    "/v1/topics/$SYS/x",
]
NAMES = [
    "qos",
    "retain",
    "expiry",
    "response-topic",
    "correlation",
    "property",
    "filter",
    "client",
    "retained",
    "clean",
    "window",
]
VALUES = [
    "1",
    "2",
    "0",
    "3",
    "true",
    "false",
    "4294967295",
    "4294967296",
    "a%2Fb",
    "a/%23",
    "eA==",
    "x",
    "n=v",
    "n%00=v",
    "send",
    "%00",
    "",
    "%FF",
    "c1",
    "c1",
    "a/+",
    "never",
    "%24share/g/a",
    "9" * 30,
]
HEADERS = [
    "Saps-Qos: 1",
    "Saps-Retain: true",
    "Saps-Properties: a=b&c=d%00",
    "Saps-Expiry: 5",
    "Content-Type: text/plain",
    "Content-Type: \xff",
    "Authorization: Basic dTpw",
    "Authorization: Bearer x",
    "Authorization: Basic \xff",
    "Origin: http://evil",
    "Origin: http://[",
    "Origin: http://127.0.0.1:2",
    "Origin: null",
    "Last-Event-ID: c1/1",
    "Last-Event-ID: c1/99999999999",
    "Transfer-Encoding: chunked",
    "Content-Encoding: gzip",
    "Expect: 100-continue",
    "Connection: close",
    "Saps-Correlation: !",
    "Saps-Response-Topic: a/#",
]
METHODS = ["POST", "GET", "OPTIONS", "HEAD", "PUT", "DELETE"]
_OP = msgspec.inspect.type_info(Op)
_UPGRADE = (
    "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:2\r\n"
    "Upgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
)
SOCKETS = [
    ("/v1/socket", "saps-json"),
    ("/v1/socket", "saps-msgpack"),
    ("/v1/socket?client=c1&expiry=60", "saps-json"),
    ("/v1/socket?client=c1&expiry=60&window=1", "saps-msgpack"),
    ("/mqtt", "mqtt"),
    ("/v1/socket", "other"),
]


def framed(opcode: int, payload: bytes, *, final: bool = True) -> bytes:
    """A WebSocket frame of a client (RFC 6455, 5.2), masked with zeros."""
    size = len(payload)
    if size < 126:
        length = bytes((0x80 | size,))
    else:
        length = b"\xfe" + struct.pack("!H", size) if size <= 0xFFFF else b"\xff" + struct.pack("!Q", size)
    return bytes((final << 7 | opcode,)) + length + bytes(4) + payload


def operation(supply: Supply, binary: bool) -> bytes:
    """What a client may ask, as a frame."""
    kind = supply.byte()
    if kind % 8 == 0:
        return framed(supply.byte() % 16, supply.chunk()[:125], final=bool(supply.byte() % 4))
    value = Builder(supply, TEXTS, [b"", b"x" * 3000], {}).build(_OP)
    try:
        whole = msgspec.msgpack.encode(value) if binary else msgspec.json.encode(value)
    except (ValueError, OverflowError, UnicodeEncodeError):
        return framed(1, b"{}")
    return framed(2 if binary else 1, whole if kind % 8 > 1 else supply.chunk())


async def _scene(supply: Supply) -> None:
    server = MqttServer(Hub(), LIMITS, sys_interval=0)
    await server.start("127.0.0.1", 0)
    site = web_server(server)
    clients = add_topics(site, server)
    add_document(site)
    await site._runner.setup()
    try:
        await _visits(supply, server, lambda: Visit(site._connection))
        honest = Visit(site._connection)
        answers = await honest.say(b"POST /v1/topics/a HTTP/1.1\r\nHost: 127.0.0.1:2\r\nContent-Length: 1\r\n\r\nx")
        await settle()
        assert answers == [202] or server.full, answers
    finally:
        clients.close()
        await server.stop()
        await settle()


async def _visits(supply: Supply, server: MqttServer, visit_of: object) -> None:
    assert callable(visit_of)
    visits: list[tuple[Visit, bool | None]] = []
    while supply:
        action = supply.byte()
        if not visits or action % 16 == 15:
            visits = [*visits, (visit_of(), None)][-8:]
        which = action // 16 % len(visits)
        visit, socket = visits[which]
        if visit.pipe.closed:
            visits[which] = visit_of(), None
        elif socket is not None:
            await visit.say(operation(supply, socket))
        elif action % 4 == 1:
            path, protocol = supply.one(SOCKETS)
            if await visit.say(_UPGRADE.format(path=path, protocol=protocol).encode()) == [101]:
                visits[which] = visit, "msgpack" in protocol or protocol == "mqtt"
        elif action % 16 == 2:
            visit.pipe.close()
        else:
            await visit.say(request(supply, METHODS, PATHS, NAMES, VALUES, HEADERS, Supply.chunk))
        check_frontend(server.frontend)


def fuzz_web(data: bytes) -> None:
    """No request is an internal error, the limits hold, and the next visitor is served."""
    play(_scene(Supply(data)))


def seeds() -> list[bytes]:
    """Requests to every path, and each kind of WebSocket with operations."""
    asked = [
        bytes((0, path, 1, number % 3, number, number * 5 % 24, number + 1, 3, method, 1, number)) + b"\x05hello\x01"
        for path in range(12)
        for number, method in ((0, 0), (3, 1), (6, 0))
    ]
    sockets = [
        bytes((1, kind))
        + b"".join(bytes((0, 2, op)) + bytes((op * 3 + i * 5) % 120 for i in range(14)) for op in range(8))
        for kind in range(6)
    ]
    return [*asked, *sockets, b"".join(sockets)]


TARGETS = [Target("web", "a browser, or any other Web client", fuzz_web, seeds, timeout=2.0)]
