"""`python -m examples.smart_city`: runs the scene and shows it.

Exit status: 0 if every message arrived once and in order; 1 if one was lost, duplicated, out of order or stray, or a
broker or device failed on the way; 2 if the scene could not start; 130 if interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
from pathlib import Path

import msgspec
from rich.console import Console

from examples.smart_city.arguments import count, positive
from examples.smart_city.run import Address, NotStartedError, Run
from examples.smart_city.scene import plan_brokers, smart_city
from examples.smart_city.summary import Report, render, report
from examples.smart_city.watching import live_screen, status_lines


def main() -> None:
    """The entry point of the command."""
    sys.exit(asyncio.run(_main(_arguments())))


async def _main(arguments: argparse.Namespace) -> int:
    external: list[Address] = arguments.external
    brokers = plan_brokers(len(external) or arguments.brokers)
    scene = smart_city(brokers, random.Random(arguments.seed))
    run = Run(scene, arguments.seconds, arguments.seed, external)
    console = Console()
    performance = asyncio.create_task(_perform(run, console, plain=arguments.plain or not console.is_terminal))
    _heed_signals(run, performance)
    try:
        await performance
    except NotStartedError as error:
        print(error, file=sys.stderr)
        return 2
    except asyncio.CancelledError:
        pass
    return _conclude(run, report(run), console, arguments.json)


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


async def _perform(run: Run, console: Console, *, plain: bool) -> None:
    async with status_lines(run) if plain else live_screen(run):
        await run.perform()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.smart_city",
        description="A city's devices on a mesh of SAPS brokers; checks that every message arrives once and in order.",
    )
    parser.add_argument("--seconds", type=positive, default=30.0, help="how long the devices publish (default: 30)")
    parser.add_argument("--brokers", type=count(200), default=4, help="how many brokers (default: 4, in 2 clusters)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there, too")
    parser.add_argument("--plain", action="store_true", help="a status line now and then instead of the live screen")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the devices' protocols, readings and timing (default: 1)"
    )
    parser.add_argument(
        "--external",
        type=_addresses,
        default=[],
        metavar="HOST:PORT,...",
        help="start no brokers; use these MQTT brokers, which must be connected to each other",
    )
    return parser.parse_args()


def _addresses(text: str) -> list[Address]:
    addresses = []
    for part in text.split(","):
        host, colon, port = part.strip().rpartition(":")
        if not (host and colon and port.isdigit() and 0 < int(port) < 65536):
            raise argparse.ArgumentTypeError(f"{part!r} is not host:port")
        addresses.append((host.strip("[]"), int(port)))
    return addresses


if __name__ == "__main__":
    main()
