"""The settings of the Web frontend: MQTT over WebSocket (``[web]``)."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from saps.config.address import Address
from saps.config.knobs import knob


def origin_fault(origin: str) -> str | None:
    """Why `origin` is not an origin such as ``https://example.org:8443``, or None if it is one (or ``*``)."""
    parts = urlsplit(origin)
    if origin == "*" or (parts.scheme in ("http", "https") and origin == f"{parts.scheme}://{parts.netloc}"):
        return None
    return f"{origin!r} is not of the form https://example.org or http://127.0.0.1:8000"


class WebSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """HTTP and WebSocket (``[web]``)."""

    listen: Annotated[
        tuple[Address, ...], knob("Where MQTT clients attach over WebSocket, at the path /mqtt, such as 127.0.0.1:8080")
    ] = ()
    tls: Annotated[bool, knob("With TLS (wss), by the certificate of tls.certificate")] = False
    origins: Annotated[
        tuple[str, ...],
        knob(
            "Origins of pages that may attach, such as https://example.org; '*': all. Pages of this broker itself may "
            "if they were asked for by an IP address or as localhost, and programs that are no browsers may always",
            check=origin_fault,
        ),
    ] = ()
