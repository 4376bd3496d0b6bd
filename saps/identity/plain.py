"""Links without an identity: where they are let pass, and what the log says of them."""

from __future__ import annotations

import logging

from saps.config import BrokerSettings, SettingError
from saps.frontend.mqtt.access.origin import is_loopback

logger = logging.getLogger(__name__)


def sealed(settings: BrokerSettings) -> bool:
    """True if the links are to be sealed. Raises `SettingError` if nothing is said, and it must be."""
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
    """Links are not sealed: the log says what that means."""
    listen = settings.overlay.listen
    if is_loopback(listen.host):
        logger.info("links to other brokers are plain, on loopback only: see links.tls and links.secret_file")
    else:
        logger.warning("links to other brokers are plain: whoever reaches %s can be a broker of this mesh", listen)
