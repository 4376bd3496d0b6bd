"""Checks the URLs of services for access control: HTTPS, or HTTP to the same machine, which nobody else can read."""

from __future__ import annotations

from urllib.parse import urlsplit

from saps.frontend.mqtt.access.origin import is_loopback


def is_url(text: str) -> bool:
    """Return whether the text is a URL, and not the path of a file."""
    return text.startswith(("https://", "http://"))


def url_fault(text: str) -> str | None:
    """Return why the text is no valid URL of a service, or None if it is valid or empty."""
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
    """Return why the text is no valid path or URL of a key set, or None if it may be valid."""
    return url_fault(text) if is_url(text) else None
