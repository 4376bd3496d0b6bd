"""Whoever connects: what a load balancer says, tokens and their keys, proofs by SCRAM, answers of a service (target
``logins``)."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address

from saps.frontend.mqtt.access.logins.scram import Exchange, ScramError
from saps.frontend.mqtt.access.logins.service import read_answer
from saps.frontend.mqtt.access.logins.tokens import Keys, Token, TokenError, Tokens
from saps.frontend.mqtt.access.options import JwtOptions
from saps.frontend.mqtt.access.proxy_header import SIGNATURE, ProxyError, binary_header, text_header
from saps.frontend.mqtt.access.users import ScramKeys
from tests.fuzzing.target import Target

# fixed, so that an input means the same in each run
_SECRET = "YSBzZWNyZXQgb2YgdGhpcnR5LXR3byBieXRlcywgYXQgbGVhc3Q"
_KEYS = json.dumps({"keys": [{"kty": "oct", "k": _SECRET, "kid": "k1"}]}).encode()
_TOKEN = (
    b"eyJhbGciOiJIUzI1NiIsImtpZCI6ImsxIn0.eyJzdWIiOiJhbm4iLCJleHAiOjIwMDAsIm1xdHQiOnsiYm90aCI6ImEvJXUifX0."
    b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)


def _proxy(data: bytes) -> None:
    for parse in (text_header, binary_header):
        try:
            found = parse(data)
        except ProxyError:
            continue
        assert found.host is None or ip_address(found.host)
        assert 0 <= found.port <= 65535


def _token(data: bytes) -> None:
    tokens = Tokens(JwtOptions(keys="k", rights_claim="mqtt"), lambda: 1000.0)
    tokens.keys = Keys(_KEYS)
    assert not isinstance(tokens.check(data), Token)  # nobody has signed it


def _keys(data: bytes) -> None:
    try:
        keys = Keys(data)
    except TokenError:
        return
    tokens = Tokens(JwtOptions(keys="k"), lambda: 1000.0)
    tokens.keys = keys
    tokens.check(_TOKEN)


def _scram(data: bytes) -> None:
    exchange = Exchange({"ann": ScramKeys(4096, bytes(16), bytes(32), bytes(32))}, b"k" * 32, "x")
    for step in data.split(b"\0"):
        try:
            exchange.step(step)
        except ScramError:
            break
    assert not exchange.done


def _answer(data: bytes) -> None:
    with suppress(ValueError):
        read_answer(200, data)


_PARSERS: list[Callable[[bytes], None]] = [_proxy, _token, _keys, _scram, _answer]


def fuzz_logins(data: bytes) -> None:
    """The first byte says which parser gets the others."""
    if data:
        _PARSERS[data[0] % len(_PARSERS)](data[1:])


def seeds() -> list[bytes]:
    """Good ones of each kind."""
    tls = bytes((3,)) + bytes(4) + b"\x22\0\3ann"
    places = bytes((192, 0, 2, 7, 10, 0, 0, 1, 0, 5, 7, 0x5B)) + b"\x20" + len(tls).to_bytes(2) + tls
    texts: list[tuple[int, bytes]] = [
        (0, b"PROXY TCP4 192.0.2.7 10.0.0.1 5 1883\r\n"),
        (0, b"PROXY TCP6 2001:db8::1 ::1 5 1883\r\n"),
        (0, b"PROXY UNKNOWN\r\n"),
        (0, SIGNATURE + b"\x21\x11" + len(places).to_bytes(2) + places),
        (0, SIGNATURE + b"\x20\0\0\0"),
        (1, _TOKEN),
        (1, _TOKEN.partition(b".")[0] + b".e30."),
        (2, _KEYS),
        (2, b'{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "' + b"A" * 43 + b'", "kid": "k1", "use": "sig"}]}'),
        (2, b'{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}, {"kty": "RSA", "n": "AA", "e": "AQAB"}]}'),
        (3, b"n,,n=ann,r=1\0c=biws,r=1x,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
        (3, b"y,,n=a=2Cb,r=1\0c=eSws,r=1x,p=AA=="),
        (4, b'{"allow": true, "user": "ann", "expires": 60, "rights": {"publish": "a/%u", "subscribe": ["#"]}}'),
        (4, b'{"allow": false}'),
    ]
    return [bytes((kind,)) + text for kind, text in texts]


TARGETS = [Target("logins", "whoever connects: headers, tokens, proofs; a service", fuzz_logins, seeds)]
