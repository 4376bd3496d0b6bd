"""`python -m examples.replay`: plays recorded traffic into a mesh, records it, or tells what is on a tape."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from aiomqtt import MqttError

from examples.common.mesh import Address, Mesh
from examples.common.program import Crew, Program, arguments, carry_out
from examples.replay.picture import Heard, Outcome, about, draw, per_second, render
from examples.replay.playing import Player, Receiver, Show, players, receivers
from examples.replay.recording import record
from examples.replay.tape import Tape, TapeError, load, write
from examples.smart_city.arguments import addresses, positive
from examples.smart_city.latency import Latencies
from examples.smart_city.processes import BrokerError

OURS = Path(__file__).with_name("smart_city.tape.xz")
CLUSTERS = ("tokyo/ward1", "tokyo/ward1", "tokyo/ward2", "tokyo/ward2")
WHOLE = 600.0


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    given = arguments(
        "replay",
        "play: plays a tape into a mesh of four brokers, checks order and gaps where it arrives. record: writes what a "
        "broker delivers to a tape. show: tells what is on one.",
        WHOLE,
        "of the tape, how much is played; of the city, how much is recorded",
    )
    given.add_argument("action", nargs="?", choices=("play", "record", "show"), default="play")
    given.add_argument("tape", nargs="?", type=Path, default=OURS, help="the file (default: one of the smart city)")
    given.add_argument("--speed", type=positive, default=1.0, metavar="X", help="play X times as fast (default: 1)")
    given.add_argument(
        "--broker",
        type=addresses,
        default=[],
        metavar="HOST:PORT,...",
        help="record from this one; play into these (default: start four)",
    )
    given.add_argument("--filter", action="append", metavar="F", help="record these topics (default: #)")
    given.add_argument("--note", default="", metavar="TEXT", help="what is recorded: kept on the tape")
    return given


async def perform(program: Program) -> Outcome:
    """What is asked."""
    given = program.arguments
    if given.action == "record":
        return await _record(program, given.broker[0], given.filter or ["#"], given.tape)
    tape = given.loaded.until(program.seconds)
    if given.action == "show":
        return about(tape, given.tape.name)
    program.arguments.seconds = tape.seconds / given.speed
    async with AsyncExitStack() as stack:
        if given.broker:
            at = {f"{host}:{port}": (host, port) for host, port in given.broker}
        else:
            at = (await stack.enter_async_context(Mesh(program, CLUSTERS))).addresses
        return await _play(program, tape, at)


async def _record(program: Program, at: Address, filters: Sequence[str], file: Path) -> Outcome:
    tape = Tape(program.arguments.note, list(filters))
    try:
        await record(program, at, tape)
    except MqttError as error:
        raise BrokerError(f"{at[0]}:{at[1]}: {error}") from None
    write(tape, file)
    return about(tape, file.name)


async def _play(program: Program, tape: Tape, addresses: dict[str, Address]) -> Outcome:
    show = Show()
    parts = players(tape, list(addresses), program.arguments.seed)
    ears = receivers(parts, tape.filters, show)
    listening = [(name, receiver) for name, some in ears.items() for receiver in some]
    async with Crew(program) as crew:
        for name, receiver in listening:
            crew.start(receiver.name, receiver.work(addresses[name], crew.ready()))
        await crew.all_ready()
        playing = [
            crew.start(player.name, player.work(program, addresses[name], program.arguments.speed, show, crew.ready()))
            for name, player in parts.items()
        ]
        await crew.all_ready()
        program.begin()
        async with program.showing(lambda: _line(tape, show), lambda: _line(tape, show)):
            await asyncio.gather(*playing)
            await program.settled(lambda: not any(ear.follower.missing(ear.topics) for _, ear in listening))
    began = min((times[0] for times in show.times.values() if times), default=0.0)
    return _outcome(program, tape, show, list(parts.values()), listening, began)


def _outcome(
    program: Program,
    tape: Tape,
    show: Show,
    parts: Sequence[Player],
    listening: Sequence[tuple[str, Receiver]],
    began: float,
) -> Outcome:
    result, speed, late = about(tape, program.arguments.tape.name), program.arguments.speed, Latencies()
    for player in parts:
        late.absorb(player.late)
    times = [(at - began) * speed for each in show.times.values() for at in each]
    first = tape.messages[0].at if tape.messages else 0.0
    result.speed, result.played, result.late_p99 = speed, show.count, _milliseconds(late.percentile(99))
    result.as_played = per_second([first + at for at in times])
    for broker, ear in listening:
        faults = ear.follower.faults(ear.topics)
        p50, p99 = (_milliseconds(ear.latencies.percentile(percent)) for percent in (50, 99))
        counted = (faults.missing, faults.again, faults.strange)
        result.heard.append(Heard(ear.name, broker, len(ear.topics), ear.follower.right, *counted, p50, p99))
        if faults:
            result.problems.append(
                f"{ear.name} at {broker}: {faults.missing} missing, {faults.again} again, {faults.strange} strange"
            )
    return result


def _line(tape: Tape, show: Show) -> str:
    return f"{show.count:,} of {len(tape.messages):,} messages played"


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)


def main() -> None:
    """The entry point of the command."""
    given = parser().parse_args()
    if given.action == "record":
        if given.tape == OURS or not given.broker:
            parser().error("record needs a file and --broker")
        if not given.tape.parent.is_dir():
            parser().error(f"argument tape: there is no folder {str(given.tape.parent)!r}")
    else:
        try:
            given.loaded = load(given.tape)
        except OSError as error:
            parser().error(f"argument tape: {given.tape}: {error.strerror}")
        except TapeError as error:
            parser().error(f"argument tape: {error}")
    sys.exit(carry_out(given, perform, render, draw))


if __name__ == "__main__":
    main()
