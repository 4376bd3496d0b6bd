"""The settings of the Web frontend and the operator's page (``[web]``)."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from saps.config.address import Address
from saps.config.knobs import knob
from saps.statistics import TOPICS


def origin_fault(origin: str) -> str | None:
    """Return why `origin` is not an origin such as ``https://example.org:8443`` or ``*``, or None if it is one."""
    parts = urlsplit(origin)
    if origin == "*" or (parts.scheme in ("http", "https") and origin == f"{parts.scheme}://{parts.netloc}"):
        return None
    return f"{origin!r} is not of the form https://example.org or http://127.0.0.1:8000"


def http_fault(url: str) -> str | None:
    """Return why `url` is not the address of an HTTP server, or None if it is one or empty."""
    parts = urlsplit(url)
    if not url or (parts.scheme in ("http", "https") and parts.hostname):
        return None
    return f"{url!r} is not of the form http://127.0.0.1:8181"


class WebSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Web port: HTTP and WebSocket (``[web]``)."""

    listen: Annotated[
        tuple[Address, ...],
        knob(
            "Where Web clients attach, and MQTT over WebSocket (/mqtt); the operator's page is at /",
            flag="--web HOST:PORT",
        ),
    ] = ()
    tls: Annotated[bool, knob("With TLS (https, wss), by the certificate of tls.certificate")] = False
    origins: Annotated[
        tuple[str, ...],
        knob(
            "Origins of pages that may attach, such as https://example.org; '*': all. The broker's own pages by "
            "IP address may always",
            check=origin_fault,
        ),
    ] = ()
    topics: Annotated[
        int,
        knob(
            "Topics counted for the operator's page; 0: none. With monitoring.directory, monitoring.topics holds",
            unit="topics",
            cost="0.4 KiB each",
            ge=0,
            le=1_000_000,
        ),
    ] = TOPICS
    controller: Annotated[
        str,
        knob(
            "Controller whose network the operator's page shows, such as http://127.0.0.1:8181",
            check=http_fault,
        ),
    ] = ""
    controller_token_file: Annotated[str, knob("File whose first line the controller wants to see")] = ""
    ofgate: Annotated[
        str,
        knob(
            "Address of OFGate's decisions API, for the page, such as http://127.0.0.1:8282",
            check=http_fault,
        ),
    ] = ""
    ofgate_token_file: Annotated[str, knob("File whose first line OFGate wants to see")] = ""
