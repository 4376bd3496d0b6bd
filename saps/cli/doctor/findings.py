"""The findings of `saps doctor`: each check yields findings, with advice for every finding that is not good."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Verdict: TypeAlias = Literal["good", "note", "warning", "fault"]
"""``note``: something optional is missing; ``warning``: it works, but not as well as it could; ``fault``: it cannot
work."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one check."""

    check: str
    verdict: Verdict
    says: str
    mend: str | None = None
    """Advice; present in every note, warning and fault."""


def good(check: str, says: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(check=check, verdict="good", says=says)


def note(check: str, says: str, mend: str) -> Finding:
    """Return a finding that something optional is missing."""
    return Finding(check=check, verdict="note", says=says, mend=mend)


def warning(check: str, says: str, mend: str) -> Finding:
    """Return a finding that something works, but not as well as it could."""
    return Finding(check=check, verdict="warning", says=says, mend=mend)


def fault(check: str, says: str, mend: str) -> Finding:
    """Return a finding that something cannot work."""
    return Finding(check=check, verdict="fault", says=says, mend=mend)
