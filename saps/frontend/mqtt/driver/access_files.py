"""Reads the files of access control from disk, and edits the password file atomically."""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from saps.frontend.mqtt.access.acl_file import parse_acl
from saps.frontend.mqtt.access.faults import Fault, FileError
from saps.frontend.mqtt.access.guard import Access
from saps.frontend.mqtt.access.logins.urls import is_url
from saps.frontend.mqtt.access.options import AuthOptions, JwtOptions, TlsOptions
from saps.frontend.mqtt.access.users import SALT_BYTES, hash_password, parse_users, scram_keys, with_user
from saps.frontend.mqtt.driver.tls import Revoked, TlsError, certificate_end, revoked_certificates, server_context

if TYPE_CHECKING:
    from saps.frontend.mqtt.access.logins.tokens import Keys

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

T = TypeVar("T")

_MODE = 0o600
"""File mode of a new password file."""


class AccessFault(NamedTuple):
    """A file that is not valid: the setting that names it, and the reason with a line for each fault."""

    setting: str
    reason: str


class AccessError(Exception):
    """Files are not valid. `faults` has all faults of all files."""

    def __init__(self, faults: list[AccessFault]) -> None:
        super().__init__(faults)
        self.faults = faults


class Files(NamedTuple):
    """The contents of all files, read at one time."""

    access: Access
    context: ssl.SSLContext | None
    """The TLS context of the listeners; None without TLS."""
    ends: float | None = None
    """Expiry of the listeners' certificate, in seconds since the epoch; None without TLS."""
    revoked: Revoked = frozenset()
    """Revoked certificates of clients."""
    keys: Keys | None = None
    """Keys of tokens; None without tokens, or if a URL has the keys."""
    service_token: str = ""
    """Bearer token for the HTTP service; empty: none."""


def read_files(auth: AuthOptions, tls: TlsOptions | None) -> Files:
    """Read all files. Blocks for some milliseconds with large files. Raises `AccessError` with all faults."""
    faults: list[AccessFault] = []
    users = _read("auth.passwords", auth.passwords, parse_users, faults)
    policy = _read("auth.acl", auth.acl, parse_acl, faults)
    keys = _keys(auth.jwt, faults)
    for setting, path in {"auth.jwt.ca_file": auth.jwt.ca_file, "auth.http.ca_file": auth.http.ca_file}.items():
        try:
            if path:
                ssl.create_default_context(cafile=path)
        except OSError as error:
            faults.append(AccessFault(setting, f"cannot use {path}: {error.strerror}"))
    token = _read("auth.http.token_file", auth.http.token_file, _first_line, faults) or ""
    context = ends = None
    revoked: Revoked = frozenset()
    if tls is not None:
        try:
            context, ends = server_context(tls), certificate_end(tls)
            revoked = revoked_certificates(tls)
        except TlsError as fault:
            faults.append(AccessFault(f"tls.{fault.option}", fault.reason))
    if faults:
        raise AccessError(faults)
    return Files(Access(users, policy), context, ends, revoked, keys, token)


def edit_users(file: Path, user: str, password: bytes | None, scram: bool = False) -> str:
    """Set a user's password in a password file, or remove the user if `password` is None.

    With `scram` the file stores the keys of SCRAM, so that the user can prove the password without sending it. The file
    is replaced atomically, and keeps its mode, owner and all other lines. Only the owner can read a new file.
    Concurrent edits wait for each other.

    Returns the change in one word. Raises `OSError`, `FileError` if the file has faults, and `ValueError` if the user
    to remove does not exist or the password is not valid for SCRAM.
    """
    file = file.resolve()  # the file behind a symbolic link is replaced, not the link
    stored = None
    if password is not None:
        stored = (scram_keys if scram else hash_password)(password, os.urandom(SALT_BYTES))
    with _locked(file.parent):
        text = _decoded(file.read_bytes()) if file.exists() else ""
        known = user in parse_users(text)
        if stored is None and not known:
            raise ValueError(f"{file} has no user {user!r}")
        _replace(file, with_user(text, user, stored))
    return "removed" if stored is None else "changed" if known else "added"


def _read(setting: str, path: str, parse: Callable[[str], T], faults: list[AccessFault]) -> T | None:
    if not path:
        return None
    try:
        data = Path(path).read_bytes()
        if setting == "auth.passwords" and os.name == "posix" and os.stat(path).st_mode & 0o004:
            logger.warning("%s can be read by every user of this machine", path)
        return parse(_decoded(data))
    except OSError as error:
        faults.append(AccessFault(setting, f"cannot read {path}: {error.strerror}"))
    except FileError as error:
        faults += [AccessFault(setting, f"{path}:{fault.line}: {fault.reason}") for fault in error.faults]
    return None


def _decoded(data: bytes) -> str:
    """Return the text of a file. Raises `FileError` if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FileError([Fault(data.count(b"\n", 0, error.start) + 1, "not UTF-8")]) from None


def _keys(options: JwtOptions, faults: list[AccessFault]) -> Keys | None:
    path = options.keys
    if not path or is_url(path):
        return None
    from saps.frontend.mqtt.access.logins.tokens import Keys, TokenError  # here: most brokers do not use it

    try:
        return Keys(Path(path).read_bytes())
    except OSError as error:
        faults.append(AccessFault("auth.jwt.keys", f"cannot read {path}: {error.strerror}"))
    except TokenError as error:
        faults.append(AccessFault("auth.jwt.keys", f"{path} {error}"))
    return None


def _first_line(text: str) -> str:
    line = text.partition("\n")[0].strip()
    if not line:
        raise FileError([Fault(1, "is empty")])
    return line


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock for edits. It locks the folder itself, so that no lock file is left behind."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        with suppress(OSError):  # not all file systems can
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(file: Path, text: str) -> None:
    """Replace the file atomically: write the text to a temporary file beside it, sync it, and rename it."""
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as new:
            if file.exists():
                status = file.stat()
                with suppress(PermissionError):  # only root may give a file away
                    os.chown(name, status.st_uid, status.st_gid)
                os.chmod(name, status.st_mode & 0o777)
            else:
                os.chmod(name, _MODE)
            new.write(text)
            new.flush()
            os.fsync(new.fileno())
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise
