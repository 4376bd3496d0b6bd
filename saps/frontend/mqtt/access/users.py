"""Reads and writes the password file: a line ``user:hash`` for each user, with comments and empty lines.

The file knows three kinds of hashes:

1. A PHC string of scrypt (RFC 7914), ``$scrypt$ln=14,r=8,p=1$salt$digest`` in unpadded base64; N is 2 to the power of
   ln.
2. PBKDF2 with HMAC-SHA-512, ``$7$iterations$salt$digest``, as `mosquitto_passwd` writes it.
3. The keys of SCRAM (RFC 5803), ``SCRAM-SHA-256$iterations:salt$stored key:server key``, as PostgreSQL writes them.
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
"""Bytes of the salt of new hashes."""
MAX_NAME_BYTES = 256
"""Longest user name, in bytes of UTF-8."""
_LN, _R, _P = 14, 8, 1
"""Cost of new scrypt hashes: 16 MiB of memory, and about 50 ms on one core of a small server. Each increment of ln
doubles both."""
_MAX_MEMORY = 1 << 28
"""Most memory of one check in bytes (scrypt: 128 N r)."""
_MAX_WORK = 1 << 24
"""Largest N r p of scrypt, about 100 times the cost of new hashes."""
_MAX_ITERATIONS = 10_000_000
_DIGEST_BYTES = 32
ITERATIONS = 15_000
"""Iterations of new SCRAM keys. The client computes them at each login (some 10 ms), and an attacker with the file for
each guess."""
_LEAST_ITERATIONS = 4096
"""Fewest iterations of accepted SCRAM keys (RFC 7677, section 4)."""
_LEAST_SALT = 12
"""Shortest salt of accepted SCRAM keys, in bytes."""
_SCRYPT = re.compile(r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,4}),p=(\d{1,4})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)")
_SCRAM = re.compile(r"SCRAM-SHA-256\$(\d{1,9}):([A-Za-z0-9+/]+={0,2})\$([A-Za-z0-9+/]+={0,2}):([A-Za-z0-9+/]+={0,2})")
_PBKDF2 = re.compile(r"\$7\$(\d{1,9})\$([A-Za-z0-9+/]+={0,2})\$([A-Za-z0-9+/]+={0,2})")


class Scrypt(NamedTuple):
    """A stored password: its scrypt hash. N is 2 to the power of `ln`."""

    ln: int
    r: int
    p: int
    salt: bytes
    digest: bytes

    def matches(self, password: bytes) -> bool:
        """Return whether the password is correct.

        The check takes up to `_MAX_MEMORY` bytes and 50 ms or more: never call it in the event loop.
        """
        digest = _scrypt(password, self.salt, self.ln, self.r, self.p, len(self.digest))
        return hmac.compare_digest(digest, self.digest)

    def __str__(self) -> str:
        return f"$scrypt$ln={self.ln},r={self.r},p={self.p}${_unpadded(self.salt)}${_unpadded(self.digest)}"


class Pbkdf2(NamedTuple):
    """A stored password: its hash by `mosquitto_passwd`, PBKDF2 with HMAC-SHA-512."""

    iterations: int
    salt: bytes
    digest: bytes

    def matches(self, password: bytes) -> bool:
        """Return whether the password is correct. The check is slow: never call it in the event loop."""
        digest = hashlib.pbkdf2_hmac("sha512", password, self.salt, self.iterations, len(self.digest))
        return hmac.compare_digest(digest, self.digest)

    def __str__(self) -> str:
        return f"$7${self.iterations}${b64encode(self.salt).decode()}${b64encode(self.digest).decode()}"


class ScramKeys(NamedTuple):
    """A stored password: its keys for SCRAM-SHA-256 (RFC 5802, section 3).

    The client may prove the password (`saps.frontend.mqtt.access.logins.scram`), or send it.
    """

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def matches(self, password: bytes) -> bool:
        """Return whether the password is correct. The check is slow: never call it in the event loop."""
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
"""By user name: the stored password."""


def hash_password(password: bytes, salt: bytes) -> Scrypt:
    """Return the scrypt hash of a new password. `salt`: `SALT_BYTES` random bytes."""
    return Scrypt(_LN, _R, _P, salt, _scrypt(password, salt, _LN, _R, _P, _DIGEST_BYTES))


def scram_keys(password: bytes, salt: bytes, iterations: int = ITERATIONS) -> ScramKeys:
    """Return the SCRAM keys of a password. `salt`: `SALT_BYTES` random bytes for a new password.

    Raises `ValueError` if the password is not UTF-8, or has characters that RFC 4013 forbids.
    """
    from scramp import ScramException, ScramMechanism  # here: most brokers do not use it

    try:
        salt, stored, server, count = ScramMechanism().make_auth_info(password.decode(), iterations, salt)
    except ScramException as error:
        raise ValueError(str(error)) from None
    return ScramKeys(count, salt, stored, server)


NOBODY = Scrypt(_LN, _R, _P, bytes(SALT_BYTES), bytes(_DIGEST_BYTES))
"""The stored password for unknown users. The check against it makes their logins take as long as other logins."""


def parse_users(text: str) -> Users:
    """Return the users of a password file. Raises `FileError` with all faults of the text."""
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
    """Return the text of a password file with the user's line changed or added, or removed if `stored` is None.

    All other lines stay unchanged. Neither the text nor the name may have a fault (`parse_users`, `user_name_fault`).
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
    """Return why the name is no valid user name, or None if it is valid."""
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
    """Parse a stored password. Raises `ValueError`; its reason never repeats the text, which may be a password."""
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
    """Split the text at LF and CR LF only; `str.splitlines` would split at other characters, too."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if not lines[-1] else lines


def _is_entry(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")
