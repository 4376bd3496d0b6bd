"""Authenticates users who prove that they know their password without sending it.

The method is SCRAM-SHA-256 (RFC 5802, RFC 7677) without channel binding, in the AUTH packets of MQTT 5.0 (4.12).
"""

from __future__ import annotations

import hmac

from scramp import ScramException, ScramMechanism

from saps.frontend.mqtt.access.users import ITERATIONS, ScramKeys, Users

METHOD = "SCRAM-SHA-256"
"""The authentication method in CONNECT."""
_MECHANISM = ScramMechanism(METHOD)


class ScramError(ValueError):
    """The client's proof is wrong."""


class Exchange:
    """The server's side of one authentication."""

    __slots__ = ("_first", "_secret", "_server", "_users", "done", "stored", "user")

    def __init__(self, users: Users, secret: bytes, nonce: str) -> None:
        """Begin an exchange.

        `secret` is a secret of this process; it yields salts for unknown users, so that these look like other users.
        `nonce` has unpredictable printable characters, and is used only once.
        """
        self._users = users
        self._secret = secret
        self._server = _MECHANISM.make_server(self._keys, s_nonce=nonce)
        self._first = True
        self.user = ""
        """The user that the client claims to be; empty before the first step. Proven only once `done`."""
        self.stored: ScramKeys | None = None
        """The user's stored keys; None for an unknown user."""
        self.done = False
        """Whether the client has proven its password."""

    def step(self, data: bytes) -> bytes:
        """Take the client's next message, and return the server's answer.

        Raises `ScramError` for a wrong message or proof; the caller must then end the exchange.
        """
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
