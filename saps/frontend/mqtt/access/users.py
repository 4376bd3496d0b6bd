"""The password file: a line ``user:hash`` for each user, comments and empty lines between them.

The hash is a PHC string of scrypt (RFC 7914), ``$scrypt$ln=14,r=8,p=1$salt$digest`` in unpadded base64, where N is
2 to the power of ln. Files of `mosquitto_passwd` are read too: PBKDF2 with HMAC-SHA-512, ``$7$iterations$salt$digest``.
Users of SCRAM have its keys (RFC 5803), as PostgreSQL writes them:
``SCRAM-SHA-256$iterations:salt$stored key:server key``.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from typing import NamedTuple

from saps.frontend.mqtt.access.faults import Fault, FileError

SALT_BYTES = 16
MAX_NAME_BYTES = 256
"""Longest user name, in UTF-8."""
_LN, _R, _P = 14, 8, 1
"""The cost of new hashes: 16 MiB of memory; about 50 ms on one core of a small server. Raising ln by 1 doubles both."""
_MAX_MEMORY = 1 << 28
"""Bytes one check may take (scrypt: 128 N r)."""
_MAX_WORK = 1 << 24
"""N r p of scrypt, at most: about 100 times the cost of new hashes would be 2 to the power of 24."""
_MAX_ITERATIONS = 10_000_000
_DIGEST_BYTES = 32
ITERATIONS = 15_000
"""Of new SCRAM keys: what the client computes at each login, some 10 ms, and what a guess costs who has the file."""
_LEAST_ITERATIONS = 4096
"""RFC 7677, section 4."""
_LEAST_SALT = 12
_SCRYPT = re.compile(r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,4}),p=(\d{1,4})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)")
_SCRAM = re.compile(r"SCRAM-SHA-256\$(\d{1,9}):([A-Za-z0-9+/]+={0,2})\$([A-Za-z0-9+/]+={0,2}):([A-Za-z0-9+/]+={0,2})")
_PBKDF2 = re.compile(r"\$7\$(\d{1,9})\$([A-Za-z0-9+/]+={0,2})\$([A-Za-z0-9+/]+={0,2})")


class Scrypt(NamedTuple):
    """A password as scrypt keeps it."""

    ln: int
    r: int
    p: int
    salt: bytes
    digest: bytes

    def matches(self, password: bytes) -> bool:
        """Is this the password? Takes `_MAX_MEMORY` bytes at most, and long: not for the event loop."""
        digest = _scrypt(password, self.salt, self.ln, self.r, self.p, len(self.digest))
        return hmac.compare_digest(digest, self.digest)

    def __str__(self) -> str:
        return f"$scrypt$ln={self.ln},r={self.r},p={self.p}${_unpadded(self.salt)}${_unpadded(self.digest)}"


class Pbkdf2(NamedTuple):
    """A password as `mosquitto_passwd` keeps it."""

    iterations: int
    salt: bytes
    digest: bytes

    def matches(self, password: bytes) -> bool:
        """Is this the password?"""
        digest = hashlib.pbkdf2_hmac("sha512", password, self.salt, self.iterations, len(self.digest))
        return hmac.compare_digest(digest, self.digest)

    def __str__(self) -> str:
        return f"$7${self.iterations}${b64encode(self.salt).decode()}${b64encode(self.digest).decode()}"


class ScramKeys(NamedTuple):
    """A password as SCRAM-SHA-256 keeps it (RFC 5802, section 3): for clients that prove it, and for those that send
    it."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def matches(self, password: bytes) -> bool:
        """Is this the password?"""
        try:
            found = scram_keys(password, self.salt, self.iterations)
        except ValueError:
            return False
        return hmac.compare_digest(found.stored_key, self.stored_key)

    def __str__(self) -> str:
        salt, stored, server = (b64encode(part).decode() for part in self[1:])
        return f"SCRAM-SHA-256${self.iterations}:{salt}${stored}:{server}"


Stored = Scrypt | Pbkdf2 | ScramKeys
Users = dict[str, Stored]
"""The stored passwords by user name."""


def hash_password(password: bytes, salt: bytes) -> Scrypt:
    """What to store for a password, at the cost of new hashes. `salt`: `SALT_BYTES` random bytes."""
    return Scrypt(_LN, _R, _P, salt, _scrypt(password, salt, _LN, _R, _P, _DIGEST_BYTES))


def scram_keys(password: bytes, salt: bytes, iterations: int = ITERATIONS) -> ScramKeys:
    """What to store for a password of SCRAM. `salt`: `SALT_BYTES` random bytes. Raises `ValueError` for one that is no
    text, or has characters that cannot stand in a password (RFC 4013)."""
    from scramp import ScramException, ScramMechanism  # here: most brokers need none of it

    try:
        salt, stored, server, count = ScramMechanism().make_auth_info(password.decode(), iterations, salt)
    except ScramException as error:
        raise ValueError(str(error)) from None
    return ScramKeys(count, salt, stored, server)


