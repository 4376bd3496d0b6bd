"""The command `saps drain`: orders a broker to send its clients and sessions to others and leave, and watches it."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from saps.cli.apps import command_app, refuse
from saps.cli.look.http_client import AskError, SilentError, WebPort
from saps.cli.look.options import Json, asks
from saps.cli.look.tables import console, emit, safe
from saps.drain.values import Drained, Order, Stage
from saps.runtime.drain_signals import DRAINING
from saps.runtime.loading import INTERRUPTED

app = command_app("drain")

EVERY = 0.5
"""Seconds between two queries of the drain's progress."""
PATH = "/v1/drain"
ENDED = (Stage.LEAVING, Stage.LEFT)


@app.command()
@asks
def drain(
    port: WebPort,
    name: Annotated[
        str | None,
        typer.Argument(metavar="BROKER", help="The broker's name, as a check.", show_default=False),
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="End a drain: the broker serves again.")] = False,
    moved: Annotated[
        bool, typer.Option("--moved", help="The broker will not come back: tell clients 0x9D instead of 0x9C.")
    ] = False,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.01, help="Clients a second.", show_default="drain.rate")
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option("--grace", min=0, help="Seconds a client has to connect elsewhere.", show_default="drain.grace"),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0, help="Seconds until it is given up.", show_default="drain.timeout"),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Watch until it has left.")] = True,
    pid: Annotated[
        int | None,
        typer.Option(
            "--pid", metavar="PID", help="Order it by a signal to this process, not by a Web port.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Drain a broker: its clients go elsewhere with their sessions, then it leaves the mesh and ends.

    Ctrl-C ends the watching, not the drain; `--cancel` does. Exit status: 0 when it has left, 1 if some session finds
    no other broker.
    """
    if pid is not None:
        _by_signal(pid, cancel, wait, timeout)
        return
    found = port.get(PATH, Drained)
    if name is not None and name != found.broker:
        raise AskError(f"{port.url} is {found.broker}, not {name}")
    found = port.post(PATH, Order(cancel=cancel, rate=rate, grace=grace, timeout=timeout, moved=moved), Drained)
    if cancel or not wait:
        _say(found, as_json)
        return
    try:
        last = _show(_looks(port, found), as_json)
    except KeyboardInterrupt:
        goes_on = f"the drain of {found.broker} goes on; saps drain --cancel ends it"
        raise refuse(goes_on, status=INTERRUPTED) from None
    if last.stage is Stage.STUCK:
        raise refuse(f"{last.sessions} sessions find no other broker; {last.broker} is still there", status=1)


def _looks(port: WebPort, first: Drained) -> Iterator[Drained]:
    """Yield the progress of a drain until the broker has left or is stuck.

    A broker that falls silent while it leaves has left. Raises `AskError` if the broker serves again, or falls silent
    before."""
    found, begun = first, False
    while True:
        yield found
        stage = found.stage
        if stage in (Stage.LEFT, Stage.STUCK):
            return
        if begun and stage is Stage.SERVING:
            raise AskError(f"{found.broker} serves again: the drain was ended")
        begun |= stage is not Stage.SERVING
        time.sleep(EVERY)
        try:
            found = port.get(PATH, Drained)
        except SilentError:
            if stage not in ENDED:
                raise
            return


def _show(looks: Iterator[Drained], as_json: bool) -> Drained:
    """Show each state of the drain, and return the last one."""
    out, last = console(), None
    if as_json or not out.is_terminal:
        said = ""
        for last in looks:
            line = _line(last)
            if as_json:
                emit(last)
            elif line != said:
                out.print(safe(line))
                said = line
    else:
        with Progress(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}")) as bars:
            tasks = {what: bars.add_task(what, left="") for what in ("clients", "sessions", "keys")}
            for last in looks:
                _fill(bars, tasks, last)
            if last is not None:
                bars.console.print(safe(_line(last)))
    assert last is not None
    return last


def _fill(bars: Progress, tasks: dict[str, TaskID], found: Drained) -> None:
    for what, task in tasks.items():
        left = getattr(found, what)
        total = max(getattr(found, f"{what}_before"), left)
        bars.update(task, total=max(total, 1), completed=max(total, 1) - left, left=f"{left:,} left")


def _say(found: Drained, as_json: bool) -> None:
    if as_json:
        emit(found)
    else:
        console().print(safe(_line(found)))


def _line(found: Drained) -> str:
    """Return a line such as ``b1 is draining: 12 clients, 40 sessions (8 on the way), 30 keys left``."""
    if found.stage is Stage.LEFT:
        return f"{found.broker} has left"
    if found.stage is Stage.SERVING:
        return f"{found.broker} is serving"
    note = "; no other broker takes sessions: stored ones stay here" if found.staying else ""
    return (
        f"{found.broker} is {found.stage.value}: {found.clients:,} clients, {found.sessions:,} sessions "
        f"({found.moving:,} on the way), {found.keys:,} keys left{note}"
    )


def _by_signal(pid: int, cancel: bool, wait: bool, timeout: float | None) -> None:
    """Order a process on this machine to drain, or to end a drain, by a signal.

    With `wait`, wait at most `timeout` seconds for the process to end; None: without limit. Raises `AskError` if the
    process cannot be signalled, and `typer.Exit` with status 1 if it has not ended in time."""
    (number,) = (number for number, order in DRAINING.items() if order.cancel == cancel)
    try:
        process = os.pidfd_open(pid)
        signal.pidfd_send_signal(process, number)
    except OSError as error:
        raise AskError(f"--pid: process {pid} cannot be signalled: {error.strerror}") from None
    try:
        if wait and not cancel:
            ended, _, _ = select.select([process], [], [], timeout)
            if not ended:
                raise refuse(f"process {pid} has not left after {timeout:g} s", status=1)
    finally:
        os.close(process)
