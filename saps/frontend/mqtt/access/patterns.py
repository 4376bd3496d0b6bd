"""Parses the patterns of an ACL: patterns for names, and topic filters that contain the client's own names."""

from __future__ import annotations

import re
from typing import NamedTuple

from saps.frontend.mqtt.access.filters import Levels
from saps.topics import filter_fault

_ESCAPE = re.compile(r"%(.?)", re.DOTALL)


class Subject(NamedTuple):
    """The client whose rights are decided."""

    user: str | None
    """The verified user; None for an anonymous client."""
    client_id: str | None
    """The client identifier; None for an operator, who is no MQTT client."""


class Template:
    """A text with placeholders: ``%u`` for the user, ``%c`` for the client identifier, ``%%`` for a percent sign."""

    __slots__ = ("_parts", "uses_client", "uses_user")

    def __init__(self, text: str) -> None:
        """Parse a text. Raises `ValueError` with the reason for any other use of the percent sign."""
        for escape in _ESCAPE.finditer(text):
            if escape[1] not in ("u", "c", "%"):
                raise ValueError(f"{escape[0]!r} in {text!r}: only %u (user), %c (client identifier) and %% are known")
        self._parts = tuple(re.split(r"(%.)", text))
        self.uses_user = "%u" in self._parts
        self.uses_client = "%c" in self._parts

    def fill(self, subject: Subject) -> str | None:
        """Return the text for this client, or None if the client lacks a name that the text contains."""
        if (self.uses_user and subject.user is None) or (self.uses_client and subject.client_id is None):
            return None
        values = {"%u": subject.user or "", "%c": subject.client_id or "", "%%": "%"}
        return "".join([values.get(part, part) for part in self._parts])


class NamePattern:
    """A pattern for user names or client identifiers. ``*`` matches any number of any characters."""

    __slots__ = ("_pieces", "exact")

    def __init__(self, text: str) -> None:
        """Parse a pattern. Raises `ValueError` with the reason."""
        if not text:
            raise ValueError("'' matches nobody: write a name, or a pattern such as 'ward-*'")
        self._pieces = [Template(piece) for piece in text.split("*")]
        self.exact = text if "*" not in text and "%" not in text else None
        """The only name that matches, if the text has no wildcards and placeholders; else None."""

    def fits(self, name: str, subject: Subject) -> bool:
        """Return whether the pattern matches `name`. A ``*`` in the subject's own names is not a wildcard."""
        if self.exact is not None:
            return name == self.exact
        filled = [piece.fill(subject) for piece in self._pieces]
        pieces = [piece for piece in filled if piece is not None]
        return len(pieces) == len(filled) and _glob(pieces, name)


class TopicPattern:
    """A topic filter with the placeholders ``%u`` and ``%c`` for the client's own names."""

    __slots__ = ("_levels", "_template", "uses_client", "uses_user")

    def __init__(self, text: str) -> None:
        """Parse a filter. Raises `ValueError` with the reason."""
        self._template = Template(text)
        sample = self._template.fill(Subject("u", "c")) or ""
        if (fault := filter_fault(sample)) is not None:
            raise ValueError(f"{text!r} is not a topic filter: {fault}")
        if text.startswith("$share/"):
            raise ValueError(f"{text!r}: leave out $share and the group; a filter holds for every group")
        self.uses_user, self.uses_client = self._template.uses_user, self._template.uses_client
        self._levels: Levels | None = None if self.uses_user or self.uses_client else tuple(sample.split("/"))

    def levels(self, subject: Subject) -> Levels | None:
        """Return the filter for this client, or None if the client lacks a name that the filter contains.

        The subject's names must have no `name_fault`: a wildcard or slash in them would widen the filter.
        """
        if self._levels is not None:
            return self._levels
        filled = self._template.fill(subject)
        return None if filled is None else tuple(filled.split("/"))


def name_fault(name: str) -> str | None:
    """Return why a name must not replace ``%u`` or ``%c`` in a topic filter, or None if the name is a part of one
    level."""
    if not name:
        return "is empty"
    if any(char in name for char in "+#/"):
        return "has one of the characters + # /"
    return "begins with $" if name.startswith("$") else None


def _glob(pieces: list[str], name: str) -> bool:
    """Return whether `name` consists of the pieces in this order, with any characters between them."""
    first, *others = pieces
    if not others:
        return name == first
    *inner, last = others
    if not name.startswith(first) or not name.endswith(last) or len(name) < len(first) + len(last):
        return False
    pos, end = len(first), len(name) - len(last)
    for piece in inner:
        pos = name.find(piece, pos, end)
        if pos < 0:
            return False
        pos += len(piece)
    return True