NOBODY = Scrypt(_LN, _R, _P, bytes(SALT_BYTES), bytes(_DIGEST_BYTES))
"""The password of users that do not exist. It is checked for them, so that they take as long as others."""


def parse_users(text: str) -> Users:
    """The users of a password file. Raises `FileError` with all that is wrong."""
    users: Users = {}
    lines: dict[str, int] = {}
    faults = []
    for number, line in enumerate(_lines(text), 1):
        if _is_entry(line):
            name, _, stored = line.partition(":")
            try:
                users[name] = _entry(name, stored, lines.get(name))
                lines[name] = number
            except ValueError as error:
                faults.append(Fault(number, str(error)))
    if faults:
        raise FileError(faults)
    return users


def with_user(text: str, name: str, stored: Stored | None) -> str:
    """The text of a password file with the user's line changed or added, or taken out for None.

    All other lines stay as they are. The text must have no fault, nor the name.
    """
    kept, line, found = [], f"{name}:{stored}", False
    for old in _lines(text):
        if not _is_entry(old) or old.partition(":")[0] != name:
            kept.append(old)
        elif stored is not None:
            kept.append(line)
            found = True
    if stored is not None and not found:
        kept.append(line)
    return "".join([line + "\n" for line in kept])


def user_name_fault(name: str) -> str | None:
    """Why nobody can have this name, or None."""
    if not name:
        return "a user name must have at least one character"
    if len(name.encode(errors="surrogatepass")) > MAX_NAME_BYTES:
        return f"a user name must be at most {MAX_NAME_BYTES} bytes long"
    if not name.isprintable() or name != name.strip():
        return f"the user name {name!r} must be of printable characters, and not begin or end with a space"
    if ":" in name or name.startswith("#"):
        return f"the user name {name!r} must not have a colon, nor begin with #"
    return None


def _entry(name: str, stored: str, earlier: int | None) -> Stored:
    if (fault := user_name_fault(name)) is not None:
        raise ValueError(fault)
    if earlier is not None:
        raise ValueError(f"the user {name!r} is in line {earlier} already")
    return _stored(stored)


def _stored(text: str) -> Stored:
    """Raises ValueError; the reason never repeats the text, which may be a password."""
    if (found := _SCRYPT.fullmatch(text)) is not None:
        ln, r, p = (int(group) for group in found.groups()[:3])
        if not 1 <= ln <= 24 or not r or not p or (128 << ln) * r > _MAX_MEMORY or (r * p) << ln > _MAX_WORK:
            raise ValueError(f"ln={ln},r={r},p={p} costs more than this broker accepts")
        return Scrypt(ln, r, p, _decoded(found[4] + "=" * (-len(found[4]) % 4)), _digest(found[5]))
    if (found := _PBKDF2.fullmatch(text)) is not None:
        iterations = int(found[1])
        if not 1 <= iterations <= _MAX_ITERATIONS:
            raise ValueError(f"{iterations} iterations cost more than this broker accepts")
        return Pbkdf2(iterations, _decoded(found[2]), _digest(found[3]))
    if (found := _SCRAM.fullmatch(text)) is not None:
        iterations, salt = int(found[1]), _decoded(found[2])
        if not _LEAST_ITERATIONS <= iterations <= _MAX_ITERATIONS or len(salt) < _LEAST_SALT:
            raise ValueError(f"SCRAM with {iterations} iterations and {len(salt)} bytes of salt is not accepted")
        stored, server = _decoded(found[3]), _decoded(found[4])
        if len(stored) != _DIGEST_BYTES or len(server) != _DIGEST_BYTES:
            raise ValueError("keys of SCRAM-SHA-256 have 32 bytes")
        return ScramKeys(iterations, salt, stored, server)
    raise ValueError("not a password hash of a known kind: write the line with 'saps passwd'")


def _digest(text: str) -> bytes:
    digest = _decoded(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))
    if not 16 <= len(digest) <= 64:
        raise ValueError(f"a digest of {len(digest)} bytes; 16 to 64 are expected")
    return digest


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("salt or digest is not base64") from None


def _unpadded(data: bytes) -> str:
    return b64encode(data).decode().rstrip("=")


def _scrypt(password: bytes, salt: bytes, ln: int, r: int, p: int, size: int) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=1 << ln, r=r, p=p, dklen=size, maxmem=2 * _MAX_MEMORY)


def _lines(text: str) -> list[str]:
    """Lines end with LF or CR LF; other characters that `str.splitlines` splits at do not end one."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if not lines[-1] else lines


def _is_entry(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")
