"""The directory of an authority: its certificate and key, a register of issued certificates, and a revocation list.

| file | what it is | who needs it |
| --- | --- | --- |
| ``authority.pem`` | its certificate | each broker |
| ``authority.key`` | its private key: its owner can pose as any broker | nobody: keep it away from the brokers |
| ``revoked.pem`` | the revocation list | each broker |
| ``register.jsonl`` | one line for each certificate | nobody |
| ``issued/NAME.pem`` | a broker's certificate and key | that broker alone |
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from saps.identity.certificates import (
    SKEW,
    Authority,
    CertificateError,
    Issued,
    issue,
    issue_plain,
    key_pem,
    make_authority,
    make_list,
    new_key,
    read_certificates,
    read_lists,
)
from saps.identity.names import Identity
from saps.runtime.atomic_file import sync_directory


class FolderError(Exception):
    """The directory holds no authority, or cannot do what was asked; the text says why."""


class Entry(msgspec.Struct, kw_only=True):
    """A certificate in the register."""

    serial: str
    """Hexadecimal."""
    broker: str
    """The broker's name, or that of an MQTT server or client."""
    cluster: str
    """The broker's cluster; ``(server)`` or ``(client)`` for a certificate for MQTT over TLS."""
    begins: float
    ends: float
    revoked: float | None = None
    """The time of its revocation, or None."""


class Folder:
    """An authority kept in a directory. Changes hold a lock, so that two commands cannot interfere."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.certificate = directory / "authority.pem"
        self.key = directory / "authority.key"
        self.revoked = directory / "revoked.pem"
        self.register = directory / "register.jsonl"

    def create(self, name: str, ends: float, now: float) -> None:
        """Create an authority valid until `ends` in an empty or missing directory. Raises `FolderError`, `OSError`."""
        if self.certificate.exists() or self.key.exists():
            raise FolderError(f"{self.directory} holds an authority already")
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = make_authority(name, new_key(), now - SKEW, ends)
        with self._alone():
            write(self.key, key_pem(authority.key), secret=True)
            write(self.register, b"")
            write(self.revoked, make_list(authority, (), 1, now))
            write(self.certificate, authority.pem)

    def issue(
        self, identity: Identity, ends: float, now: float, hosts: Sequence[str] = (), to: Path | None = None
    ) -> Path:
        """Issue a broker's certificate and write it, with its key, to `to` or ``issued/NAME.pem`` in one step.

        Returns the file. Raises `FolderError`, `OSError`, `ValueError`."""
        file = to or self.directory / "issued" / f"{identity.broker}.pem"
        entry = Entry(serial="", broker=identity.broker, cluster=identity.cluster, begins=now, ends=ends)
        return self._issue(file, entry, lambda authority: issue(authority, identity, now - SKEW, ends, hosts))

    def issue_plain(
        self, name: str, ends: float, now: float, hosts: Sequence[str] | None = None, to: Path | None = None
    ) -> Path:
        """Issue a certificate for MQTT over TLS: for a server with these `hosts`, in ``issued/NAME.server.pem``, or, if
        `hosts` is None, for a client, in ``issued/NAME.client.pem``. Returns and raises as `issue`."""
        kind = "client" if hosts is None else "server"
        file = to or self.directory / "issued" / f"{name}.{kind}.pem"
        entry = Entry(serial="", broker=name, cluster=f"({kind})", begins=now, ends=ends)
        return self._issue(file, entry, lambda authority: issue_plain(authority, name, now - SKEW, ends, hosts))

    def _issue(self, file: Path, entry: Entry, make: Callable[[Authority], Issued]) -> Path:
        with self._alone():
            authority = self._authority()
            if entry.ends > authority.certificate.not_valid_after_utc.timestamp():
                raise FolderError(f"the certificate would outlive the authority ({self.certificate})")
            issued = make(authority)
            entry.serial = f"{issued.certificate.serial_number:x}"
            self._write_entries([*self.entries(), entry])
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write(file, issued.pem, secret=True)
        return file

    def revoke(self, broker: str | None, serial: str | None, now: float) -> list[Entry]:
        """Revoke all valid certificates of a broker, or the one with this serial number (hexadecimal).

        Returns the entries that were revoked now. Raises `FolderError`, `OSError`."""
        with self._alone():
            authority, entries = self._authority(), self.entries()
            wanted = [
                entry
                for entry in entries
                if (entry.serial == serial or (entry.broker == broker and entry.ends > now)) and entry.revoked is None
            ]
            for entry in wanted:
                entry.revoked = now
            self._write_entries(entries)
            gone = [(int(entry.serial, 16), entry.revoked) for entry in entries if entry.revoked is not None]
            write(self.revoked, make_list(authority, gone, self._number(authority) + 1, now))
        return wanted

    def entries(self) -> list[Entry]:
        """Read the register, oldest entry first. Raises `FolderError`, `OSError`."""
        try:
            return msgspec.json.Decoder(Entry).decode_lines(self.register.read_bytes())
        except FileNotFoundError:
            raise FolderError(
                f"{self.directory} holds no authority: `saps ca init {self.directory}` makes one"
            ) from None
        except msgspec.MsgspecError as error:
            raise FolderError(f"{self.register}: {error}") from None

    def _write_entries(self, entries: Sequence[Entry]) -> None:
        write(self.register, msgspec.json.Encoder().encode_lines(entries))

    def _authority(self) -> Authority:
        try:
            certificate = read_certificates(self.certificate.read_bytes())[0]
            key = serialization.load_pem_private_key(self.key.read_bytes(), None)
        except FileNotFoundError:
            raise FolderError(
                f"{self.directory} holds no authority: `saps ca init {self.directory}` makes one"
            ) from None
        except (TypeError, ValueError) as error:
            raise FolderError(f"{self.key}: {error}") from None
        assert isinstance(key, ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey)
        return Authority(certificate, key)

    def _number(self, authority: Authority) -> int:
        try:
            return max(read_lists(self.revoked.read_bytes(), [authority.certificate]).numbers.values())
        except CertificateError as error:
            raise FolderError(f"{self.revoked}: {error}") from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the directory's lock: one change at a time."""
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def write(file: Path, content: bytes, *, secret: bool = False) -> None:
    """Replace a file in one step. A `secret` file has mode 0600 from the beginning. Raises `OSError`."""
    partial = file.with_name(f".{file.name}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with open(descriptor, "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(file)
    sync_directory(file.parent)
