"""What a tree has saved so far beside what was predicted when it was decided: in bytes between clusters, by the counts.

What it has saved follows from the publications that left by it, at the least number of copies that ALM would have sent.
A tree that over the review's hours saves less than `KEPT` of what was predicted is taken back: it was not built, is not
used, or its topic is not what it seemed.
"""

from __future__ import annotations

from typing import NamedTuple

from monitoring.counts.features import Window
from monitoring.forecasts.arrays import Value, ratio
from monitoring.forecasts.forecast import HOUR
from monitoring.selection.score import HEADER

KEPT = 0.5
"""Share of what was predicted that a tree must save. More: trees go that only had a quiet day."""


class Account(NamedTuple):
    """Of one tree."""

    rate: float = 0.0
    """Bytes a second that it is expected to save."""
    at: int = 0
    """Since when, ms since 1970; 0: nothing is expected yet."""
    saved: float = 0.0
    predicted: float = 0.0
    """Bytes since it was built."""
    lately_saved: float = 0.0
    lately_predicted: float = 0.0
    """The same, fading."""


def saved_in(seen: Window) -> Value:
    """Bytes between clusters that a tree has saved in a window; of one topic, or of many with arrays as fields."""
    messages = seen.messages + 0.0
    packet = ratio(seen.bytes + HEADER * messages, messages)
    return ratio(seen.by_tree + 0.0, messages) * packet * (seen.far - seen.up + 0.0)


def settled(account: Account, epoch: int, saved: float, hours: float) -> Account:
    """The account at the end of an epoch in which so much was saved; what was `lately` fades over `hours`."""
    passed = max(0, epoch - account.at) if account.at else 0
    due, fade = account.rate * passed / 1000, hours / (hours + passed / HOUR)
    return Account(
        account.rate,
        epoch,
        account.saved + saved,
        account.predicted + due,
        account.lately_saved * fade + saved,
        account.lately_predicted * fade + due,
    )


def missed(account: Account, age: int, hours: float) -> bool:
    """Whether a tree of this age, in ms, keeps missing its prediction."""
    return age >= hours * HOUR and account.lately_saved < KEPT * account.lately_predicted
