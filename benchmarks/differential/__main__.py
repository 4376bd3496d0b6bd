"""``python -m benchmarks.differential``: random and mutated packets to SAPS, Mosquitto and rumqttd, compared.

Two publishers and two subscribers do the same at each broker, step by step (after MBFuzzer, USENIX Security 2025). A
difference that comes again is named with the paragraph of the standard (`compare.RULES`), or is a fault of somebody:
the exit status is 1 then.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Sequence

from benchmarks.city.install import InstallError
from benchmarks.differential.run import OURS, Comparison, start
from benchmarks.processes import StartError


async def compare(comparison: Comparison, first: int, scripts: int, seconds: float) -> int:
    """So many scripts from a seed on, at most so many seconds. Gives how many were carried out."""
    end = time.monotonic() + seconds
    for number in range(scripts):
        if time.monotonic() > end:
            return number
        await comparison.one(first + number)
    return scripts


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Exit status 1 if something without a name differs, 2 if a broker is missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.differential", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first script's (default: %(default)s)")
    parser.add_argument("--scripts", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--minutes", type=float, default=5.0, help="at most (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        try:
            comparison = start(stack)
            begun = time.monotonic()
            done = asyncio.run(compare(comparison, chosen.seed, chosen.scripts, 60 * chosen.minutes))
        except (InstallError, StartError) as error:
            print(f"differential: {error}", file=sys.stderr)
            return 2
        print(f"{done:,} scripts from seed {chosen.seed} in {(time.monotonic() - begun) / 60:.1f} minutes")
        for (name, what, clause), times in sorted(comparison.counts.items(), key=lambda item: (item[0][0], -item[1])):
            print(f"{times:7,}  {name}: {what or 'the same'}{f' ({clause})' * bool(clause)}")
        for name, times in comparison.ended.items():
            print(f"{times:7,}  {name}: had to be started again")
        print(*comparison.unnamed, sep="\n")
        return 1 if comparison.unnamed or comparison.ended.get(OURS) else 0


if __name__ == "__main__":
    sys.exit(main())
