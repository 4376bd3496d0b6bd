"""Users that prove to know their password without sending it: SCRAM-SHA-256 (RFC 5802, RFC 7677) in the AUTH packets of
MQTT 5.0 (4.12). Without channel binding."""

from __future__ import annotations

import hmac

from scramp import ScramException, ScramMechanism

from saps.frontend.mqtt.access.users import ITERATIONS, ScramKeys, Users

METHOD = "SCRAM-SHA-256"
"""The authentication method in CONNECT."""
_MECHANISM = ScramMechanism(METHOD)


class ScramError(ValueError):
    """The client has not proven anything."""


class Exchange:
    """One authentication, the server's side: `step` takes what the client sends and gives what to answer."""

    __slots__ = ("_first", "_secret", "_server", "_users", "done", "stored", "user")

    def __init__(self, users: Users, secret: bytes, nonce: str) -> None:
        """`secret`: of this process, so that users that do not exist look like others. `nonce`: printable characters
        that nobody can guess and that are used once."""
        self._users = users
        self._secret = secret
        self._server = _MECHANISM.make_server(self._keys, s_nonce=nonce)
        self._first = True
        self.user = ""
        """As whom the client comes, once it has said so; who it is, once `done`."""
        self.stored: ScramKeys | None = None
        """The keys that count; None: there is no such user."""
        self.done = False

    def step(self, data: bytes) -> bytes:
        """Raises `ScramError`, and the exchange is over."""
        try:
            if self._first:
                self._first = False
                self._server.set_client_first(data.decode())
                return str(self._server.get_server_first()).encode()
            self._server.set_client_final(data.decode())
            answer = str(self._server.get_server_final()).encode()
        except (ScramException, ValueError) as error:
            raise ScramError(str(error)) from None
        if self.stored is None:
            raise ScramError("there is no such user")
        self.done = True
        return answer

    def _keys(self, user: str) -> tuple[bytes, bytes, bytes, int]:
        self.user = user
        found = self._users.get(user)
        if isinstance(found, ScramKeys):
            self.stored = found
            return found.salt, found.stored_key, found.server_key, found.iterations
        salt, key = (hmac.digest(self._secret, kind + user.encode(), "sha256") for kind in (b"salt ", b"key "))
        return salt[:16], key, key, ITERATIONS
