"""Loads the identity that a broker's settings name."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from saps.config import BrokerSettings, SettingError
from saps.identity.credentials import CredentialError, Credentials, FileSet, from_files, from_secret, secret_in
from saps.identity.live import LinkIdentity
from saps.identity.names import Identity

logger = logging.getLogger(__name__)


def link_identity(settings: BrokerSettings) -> LinkIdentity:
    """Load the identity of a broker that uses TLS links (`saps.identity.plain.sealed`). Raises `SettingError`."""
    links, me = settings.links, Identity(settings.cluster, settings.name)
    try:
        if links.secret_file:
            return _by_secret(links.secret_file, me, links.tls.grace)
        tls = links.tls
        files = FileSet(tls.certificate, tls.key, tls.authority, tls.revoked)
        return LinkIdentity(lambda: from_files(files), files.paths, me, tls.grace)
    except CredentialError as error:
        setting = "links.secret_file" if error.which == "secret" else f"links.tls.{error.which}"
        raise SettingError(setting, error.reason) from None


def _by_secret(file: str, me: Identity, grace: float) -> LinkIdentity:
    authority = secret_in(file)
    if Path(file).stat().st_mode & 0o077:
        logger.warning("links.secret_file: %s can be read by others than its owner: chmod 600", file)

    def load() -> Credentials:
        return from_secret(authority, me, time.time())

    return LinkIdentity(load, (), me, grace, renews=True)
