"""What `saps doctor` finds: each check gives findings, each with what to do about it."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Verdict: TypeAlias = Literal["good", "note", "warning", "fault"]
"""``note``: something optional is not there; ``warning``: it works, but not as well as it could."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was looked at."""

    check: str
    verdict: Verdict
    says: str
    mend: str | None = None
    """What to do; with every warning and every fault."""


def good(check: str, says: str) -> Finding:
    """All is well."""
    return Finding(check=check, verdict="good", says=says)


def note(check: str, says: str, mend: str) -> Finding:
    """Something is not there that not everyone needs."""
    return Finding(check=check, verdict="note", says=says, mend=mend)


def warning(check: str, says: str, mend: str) -> Finding:
    """It works, but not as well as it could."""
    return Finding(check=check, verdict="warning", says=says, mend=mend)


def fault(check: str, says: str, mend: str) -> Finding:
    """It cannot work like this."""
    return Finding(check=check, verdict="fault", says=says, mend=mend)
