"""The table of decisions: each topic's mode, its saving and cost, and the reason in words.

The same previous table, windows and settings give the same table with the same digest. A restarted job and OFGate's own
decider therefore agree.
"""

from __future__ import annotations

import datetime
import hashlib
import heapq
import json
import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from monitoring.counts.features import Site, sites_of
from monitoring.decisions.audit import KEPT, Account, missed, settled
from monitoring.selection.network import CORE, Network
from monitoring.selection.score import HEADER
from monitoring.selection.selection import Calm, Candidate, Choice, Held, select

ALM, OFM = "alm", "ofm"
"""Modes of a topic."""
BUILD, KEEP, DROP, LEAVE, REVOKE = "build", "keep", "drop", "leave", "revoke"
"""Actions of a decision. LEAVE leaves a topic without a tree; REVOKE takes back a tree that missed its prediction."""

BESIDE = 1000
"""Most topics without a tree whose planes are chosen by their load."""


class Judged(NamedTuple):
    """A topic with its score."""

    topic: str
    saving: float
    cost: float
    inter: float
    rate: float
    """Expected messages a second."""
    sites: str
    """Sites of the topic's brokers, as in `monitoring.counts.features.Window.sites`."""
    size: float = 0.0
    """Mean payload of a message in bytes; 0: unknown."""
    saved: float = 0.0
    """Bytes between clusters that the topic's tree saved in the windows that this epoch closed."""
    sure: float = math.inf
    """Least saving with a certainty of 80 %, in bytes a second."""


class Decision(NamedTuple):
    """One line of the table."""

    epoch: int
    """End of the last window before the decision, in ms since 1970."""
    topic: str
    mode: str
    action: str
    saving: float
    """Bytes a second over links that a tree saves, weighted by priority."""
    cost: float
    """Bytes a second that a tree costs."""
    inter: float
    """Bytes a second that a tree saves between clusters, not weighted."""
    rate: float
    """Expected messages a second."""
    entries: int
    """Flow entries that a tree needs on all switches."""
    buckets: int
    """Group buckets that a tree needs on all switches."""
    since: int
    """Epoch since which the topic has had its mode; 0: always."""
    reason: str
    size: float = 0.0
    """Mean payload of a message in bytes; 0: unknown."""
    saved: float = 0.0
    """Bytes that the tree has saved between clusters since it was built (`audit.Account`)."""
    predicted: float = 0.0
    """Bytes predicted for the same time."""
    lately_saved: float = 0.0
    """Bytes saved over the last hours, fading."""
    lately_predicted: float = 0.0
    """Bytes predicted over the last hours, fading."""


class Table(NamedTuple):
    """The decisions of an epoch: topics that have a tree, lose theirs, or were worth one and got none."""

    epoch: int
    decisions: list[Decision]
    gap: float = 0.0
    """Upper bound of the share by which the selection's worth falls short of the best one's."""

    @property
    def digest(self) -> str:
        """SHA-256 of the epoch and the decisions, in hexadecimal."""
        return hashlib.sha256(json.dumps([self.epoch, self.decisions]).encode()).hexdigest()

    @property
    def trees(self) -> list[str]:
        """The topics that shall have a tree, ascending; others have none."""
        return [decision.topic for decision in self.decisions if decision.mode == OFM]

    @property
    def beside(self) -> list[Decision]:
        """The busiest topics that were worth a tree and got none, at most `BESIDE`. OFGate spreads them over the planes
        of stateless delivery."""
        found = [decision for decision in self.decisions if decision.action == LEAVE]
        return heapq.nsmallest(BESIDE, found, key=lambda each: (-each.rate * (each.size + HEADER), each.topic))

    def ended(self, before: tuple[float, float]) -> tuple[float, float]:
        """Return the bytes saved by former trees and the bytes predicted for them, with those that this table ends.

        `before` has the same sums up to the previous table."""
        gone = [decision for decision in self.decisions if decision.action in (DROP, REVOKE)]
        return before[0] + sum(d.saved for d in gone), before[1] + sum(d.predicted for d in gone)

    def held(self, before: Mapping[str, Held], calm: Calm) -> dict[str, Held]:
        """Return the state for the next epoch: all trees with their accounts, and the topics that lost theirs lately.

        `before` is the state that this table was decided with. A topic without a tree stays until its dwell time and
        its bar (`Calm.bar`) are over."""
        held = {
            topic: at
            for topic, at in before.items()
            if not at.tree and (self.epoch - at.since < calm.dwell or self.epoch < at.until)
        }
        for d in self.decisions:
            if d.mode == OFM:
                account = Account(d.inter, self.epoch, d.saved, d.predicted, d.lately_saved, d.lately_predicted)
                held[d.topic] = Held(True, d.since, 0, account)
            elif d.action in (DROP, REVOKE):
                held[d.topic] = Held(False, d.since, self.epoch + calm.bar if d.action == REVOKE else 0)
        return held


