"""`python -m examples.emergency`: alerts from one city to another, with and without priority, over a way that is full.

As root, with Open vSwitch, the cities are two OpenFlow domains; else two brokers on this machine.
"""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser
from functools import partial
from types import FrameType

from examples.common.program import Program, arguments, carry_out
from examples.emergency import worlds
from examples.emergency.play import Play
from examples.emergency.result import Emergency, draw, render
from examples.smart_city.arguments import positive
from lab import LabError, obstacle


def parser() -> ArgumentParser:
    """The command's options."""
    given = arguments(
        "emergency",
        "Alerts from one city to another on a priority topic, and the same words on an ordinary one, while cameras "
        "fill the way between the cities. As root with Open vSwitch: two OpenFlow domains.",
        12,
        "how long alerts are given; in the middle third the cameras send",
    )
    given.add_argument(
        "--world",
        choices=("lab", "loopback"),
        help="two OpenFlow domains on Open vSwitch, or brokers on this machine (default: the first if it can be had)",
    )
    given.add_argument(
        "--mbit", type=positive, default=2.0, metavar="N", help="of the way between the domains (default: 2)"
    )
    return given


async def play(world: worlds.World, program: Program) -> Emergency:
    """One run there."""
    return await Play(program, world).perform()


def main() -> int:
    """The entry point of the command. Gives the exit status."""
    given = parser().parse_args()
    why = obstacle()
    if given.world == "lab" and why:
        return _refuse(why)
    if given.world == "loopback" or (given.world is None and why):
        return carry_out(given, partial(play, worlds.Loopback()), render, draw)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        with worlds.lab(given.mbit) as world:
            return carry_out(given, partial(play, world), render, draw)
    except LabError as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        return 130


def _leave(number: int, _frame: FrameType | None) -> None:
    """A signal before the play begins, or after it: the lab is cleared away all the same."""
    raise KeyboardInterrupt


def _refuse(why: str) -> int:
    print(f"emergency: {why}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
