"""Tokens in headers: bytes that need not be text."""

from __future__ import annotations


def octets(header: str) -> bytes:
    """What was sent, whatever it was."""
    return header.encode("utf-8", "surrogateescape")