def decide(
    judged: Iterable[Judged],
    held: Mapping[str, Held],
    network: Network,
    epoch: int,
    calm: Calm = Calm(),  # noqa: B008
) -> Table:
    """Return the table of an epoch.

    `judged` has at least the topics worth a tree and the topics with one. A tree whose topic is missing in it is
    dropped. `held` is the state of the previous epoch (`Table.held`), and `epoch` the end of this one in ms since
    1970."""
    known = {row.topic: row for row in judged}
    for topic, before in held.items():
        if before.tree and topic not in known:
            known[topic] = Judged(topic, 0.0, 0.0, 0.0, 0.0, "")
    candidates = {
        topic: Candidate(topic, row.saving, row.cost, network.needs(sites_of(row.sites)), row.sure)
        for topic, row in known.items()
    }
    accounts = {
        topic: settled(before.account, epoch, known[topic].saved, calm.review)
        for topic, before in held.items()
        if before.tree
    }
    revoked = {topic for topic, account in accounts.items() if missed(account, epoch - held[topic].since, calm.review)}
    out = revoked | {topic for topic, before in held.items() if epoch < before.until}
    choice = select((c for c in candidates.values() if c.needs and c.topic not in out), network, held, epoch, calm)
    decisions = []
    for topic in sorted(known):
        account = accounts.get(topic, Account())
        decision = _decision(known[topic], candidates[topic], held.get(topic), choice, epoch, calm, account, revoked)
        if decision is not None:
            decisions.append(decision)
    return Table(epoch, decisions, choice.gap)


def _decision(
    row: Judged,
    candidate: Candidate,
    before: Held | None,
    choice: Choice,
    epoch: int,
    calm: Calm,
    account: Account,
    revoked: AbstractSet[str],
) -> Decision | None:
    had, has = before is not None and before.tree, row.topic in choice.chosen
    if not had and not has and row.saving <= row.cost:
        return None
    action = (KEEP if had else BUILD) if has else (DROP if had else LEAVE)
    if row.topic in revoked:
        action = REVOKE
    since = epoch if action in (BUILD, DROP, REVOKE) else before.since if before is not None else 0
    return Decision(
        epoch,
        row.topic,
        OFM if has else ALM,
        action,
        row.saving,
        row.cost,
        row.inter,
        row.rate,
        sum(room.entries for room in candidate.needs.values()),
        sum(room.buckets for room in candidate.needs.values()),
        since,
        _revoked(account, calm)
        if action == REVOKE
        else f"{_expected(row)}: a tree missed its prediction, and no other is built before {_clock(before.until)}"
        if action == LEAVE and before is not None and epoch < before.until
        else reason(row, action, choice, calm),
        row.size,
        *account[2:],
    )


def _revoked(account: Account, calm: Calm) -> str:
    return (
        f"taken back: it saved {_bytes(account.lately_saved)} of {_bytes(account.lately_predicted)} predicted lately "
        f"(less than {KEPT:.0%}); none is built for {_time(calm.bar)}"
    )


def _clock(at: int) -> str:
    return datetime.datetime.fromtimestamp(at / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _expected(row: Judged) -> str:
    return f"{row.rate:.3g} messages/s expected{_where(sites_of(row.sites))}"


def reason(row: Judged, action: str, choice: Choice, calm: Calm) -> str:
    """Return the reason of an action in words. REVOKE has its own text (`_revoked`)."""
    worth = f"a tree saves {_bytes(row.saving)}/s and costs {_bytes(row.cost)}/s"
    expected = _expected(row)
    if action == BUILD:
        return f"{expected}: {worth}"
    if action == KEEP:
        if row.topic in choice.locked:
            return f"{expected}: {worth}; built less than {_time(calm.dwell)} ago"
        if row.saving <= row.cost:
            return f"{expected}: {worth}; kept, for it may be worth it again (hysteresis {calm.hysteresis:.0%})"
        return f"{expected}: {worth}"
    if action == DROP:
        if not row.saving and not row.rate:
            return "no traffic any more"
        if row.topic in choice.refused:
            return f"{expected}: {worth}; others are worth more {_on(choice.refused[row.topic])}"
        return f"{expected}: {worth}: not worth it any more"
    if row.topic in choice.barred:
        return f"{expected}: {worth}; its tree was dropped less than {_time(calm.dwell)} ago"
    if row.topic in choice.refused:
        return f"{expected}: {worth}; no room {_on(choice.refused[row.topic])}"
    if row.saving - row.cost < calm.least:
        return f"{expected}: {worth}; less than {_bytes(calm.least)}/s net"
    return f"{expected}: {worth}; too little more for a change (hysteresis {calm.hysteresis:.0%})"


def _where(sites: list[Site]) -> str:
    members = sum(site.members for site in sites)
    wanting = sum(1 for site in sites if site.members)
    if members == 1:
        return ", 1 broker wants them"
    return f", {members} brokers in {wanting} cluster{'s' * (wanting != 1)} want them" if members else ""


def _on(switch: str) -> str:
    if not switch:
        return "on its switches"
    return "on the switch between the clusters" if switch == CORE else f"on the switch of {switch}"


def _bytes(number: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(number) >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} B"


def _time(milliseconds: int) -> str:
    seconds = milliseconds / 1000
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
