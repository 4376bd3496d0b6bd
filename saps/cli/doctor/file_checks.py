"""Checks the files that a broker's settings name. Each is read as the broker reads it; certificates must be valid."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from saps.cli.doctor.findings import Finding, fault, good, warning
from saps.config import BrokerSettings, SettingError
from saps.config.sources_io import token
from saps.frontend.mqtt.driver.access_files import AccessError, read_files
from saps.identity.plain import sealed
from saps.storage.damage import StorageError
from saps.storage.place import Server

SOON = 7 * 86400.0
"""Seconds before a certificate's end from which it gets a warning. For a validity of less than four times as long, the
last quarter of the validity counts, as in brokers (`saps.identity.live`)."""
READABLE = "make it, or name another file; the broker's user must be able to read it"
MEND = "mend that line, or name another file"
UNNAMED = "unnamed"
"""Stand-in for a broker's name that is given only by ``--name``."""

Read = Callable[[BrokerSettings], object]


def files(settings: BrokerSettings) -> Iterator[Finding]:
    """Check whether each file can be used. Yields a finding for each fault, or one that all files can be used."""
    found = [*_access(settings)]
    for read in (_links, _policy, _tokens, _upstream, _database):
        try:
            read(settings)
        except SettingError as error:
            found.append(unusable(error.setting, error.message))
    found += _extras(settings)
    yield from found or [good("files", "all that are named can be used")]


def certificates(settings: BrokerSettings) -> Iterator[Finding]:
    """Check whether each certificate is valid, and until when. Unreadable files are left to `files`."""
    links, tls, upstream = settings.links.tls, settings.tls, settings.upstream
    named = {
        "links.tls.certificate": links.certificate,
        "links.tls.authority": links.authority,
        "tls.certificate": tls.certificate if settings.tls_options() else "",
        "tls.client_ca": tls.client_ca if settings.tls_options() else "",
        "auth.http.ca_file": settings.auth.http.ca_file,
        "auth.jwt.ca_file": settings.auth.jwt.ca_file,
        "upstream.ca_file": upstream.ca_file,
        "upstream.certificate_file": upstream.certificate_file,
    }
    for setting, file in named.items():
        if file:
            yield from _holds(setting, Path(file))


def folders(settings: BrokerSettings) -> Iterator[Finding]:
    """Check whether this user may write in the folders where the broker keeps its files."""
    wanted = {
        "storage.file": settings.storage.file,
        "monitoring.directory": settings.monitoring.directory,
        "operations.audit": settings.operations.audit,
        "operations.bans": settings.operations.bans,
    }
    for setting, path in wanted.items():
        if not path:
            continue
        folder = Path(path).absolute()
        while not folder.is_dir():
            folder = folder.parent
        if setting != "monitoring.directory" and folder != Path(path).absolute().parent:
            yield fault(setting, f"there is no folder {Path(path).parent}", f"mkdir -p {Path(path).parent}")
        elif not os.access(folder, os.W_OK):
            yield fault(setting, f"this user may not write in {folder}", f"chown {folder} to the broker's user")
        else:
            yield good(setting, f"{folder} can be written")


def unusable(setting: str, reason: str) -> Finding:
    """Return a fault for an unreadable file, or for a wrong line if `reason` names one."""
    return fault(setting, reason, MEND if re.search(r":\d+: ", reason) else READABLE)


def _access(settings: BrokerSettings) -> Iterator[Finding]:
    try:
        read_files(settings.auth.options(), settings.tls_options())
    except AccessError as error:
        for each in error.faults:
            yield unusable(each.setting, each.reason)


def _links(settings: BrokerSettings) -> None:
    if not sealed(settings):
        return
    from saps.identity.chosen import link_identity  # here: plain links need none of it
    from saps.identity.credentials import CredentialError, FileSet, from_files

    tls = settings.links.tls
    if settings.name != UNNAMED or not tls.certificate:
        link_identity(settings)
        return
    try:
        from_files(FileSet(tls.certificate, tls.key, tls.authority, tls.revoked))
    except CredentialError as error:
        raise SettingError(f"links.tls.{error.which}", error.reason) from None


def _policy(settings: BrokerSettings) -> None:
    if settings.policy.file:
        from saps.policy.files_io import PolicyFiles

        PolicyFiles("policy.file", settings.policy.file, lambda policy: None)


def _tokens(settings: BrokerSettings) -> None:
    if settings.web.listen:
        token("web.controller_token_file", settings.web.controller_token_file)
        token("web.ofgate_token_file", settings.web.ofgate_token_file)


def _upstream(settings: BrokerSettings) -> None:
    if settings.upstream.url and find_spec("aiomqtt"):
        from saps.frontend.upstream.bridge_io import access

        access(settings.upstream, settings.name)


def _database(settings: BrokerSettings) -> None:
    password = token("storage.password_file", settings.storage.password_file)
    if settings.storage.url and find_spec("psycopg"):
        from saps.storage.driver.copying import brokers  # here: most brokers need none of it

        try:
            brokers(Server(settings.storage.url, settings.name, password))
        except StorageError as error:
            raise SettingError("storage.url", str(error)) from None


def _extras(settings: BrokerSettings) -> Iterator[Finding]:
    """Check the libraries that only some settings need."""
    needed = {
        "monitoring.directory": (settings.monitoring.directory, "pyarrow", "monitoring"),
        "monitoring.publish": (settings.monitoring.publish, "pyarrow", "monitoring"),
        "storage.url": (settings.storage.url, "psycopg", "postgresql"),
        "upstream.url": (settings.upstream.url, "aiomqtt", "upstream"),
        "tracing.endpoint": (settings.tracing.endpoint, "opentelemetry", "tracing"),
    }
    for setting, (value, module, extra) in needed.items():
        if value and find_spec(module) is None:
            yield fault(setting, f"needs {module}, which is not installed", f"pip install 'saps[{extra}]'")


def _holds(setting: str, file: Path) -> Iterator[Finding]:
    from saps.identity.certificates import CertificateError, read_certificates

    try:
        found = read_certificates(file.read_bytes())
    except (OSError, CertificateError):
        return  # `files` reports it, in the broker's words
    now = time.time()
    for certificate in found:
        begins, ends = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
        renew = "issue it again, and put it in the place of the old one (docs/security.md)"
        until = datetime.fromtimestamp(ends, UTC).strftime("%Y-%m-%d %H:%M UTC")
        if now >= ends:
            yield fault(setting, f"{file}: its end was {until}", renew)
        elif now < begins:
            since = datetime.fromtimestamp(begins, UTC).strftime("%Y-%m-%d %H:%M UTC")
            yield fault(setting, f"{file}: holds from {since} on only", "wait, or set the clock of this machine")
        elif now > ends - min(SOON, (ends - begins) / 4):
            yield warning(setting, f"{file}: ends soon, {until}", renew)
        else:
            yield good(setting, f"{file}: holds until {until}")
