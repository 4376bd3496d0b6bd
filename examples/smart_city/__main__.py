"""`python -m examples.smart_city`: runs the scene and shows it, with the whole loop of decisions and trees.

Exit status: 0 if every message arrived once and in order, and the loop closed; 1 if one was lost, duplicated, out of
order or stray, the loop did not close, or a program or device failed on the way; 2 if the scene could not start; 130 if
interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
from rich.console import Console

from examples.smart_city.arguments import addresses, count, new_file, positive
from examples.smart_city.loop import STAY, Loop
from examples.smart_city.ofm import decider_here
from examples.smart_city.run import Address, NotStartedError, Run
from examples.smart_city.scene import plan_brokers, smart_city, stadium
from examples.smart_city.summary import Report, render, report
from examples.smart_city.watching import live_screen, status_lines

PACE = 1 / 6
"""Of the other devices while the loop is shown."""
CLUSTERS = 3
"""The fewest in which a tree saves anything between clusters."""


def main() -> None:
    """The entry point of the command."""
    sys.exit(asyncio.run(_main(_arguments())))


async def _main(arguments: argparse.Namespace) -> int:
    run, loop = _plan(arguments)
    try:
        return await _show(run, loop, arguments)
    finally:
        if loop is not None:
            loop.close()


def _plan(arguments: argparse.Namespace) -> tuple[Run, Loop | None]:
    """The scene alone on external brokers or by request; else with the loop beside it, which then decides how long it
    takes: the other devices publish more slowly, so that their topics are worth no tree."""
    external: list[Address] = arguments.external
    if external or arguments.no_loop:
        scene = smart_city(plan_brokers(len(external) or arguments.brokers), random.Random(arguments.seed))
        return Run(scene, arguments.seconds, arguments.seed, external), None
    brokers = plan_brokers(arguments.brokers, CLUSTERS)
    scene, crowd = smart_city(brokers, random.Random(arguments.seed), PACE), stadium(brokers)
    scene = replace(scene, subscribers=(*scene.subscribers, *crowd.signs))
    loop = Loop(crowd, brokers, arguments.decider or decider_here(), arguments.timeout, arguments.stay)
    return Run(scene, arguments.seconds, arguments.seed, open_end=True, beside=loop), loop


async def _show(run: Run, loop: Loop | None, arguments: argparse.Namespace) -> int:
    console = Console()
    plain = arguments.plain or not console.is_terminal
    performance = asyncio.create_task(_perform(run, loop, plain=plain))
    _heed_signals(run, performance)
    try:
        await performance
    except NotStartedError as error:
        print(error, file=sys.stderr)
        return 2
    except asyncio.CancelledError:
        pass
    return _conclude(run, report(run, loop.facts if loop is not None else None), console, arguments.json)


def _conclude(run: Run, result: Report, console: Console, file: Path | None) -> int:
    console.print(render(result))
    if file is not None:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    if run.interrupted:
        return 130
    return 0 if result.sound else 1


def _heed_signals(run: Run, performance: asyncio.Task[None]) -> None:
    """The first signal ends the scene early and in order, a second one cuts that short."""

    def interrupt() -> None:
        if run.interrupted:
            performance.cancel()
        run.interrupt()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, interrupt)


async def _perform(run: Run, loop: Loop | None, *, plain: bool) -> None:
    async with status_lines(run, loop) if plain else live_screen(run, loop=loop):
        await run.perform()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.smart_city",
        description="A city's devices on a mesh of SAPS brokers; checks that every message arrives once and in order.",
    )
    parser.add_argument(
        "--seconds",
        type=positive,
        default=30.0,
        help="how long the devices publish without the loop; with it, when latecomers subscribe (default: 30)",
    )
    parser.add_argument("--brokers", type=count(200), default=6, help="how many brokers (default: 6, in 3 clusters)")
    parser.add_argument("--no-loop", action="store_true", help="no switches, no decisions: all goes by ALM")
    parser.add_argument(
        "--decider", choices=("spark", "small"), help="who decides about trees (default: Spark where Java is there)"
    )
    parser.add_argument(
        "--timeout", type=positive, default=120.0, help="seconds for each step of the loop (default: 120)"
    )
    parser.add_argument(
        "--stay",
        type=positive,
        default=STAY,
        metavar="N",
        help=f"seconds that the topic stays on its tree, to look at it (default: {STAY:g})",
    )
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the result there, too")
    parser.add_argument("--plain", action="store_true", help="a status line now and then instead of the live screen")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the devices' protocols, readings and timing (default: 1)"
    )
    parser.add_argument(
        "--external",
        type=addresses,
        default=[],
        metavar="HOST:PORT,...",
        help="start no brokers; use these MQTT brokers, which must be connected to each other",
    )
    arguments = parser.parse_args()
    if arguments.brokers < CLUSTERS and not (arguments.no_loop or arguments.external):
        parser.error(f"argument --brokers: the loop needs {CLUSTERS} at least; --no-loop does without it")
    return arguments


if __name__ == "__main__":
    main()
