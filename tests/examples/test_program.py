"""The program around every example: its exit status, Ctrl-C, what it writes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from rich.text import Text

from examples.common.drawing import Axes, Picture
from examples.common.program import Crew, Program, Result, arguments, carry_out, settled
from examples.smart_city.processes import BrokerError


async def right(program: Program) -> Result:
    program.begin()
    await program.until()
    return Result()


async def wrong(program: Program) -> Result:
    return Result(problems=["two and two are five"])


async def failing(program: Program) -> Result:
    async with Crew(program) as crew:
        crew.start("device", _lost())
        await crew.all_ready()
        await program.until()
    return Result()


async def _lost() -> None:
    raise TimeoutError


async def not_started(program: Program) -> Result:
    raise BrokerError("broker b1 cannot be started")


async def interrupted(program: Program) -> Result:
    os.kill(os.getpid(), signal.SIGINT)
    await program.beginning()
    return Result()


async def interrupted_twice(program: Program) -> Result:
    os.kill(os.getpid(), signal.SIGINT)
    await program.curtain.wait()
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.get_running_loop().create_future()
    return Result()


@pytest.mark.parametrize(
    ("play", "status", "problems"),
    [
        (right, 0, []),
        (wrong, 1, ["two and two are five"]),
        (failing, 1, ["device: nothing came in time"]),
        (not_started, 2, None),
        (interrupted, 130, []),
        (interrupted_twice, 130, None),
    ],
)
def test_the_exit_status_says_what_came_of_it(
    play: Callable[[Program], Awaitable[Result]], status: int, problems: list[str] | None, tmp_path: Path
) -> None:
    file, picture = tmp_path / "result.json", tmp_path / "picture.svg"
    options = ["--plain", "--seconds", "0.01", "--json", str(file), "--picture", str(picture)]
    given = arguments("none", "", 1, "").parse_args(options)
    assert carry_out(given, play, lambda _: Text(""), lambda _: Picture(10, 10, "none")) == status
    assert file.exists() == picture.exists() == (problems is not None)
    if problems is not None:
        result = msgspec.json.decode(file.read_bytes(), type=Result)
        assert (result.problems, result.interrupted) == (problems, status == 130)


async def test_a_fault_in_a_devices_code_ends_the_program() -> None:
    program = Program(arguments("none", "", 60, "").parse_args(["--plain"]), Console(quiet=True))

    async def broken() -> None:
        raise ZeroDivisionError

    async def play() -> None:
        async with Crew(program) as crew:
            crew.start("device", broken())
            await program.until()

    with pytest.raises(ZeroDivisionError):
        await play()


async def test_waiting_ends_when_it_is_true_or_too_long() -> None:
    seen = iter([False, False, True])
    assert await settled(lambda: next(seen))
    assert not await settled(lambda: False, 0.02)


@pytest.mark.parametrize("log", [False, True])
def test_axes_put_the_ends_of_the_scales_into_the_corners(log: bool) -> None:
    picture = Picture(200, 100, "none")
    axes = Axes(picture, (20, 10, 160, 70), (1, 1000), (10, 100), log=log)
    assert axes.at(1, 10) == pytest.approx((20, 80))
    assert axes.at(1000, 100) == pytest.approx((180, 10))
    axes.frame("x", "y")
    axes.curve([(1, 10), (1000, 100)], "#000000", "a < b & c")
    assert "a &lt; b &amp; c" in picture.svg()


async def test_who_takes_no_notice_of_the_first_cancellation_ends_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("examples.common.program.AGAIN", 0.01)
    program = Program(arguments("none", "", 60, "").parse_args(["--plain"]), Console(quiet=True))
    told = 0

    async def deaf() -> None:
        nonlocal told
        while told < 3:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                told += 1

    async with asyncio.timeout(10), Crew(program) as crew:
        task = crew.start("deaf", deaf())
        await asyncio.sleep(0)
    assert (told, task.done()) == (3, True)
