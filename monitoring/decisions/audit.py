"""Compares the bytes that a tree has saved between clusters with the bytes predicted when it was decided.

The saved bytes follow from the counts: the publications that left by the tree, times the fewest copies that ALM would
have sent. A tree is revoked if it saves less than `KEPT` of the prediction over the review's hours. Either it was not
built, or it is not used, or its topic has changed.
"""

from __future__ import annotations

from typing import NamedTuple

from monitoring.counts.features import Window
from monitoring.forecasts.arrays import Value, ratio
from monitoring.forecasts.forecast import HOUR
from monitoring.selection.score import HEADER

KEPT = 0.5
"""Share of its prediction that a tree must save. A higher share would revoke trees after a quiet day."""


class Account(NamedTuple):
    """Saved and predicted bytes of one tree."""

    rate: float = 0.0
    """Bytes a second that the tree is expected to save."""
    at: int = 0
    """Time of the account in ms since 1970, from which `rate` applies; 0: nothing is expected yet."""
    saved: float = 0.0
    """Bytes saved since the tree was built."""
    predicted: float = 0.0
    """Bytes predicted since the tree was built."""
    lately_saved: float = 0.0
    """Bytes saved, fading over the review's hours."""
    lately_predicted: float = 0.0
    """Bytes predicted, fading over the review's hours."""


def saved_in(seen: Window) -> Value:
    """Return the bytes between clusters that a tree saved in a window; of many topics if the fields are arrays."""
    messages = seen.messages + 0.0
    packet = ratio(seen.bytes + HEADER * messages, messages)
    return ratio(seen.by_tree + 0.0, messages) * packet * (seen.far - seen.up + 0.0)


def settled(account: Account, epoch: int, saved: float, hours: float) -> Account:
    """Return the account at the end of `epoch` (ms since 1970), in which `saved` bytes were saved.

    The `lately` sums fade to half in `hours`."""
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
    """Return whether a tree of this age, in ms, keeps missing its prediction. Trees younger than `hours` never do."""
    return age >= hours * HOUR and account.lately_saved < KEPT * account.lately_predicted
