"""`python -m examples.lab_city`: the smart city on Open vSwitch switches, by ALM, ALM-LA and OFM. Needs root.

Exit status: 0 if every message arrived once and in order; 1 if one was lost, duplicated or out of order, or a broker
or device failed on the way; 2 if the lab or the scene could not start; 130 if interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import FrameType

import msgspec
from rich.console import Console

from examples.lab_city.acts import Play
from examples.lab_city.result import render, sound
from examples.smart_city.arguments import count, new_file, positive
from examples.smart_city.run import NotStartedError, Run
from examples.smart_city.watching import live_screen, status_lines
from lab import Lab, LabError, TopologyError, obstacle

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """The entry point of the command."""
    arguments = _arguments()
    if why := obstacle():
        sys.exit(_refuse(why))
    for number in ENDING:
        signal.signal(number, _leave)
    try:
        with Lab(arguments.topology) as lab, lab.switches.inside():
            status = asyncio.run(_main(lab, arguments))
    except (LabError, TopologyError) as error:
        status = _refuse(str(error))
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)


def _leave(number: int, _frame: FrameType | None) -> None:
    """A signal outside the play: the lab is cleared away all the same."""
    raise KeyboardInterrupt


def _refuse(why: str) -> int:
    print(f"lab_city: {why}", file=sys.stderr)
    return 2


async def _main(lab: Lab, arguments: argparse.Namespace) -> int:
    console = Console()
    plain = arguments.plain or not console.is_terminal
    play = Play(lab, arguments.seconds, arguments.seed, arguments.moves, _lines if plain else live_screen)
    performance = asyncio.create_task(play.perform())
    _heed_signals(play, performance)
    try:
        await performance
    except NotStartedError as error:
        return _refuse(str(error))
    except asyncio.CancelledError:
        pass
    return _conclude(play, console, arguments.json)


def _conclude(play: Play, console: Console, file: Path | None) -> int:
    if play.result or not play.interrupted:
        console.print(render(play.result, play.troubles))
    if file is not None:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(play.result)) + b"\n")
    if play.interrupted:
        console.print("Interrupted: this is what there is so far.", style="yellow")
        return 130
    return 0 if sound(play.result) and not play.troubles else 1


def _lines(run: Run, title: str) -> AbstractAsyncContextManager[None]:
    print(title, flush=True)
    return status_lines(run)


def _heed_signals(play: Play, performance: asyncio.Task[None]) -> None:
    """The first signal ends the act early and in order, a second one cuts that short."""

    def interrupt() -> None:
        if play.interrupted:
            performance.cancel()
        play.interrupt()

    for number in ENDING:
        asyncio.get_running_loop().add_signal_handler(number, interrupt)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.lab_city",
        description="The smart city's devices on brokers joined by Open vSwitch switches: by ALM, by ALM-LA, while all "
        "topics move to OFM and back, and by OFM. Counts at the switches what each puts on the links between clusters.",
    )
    parser.add_argument("--topology", default="tree:4x2", help="clusters and brokers in each (default: tree:4x2)")
    parser.add_argument("--seconds", type=positive, default=10.0, help="how long an act lasts (default: 10)")
    parser.add_argument("--moves", type=count(1000), default=5, help="how often the topics move (default: 5)")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the result there, too")
    parser.add_argument("--plain", action="store_true", help="a status line now and then instead of the live screen")
    parser.add_argument("--seed", type=int, default=1, help="of readings and timing (default: 1)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
