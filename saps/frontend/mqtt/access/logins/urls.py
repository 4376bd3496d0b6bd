"""Addresses of services that are asked about clients: only what nobody on the way can read or forge."""

from __future__ import annotations

from urllib.parse import urlsplit

from saps.frontend.mqtt.access.origin import is_loopback


def is_url(text: str) -> bool:
    """It is no path of a file."""
    return text.startswith(("https://", "http://"))


def url_fault(text: str) -> str | None:
    """Why this address of a service cannot be used, or None if it can."""
    if not is_url(text):
        return f"{text!r} is no URL: https://HOST/PATH is expected" if text else None
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"{text!r}: {error}"
    if not host:
        return f"{text!r} names no host"
    if parts.scheme == "http" and not is_loopback(host):
        return f"{text!r} must be https:// beyond this machine"
    return None


def keys_fault(text: str) -> str | None:
    """Why this can be neither a file nor an address with a key set, or None if it may."""
    return url_fault(text) if is_url(text) else None
