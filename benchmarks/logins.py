"""What a login costs a broker: ``python -m benchmarks.logins``.

Each kind of login goes through the machine of a connection, from the bytes of CONNECT to those of CONNACK, without
sockets: first one that the broker does not know yet, then the same again and again. Printed are microseconds of the
processor, the best of the rounds; the exit status is 1 if one that is known takes 200 or more.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable
from random import Random

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from saps.frontend.mqtt.access.acl_file import parse_acl
from saps.frontend.mqtt.access.guard import Access, Guard, Origin
from saps.frontend.mqtt.access.guarded import GuardedAuthorizer
from saps.frontend.mqtt.access.logins.service import Answer, Service
from saps.frontend.mqtt.access.logins.tokens import Keys, Tokens
from saps.frontend.mqtt.access.options import HttpOptions, JwtOptions
from saps.frontend.mqtt.access.users import Scrypt, Stored
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, Connect
from saps.frontend.mqtt.connection.connection import Connection
from saps.frontend.mqtt.connection.output import NOWHERE
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.limits import Limits
from saps.routing.hub import Hub

GOAL = 200.0
"""Microseconds of a login that is known."""
ROUNDS, LOGINS = 5, 400
ACL = '[[rule]]\nallow = "both"\nusers = "*"\ntopics = "air/%u/#"\n'
RIGHTS = {"publish": "air/%u/#", "subscribe": ["alarm/#", "own/%c"]}
ORIGIN = Origin("192.0.2.7")


class InTurn:
    """Checks passwords in this thread, when CONNECT has been handled."""

    def __init__(self, later: list[Callable[[], None]]) -> None:
        self._later = later

    def check(
        self, stored: Stored, password: bytes, host: str, wanted: Callable[[], bool], done: Callable[[bool], None]
    ) -> bool:
        self._later.append(lambda: done(stored.matches(password)))
        return True


class Broker:
    """The machine of a broker that knows users by every kind of login."""

    def __init__(self) -> None:
        self.hub = Hub()
        self.frontend = Frontend(self.hub, Limits(), time.monotonic, Random(1))
        self.rsa = rsa.generate_private_key(65537, 2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        salt = b"salt"
        digest = hashlib.scrypt(b"secret", salt=salt, n=1 << 14, r=8, p=1, dklen=32)
        access = Access({"ann": Scrypt(14, 8, 1, salt, digest)}, parse_acl(ACL))
        self._later: list[Callable[[], None]] = []
        self.guard = Guard(access, InTurn(self._later), b"k" * 32, "never", time.monotonic, time.time)
        self.guard.tokens = Tokens(JwtOptions(keys="k", rights_claim="mqtt"), time.time)
        public = {"rsa": RSAAlgorithm.to_jwk(self.rsa.public_key(), as_dict=True)}
        public["ec"] = ECAlgorithm.to_jwk(self.ec.public_key(), as_dict=True)
        keys = [{**key, "kid": name} for name, key in public.items()]
        self.guard.tokens.keys = Keys(json.dumps({"keys": keys}).encode())
        self.guard.service = Service(HttpOptions(login="https://localhost/"), b"s" * 32, time.time)
        self.guard.service.ask = self._answer

    def _answer(self, url: str, body: bytes, host: str, done: Callable[[Answer | None], None]) -> bool:
        self._later.append(lambda: done(Answer(allow=True)))
        return True

    def token(self, kind: str, number: int) -> bytes:
        claims = {"sub": "device", "exp": time.time() + 3600, "mqtt": RIGHTS, "jti": str(number)}
        key, algorithm = (self.rsa, "RS256") if kind == "rsa" else (self.ec, "ES256")
        return jwt.encode(claims, key, algorithm, {"kid": kind}).encode()

    def login(self, packet: bytes) -> None:
        """One connection, which is let in and lost. Raises `RuntimeError` if it is refused."""
        connection = Connection(self.frontend, NOWHERE, "192.0.2.7:5", GuardedAuthorizer(self.guard, ORIGIN))
        connection.receive(packet)
        while self._later:
            self._later.pop()()
        if connection.session is None:
            raise RuntimeError(f"refused: {connection.output.take()!r}")
        connection.lost()
        self.frontend.turn.flush()


def connect(number: int, user: str | None, password: bytes) -> bytes:
    return encode(Connect(f"c{number}", username=user, password=password), V5)


def measured(broker: Broker, packets: list[bytes]) -> float:
    """Microseconds of the processor for each."""
    began = time.process_time()
    for packet in packets:
        broker.login(packet)
    return (time.process_time() - began) / len(packets) * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often (%(default)s)")
    rounds = max(1, parser.parse_args().rounds)
    broker = Broker()
    kinds: dict[str, tuple[str | None, Callable[[int], bytes]]] = {
        "password (scrypt)": ("ann", lambda number: b"secret"),
        "token (RS256)": (None, lambda number: broker.token("rsa", number)),
        "token (ES256)": (None, lambda number: broker.token("ec", number)),
        "HTTP service, without the service": ("bob", lambda number: b"word %d" % number),
    }
    worst = 0.0
    print(f"{'login':34}{'the first time, us':>20}{'known, us':>12}")
    for name, (user, password) in kinds.items():
        fresh = [connect(number, user, password(number)) for number in range(50)]
        first = measured(broker, fresh[:1] if user == "ann" else fresh)
        known = min(measured(broker, fresh[:1] * LOGINS) for _ in range(rounds))
        worst = max(worst, known)
        print(f"{name:34}{first:20.0f}{known:12.0f}")
    return int(worst >= GOAL)


if __name__ == "__main__":
    sys.exit(main())
