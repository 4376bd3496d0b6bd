"""What the job's look for new files costs while many are kept: ``python -m benchmarks.intake --help``.

Makes the directories of 14 days in which 100 brokers have left a file a minute each, and lets the intake run beside
brokers that go on: each second new files come, and as many of the oldest go. Prints the processor's share.
"""

from __future__ import annotations

import argparse
import datetime
import os
import tempfile
import time
from pathlib import Path

from monitoring.counts.directory import Directory
from monitoring.counts.intake import Intake
from monitoring.counts.synthetic import city, rows, traffic
from monitoring.decisions.store import NOTHING, Store
from monitoring.job.run import LOOKS
from saps.statistics.files_io import write_rows

BROKERS, DAYS, MINUTE = 100, 14, 60_000


def make(source: Path, store: Store, kept: int, now: int) -> None:
    """The files of the past, all taken. Those of days that are over are empty: nobody is to open them."""
    each = kept // DAYS
    for back in range(DAYS):
        day = datetime.datetime.fromtimestamp(now / 1000 - back * 86_400, datetime.UTC).strftime("%Y-%m-%d")
        (source / day).mkdir(parents=True)
        names = [f"b{number % BROKERS}-1-{now - back * 86_400_000 - number}.parquet" for number in range(each)]
        for name in names:
            os.close(os.open(source / day / name, os.O_CREAT | os.O_WRONLY))
        if back < 2:
            store.folder.write(f"taken/{day}/0.txt", "".join(f"{name}\n" for name in names).encode())
    store.fresh(0)
    store.commit(NOTHING._replace(batch=0, closed=now))


def main(argv: list[str] | None = None) -> None:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.intake", description=__doc__)
    parser.add_argument("--files", type=int, default=2_000_000)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--interval", type=float, default=60.0, help="of the job, in seconds")
    parser.add_argument("--directory", type=Path, help="in which all is made [default: that for temporary files]")
    chosen = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="saps-intake-", dir=chosen.directory) as scratch:
        source, store = Path(scratch) / "counts", Store(Path(scratch) / "state")
        now = int(time.time() * 1000)
        make(source, store, chosen.files, now)
        days = sorted(source.iterdir())
        place = city(topics=200, clusters=4, brokers=1)
        sample = Path(scratch) / "sample.parquet"
        write_rows(sample, list(rows(place, traffic(place, 0)))[:100])
        content, oldest = sample.read_bytes(), [file.name for file in os.scandir(days[0])]
        begun = time.process_time()
        intake = Intake(Directory(source, store), store)
        intake.take()
        print(f"first look: {time.process_time() - begun:.2f} s of processor, {intake.read} files read")
        spent, looked, begun = 0.0, 0.0, time.monotonic()
        came = 0
        while time.monotonic() - begun < chosen.seconds:
            due = int((time.monotonic() - begun) * BROKERS / 60)
            while came < due:
                partial = days[-1] / f".c{came}.partial"
                partial.write_bytes(content)
                partial.replace(days[-1] / f"b{came % BROKERS}-2-{now + came}.parquet")
                (days[0] / oldest[came]).unlink()
                came += 1
            if time.monotonic() - looked >= max(1.0, chosen.interval / LOOKS):
                looked = time.monotonic()
                before = time.process_time()
                intake.take()
                spent += time.process_time() - before
            time.sleep(0.2)
        share = spent / chosen.seconds
        print(
            f"{chosen.files:,} kept, {came} came, {intake.read} read: {spent:.2f} s of processor, {share:.2%} of a core"
        )


if __name__ == "__main__":
    main()
