"""The settings of the links between brokers: their authentication and protocol version (``[links]``)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from saps.config.knobs import SettingError, knob
from saps.overlay.frames.framing import LOWEST_VERSION, VERSION


class LinkTlsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Mutual TLS with certificates (``[links.tls]``)."""

    certificate: Annotated[
        str,
        knob(
            "File (PEM) with this broker's certificate and key (`saps ca issue`). All files here are read again "
            "when they change"
        ),
    ] = ""
    key: Annotated[str, knob("File (PEM) with the private key; none: it is in the file of the certificate")] = ""
    authority: Annotated[
        str, knob("File (PEM) with the certificates of the authorities that vouch for brokers; needed for TLS")
    ] = ""
    revoked: Annotated[
        str, knob("File (PEM) with the authorities' revocation lists; none: nothing is revoked, certificates only end")
    ] = ""
    grace: Annotated[
        float,
        knob(
            "How long a link outlives its maker's certificate; clocks may differ by as much",
            unit="s",
            cost="a broker that is not renewed stays that much longer",
            ge=0,
            le=86400,
        ),
    ] = 60.0


class LinkSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The authentication of brokers, and the version of their protocol (``[links]``)."""

    tls: LinkTlsSettings = LinkTlsSettings()
    secret_file: Annotated[
        str,
        knob("Instead of certificates: file with the mesh's secret (`saps ca secret`). Any holder can be any broker"),
    ] = ""
    plain: Annotated[
        bool,
        knob(
            "Links without TLS also beyond loopback: whoever reaches overlay.listen can be a broker, read and"
            " change everything"
        ),
    ] = False
    highest_version: Annotated[
        int,
        knob(
            "Highest version of the protocol between brokers; the old one while a mesh is upgraded",
            unit="version",
            cost="brokers that do not speak it are spoken to in an older one",
            ge=LOWEST_VERSION,
            le=VERSION,
        ),
    ] = VERSION


def links_fault(links: LinkSettings) -> SettingError | None:
    """Return the first fault of these settings that are valid alone but cannot be used together, or None."""
    sealed = links.tls.certificate or links.secret_file
    if links.tls.certificate and not links.tls.authority:
        return SettingError("links.tls.certificate", "needs links.tls.authority to verify other brokers")
    if not links.tls.certificate and (links.tls.authority or links.tls.key or links.tls.revoked):
        return SettingError("links.tls.authority", "needs links.tls.certificate")
    if links.tls.certificate and links.secret_file:
        return SettingError("links.secret_file", "cannot be used beside links.tls.certificate")
    if links.plain and sealed:
        return SettingError("links.plain", "cannot be used beside links.tls.certificate or links.secret_file")
    return None
