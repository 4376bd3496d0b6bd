"""What trees save beside what was predicted: counted by hand, kept through epochs, and acted on."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

from monitoring.counts.features import windows
from monitoring.counts.synthetic import MONDAY
from monitoring.decisions.audit import Account, missed, saved_in, settled
from monitoring.decisions.decider import Decider
from monitoring.decisions.store import Store
from monitoring.decisions.table import Decision
from monitoring.decisions_cli import app
from monitoring.forecasts.forecast import HOUR
from monitoring.forecasts.model import Pace, advance, judge, unknown
from monitoring.settings import Rules
from saps.statistics import Row

LENGTH = Rules().pace.window
HOURS = HOUR // LENGTH
"""Windows of one."""


def rows(topic: str, number: int, messages: int, by_tree: int) -> list[Row]:
    """A publisher in a, subscribers in b, c and d."""
    start = MONDAY + number * LENGTH
    sent = Row("a1", 1, "a", start, LENGTH / 1000, topic, messages, messages * 200, 0, 0, 1, 0, 3, 0,
               (messages - by_tree) * 3, by_tree, 0, 0, 0, [0] * 13)  # fmt: skip
    members = [sent._replace(broker=f"{c}1", cluster=c, messages=0, bytes=0, subscribers=1, publishers=0, brokers=0,
                             copies=0, by_tree=0, received=messages) for c in "bcd"]  # fmt: skip
    return [sent, *members]


def test_a_tree_is_held_to_what_is_expected_now_not_at_the_peak_to_come() -> None:
    """Busy from 8 to 10 only: at 6 o'clock the next hours are worth a tree, of which nothing is saved for an hour."""
    model, pace = unknown(), Pace(window=HOUR)
    for hour in range(24 * 10 + 6):
        (seen,) = windows(rows("t", 0, 9_000 if 8 <= hour % 24 < 10 else 900, 0), LENGTH)
        model = advance(model, seen, MONDAY + hour * HOUR, pace)
    shape, score = judge(model, MONDAY + (24 * 10 + 6) * HOUR, pace, Rules().weights)
    assert shape.soon < 0.5 * shape.rate
    assert score.inter == pytest.approx(shape.soon * 260 * 2, rel=0.01)


def test_a_window_saves_what_alm_would_have_sent_more() -> None:
    """ALM sends 3 copies up and down, 6 links; the tree 1 up and 3 down: 2 links fewer of 260 bytes a publication."""
    (half,) = windows(rows("t", 0, 10, 5), LENGTH)
    assert saved_in(half) == 5 * 260 * 2
    (none,) = windows(rows("t", 0, 10, 0), LENGTH)
    assert saved_in(none) == 0


def test_an_account_sums_and_what_was_lately_fades() -> None:
    account = Account(rate=100.0, at=MONDAY)
    for hour in range(1, 49):
        account = settled(account, MONDAY + hour * HOUR, 180_000.0 if hour <= 24 else 0.0, 6.0)
    assert account.predicted == pytest.approx(48 * 360_000)
    assert account.saved == pytest.approx(24 * 180_000)
    assert account.lately_saved < 0.1 * account.lately_predicted
    assert missed(account, 48 * HOUR, 6.0)
    assert not missed(account, 5 * HOUR, 6.0)
    assert not missed(Account(), 48 * HOUR, 6.0)


class Mesh:
    """A decider, window after window, whose trees carry a share of what they are for."""

    def __init__(self, share: dict[str, float], store: Store) -> None:
        self.decider, self.share, self.store = Decider(Rules(lateness=0)), share, store
        self.number = 0
        self.last: list[Decision] = []

    def pass_windows(self, count: int) -> list[Decision]:
        """What was decided about the topics in the last of so many windows."""
        for _ in range(count):
            trees = {topic for topic, held in self.decider.held.items() if held.tree}
            seen = list[Row]()
            for topic, share in self.share.items():
                seen += rows(topic, self.number, 3000, int(3000 * share) if topic in trees else 0)
            self.decider.feed(seen)
            self.number += 1
            table = self.decider.decide()
            assert table is not None
            self.store.keep(table)
            self.last = table.decisions
        return self.last


def test_a_tree_that_keeps_missing_its_prediction_is_taken_back_and_named(tmp_path: Path) -> None:
    mesh = Mesh({"good": 1.0, "unused": 0.0}, Store(tmp_path))
    actions: list[dict[str, str]] = []
    reasons: list[str] = []
    for _ in range(11 * HOURS):
        found = mesh.pass_windows(1)
        actions.append({d.topic: d.action for d in found})
        reasons += [d.reason for d in found if d.action == "revoke" or "missed" in d.reason]
    good = [seen.get("good") for seen in actions]
    unused = [seen.get("unused") for seen in actions]
    built, revoked = unused.index("build"), unused.index("revoke")
    assert set(good[good.index("build") + 1 :]) == {"keep"}
    assert revoked - built == 6 * HOURS
    assert set(unused[revoked + 1 : revoked + 4 * HOURS]) == {"leave"}
    assert unused[revoked + 4 * HOURS] == "build"
    assert unused.count("revoke") == 1
    assert reasons[0].startswith("taken back: it saved 0 B of ")
    assert "a tree missed its prediction, and no other is built before 2025-01-13 1" in reasons[1]


def test_the_audit_says_what_each_tree_saved_and_all_together(tmp_path: Path) -> None:
    mesh = Mesh({"good": 1.0, "half": 0.6, "unused": 0.0}, Store(tmp_path))
    last = {d.topic: d for d in mesh.pass_windows(7 * HOURS)}
    assert 0.9 < last["good"].saved / last["good"].predicted < 1.1
    assert last["half"].saved == pytest.approx(0.6 * last["good"].saved)
    done = CliRunner().invoke(app, ["--state", str(tmp_path), "--audit"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    lines = {line.split()[1]: line for line in done.stdout.splitlines() if line.startswith("│")}
    assert f"{last['good'].saved:,.0f}" in lines["good"]
    assert f"{last['good'].predicted:,.0f}" in lines["good"]
    assert "revoke" in lines["unused"]
    total = sum(d.saved for d in (last["good"], last["half"]))
    assert f"{total:,.0f}" in lines["3"]
