"""A run: the rounds, in each all rows, in each row the peers by turns."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from benchmarks.city.brokers import Broker
from benchmarks.city.kept import Kept, Sample
from benchmarks.city.measure import Pace, sample
from benchmarks.city.rows import NAMES, Row
from saps.runtime.process import allow_many_files


class Turn(NamedTuple):
    """What is measured next."""

    row: Row
    broker: Broker
    number: int


def turns(
    rows: Sequence[Row], brokers: Callable[[Row], Sequence[Broker]], rounds: int, *, full: bool = False
) -> Iterator[Turn]:
    """All of them in order: A B C, then B C A, and so on. Guests take part in the first round, or in all if `full`:
    after the others have been in all rows, so that a run which ends early has what counts most."""
    for number in range(rounds):
        for guests in (False, True) if full or not number else (False,):
            for row in rows:
                present = [broker for broker in brokers(row) if not broker.refusal(row)]
                transfer = [broker for broker in present if broker.guest is guests]
                first = number % len(transfer) if transfer else 0
                yield from (Turn(row, broker, number) for broker in (*transfer[first:], *transfer[:first]))


def rate_of(row: Row, kept: Kept, base: Broker, pace: Pace, said: Callable[[str], None]) -> float:
    """Messages a second that the row offers: half of what Mosquitto carried in the closed loop, which is measured if it
    has not been. 0: a closed loop. Raises ValueError if Mosquitto carried nothing."""
    if not row.half_of:
        return row.rate
    closed = NAMES[row.half_of]
    if not kept.results(closed.name, base.name):
        said(f"{closed.name}  {base.name}, for the rate of the open loop")
        kept.samples.append(sample(closed, base, 0, pace, 0.0))
    found = [result.messages / result.seconds for result in kept.results(closed.name, base.name).values()]
    if not found or not max(found):
        raise ValueError(f"{base.name} carried nothing in {closed.name}, of which {row.name} would offer half")
    return round(statistics.median(found) / 2)


class Progress:
    """One line a sample on standard error, with the time that is left."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._start = total, 0, time.monotonic()

    def __call__(self, what: str) -> None:
        """Before a sample."""
        left = ""
        if self._done:
            each = (time.monotonic() - self._start) / self._done
            left = f", {(self._total - self._done) * each / 60:.0f} min left"
        print(f"{self._done}/{self._total}{left}: {what}", file=sys.stderr, flush=True)

    def done(self) -> None:
        """After it."""
        self._done += 1


def run(
    todo: Sequence[Turn],
    kept: Kept,
    base: Broker,
    pace: Pace,
    keep: Callable[[Kept], None],
    minutes: float = math.inf,
) -> None:
    """Measure all that `kept` does not have yet, until so many `minutes` are over; `keep` is called after each
    sample."""
    end = time.monotonic() + 60 * minutes
    allow_many_files()
    have = {(s.row, s.peer, s.round) for s in kept.samples if s.result is not None}
    todo = [turn for turn in todo if (turn.row.name, turn.broker.name, turn.number) not in have]
    told = Progress(len(todo))
    for turn in todo:
        if time.monotonic() > end:
            print("the time is over: --resume goes on", file=sys.stderr)
            return
        key = (turn.row.name, turn.broker.name, turn.number)
        if key not in {(s.row, s.peer, s.round) for s in kept.samples if s.result is not None}:
            told(f"{turn.row.name}  {turn.broker.name}  round {turn.number + 1}")
            try:
                rate = rate_of(turn.row, kept, base, pace, told)
                found = sample(turn.row, turn.broker, turn.number, pace, rate)
            except ValueError as error:
                found = Sample(row=turn.row.name, peer=turn.broker.name, round=turn.number, fault=str(error))
            kept.samples = [s for s in kept.samples if (s.row, s.peer, s.round) != key] + [found]
            keep(kept)
        told.done()
