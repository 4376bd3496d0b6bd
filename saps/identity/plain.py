"""Plain links: where they are permitted, and what the log says about them."""

from __future__ import annotations

import logging

from saps.config import BrokerSettings, SettingError
from saps.frontend.mqtt.access.origin import is_loopback

logger = logging.getLogger(__name__)


def sealed(settings: BrokerSettings) -> bool:
    """Return whether the settings ask for TLS links.

    Raises `SettingError` if they neither name credentials nor permit plain links beyond loopback."""
    links, listen = settings.links, settings.overlay.listen
    if links.tls.certificate or links.secret_file:
        return True
    if not links.plain and not is_loopback(listen.host):
        raise SettingError(
            "overlay.listen",
            f"{listen} can be reached from other machines, and anybody there could be a broker: set "
            "links.tls.certificate and links.tls.authority (saps ca), or links.secret_file (saps ca secret), or "
            "links.plain = true if you trust all of that network",
        )
    return False


def say_plain(settings: BrokerSettings) -> None:
    """Log that links are plain, and what that means."""
    listen = settings.overlay.listen
    if is_loopback(listen.host):
        logger.info("links to other brokers are plain, on loopback only: see links.tls and links.secret_file")
    else:
        logger.warning("links to other brokers are plain: whoever reaches %s can be a broker of this mesh", listen)
