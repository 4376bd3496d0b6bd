"""An authority in a folder, and what brokers need of it, for tests."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

from cryptography.hazmat.primitives import serialization

from saps.config.links import LinkSettings, LinkTlsSettings
from saps.identity.certificates import Authority, Key, read_certificates
from saps.identity.folder import Folder
from saps.identity.names import Identity

HOUR = 3600.0


class Town:
    """A mesh's authority."""

    def __init__(self, directory: Path) -> None:
        self.folder = Folder(directory)
        self.folder.create("town", time.time() + 24 * HOUR, time.time())

    @property
    def authority(self) -> Authority:
        """Its certificate and key."""
        key = serialization.load_pem_private_key(self.folder.key.read_bytes(), None)
        return Authority(read_certificates(self.folder.certificate.read_bytes())[0], cast(Key, key))

    def issue(self, name: str, cluster: str = "c", seconds: float = HOUR) -> Path:
        """A certificate for a broker, from now for so many seconds (none: it has ended)."""
        now = time.time()
        hosts = ("127.0.0.1",)
        return self.folder.issue(Identity(cluster, name), now + seconds, now, hosts)

    def links(self, name: str, cluster: str = "c", seconds: float = HOUR, grace: float = 60.0) -> LinkSettings:
        """The settings of a broker with a fresh certificate."""
        return self.links_of(self.issue(name, cluster, seconds), grace)

    def links_of(self, certificate: Path, grace: float = 60.0) -> LinkSettings:
        """The settings of a broker with this certificate."""
        tls = LinkTlsSettings(
            certificate=str(certificate),
            authority=str(self.folder.certificate),
            revoked=str(self.folder.revoked),
            grace=grace,
        )
        return LinkSettings(tls=tls)
