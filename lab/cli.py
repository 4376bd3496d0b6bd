"""The command `saps lab`: builds a lab, runs programs in it, shows it, disturbs it, and takes it down.

Exit status: that of the program for `run`; otherwise 0 if done, or 2 with one line on standard error if not.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lab import DIRECTORY, MANAGEMENT_GATE, Lab, LabError, TopologyError, Traffic, obstacle, take_down
from saps.cli.apps import command_group
from saps.config.address import Address
from saps.ofm.switch.topologies import SWITCHES

app = command_group(
    "lab", "A network on this machine to try brokers and controllers in: namespaces and Open vSwitch. Needs root."
)

Name = Annotated[str, typer.Option("--name", metavar="NAME", help="Which lab; several can be up.")]
Directory = Annotated[Path, typer.Option("--directory", metavar="DIR", help="Where labs keep their state.")]
_MINE = "saps"


class Change(StrEnum):
    """The changes that can be made to a link."""

    UP = "up"
    DOWN = "down"
    RATE = "rate"


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn errors that a user can mend into one line and exit status 2. SIGTERM clears away as Ctrl-C does."""

    def interrupt(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except (LabError, TopologyError) as error:
        typer.echo(f"saps lab: {error}", err=True)
        raise typer.Exit(2) from None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _standing(name: str, directory: Path) -> Lab:
    if why := obstacle():
        raise LabError(why)
    return Lab.open(name, directory)


@app.command()
def up(
    topology: Annotated[
        str,
        typer.Option(
            "--topology", "-t", metavar="KIND:CxB|FILE", help="`tree:4x2`, `line:8x1`, `ring:4x2`, `full:4x2`."
        ),
    ] = "tree:4x2",
    controller: Annotated[
        list[str],
        typer.Option(
            "--controller", metavar="HOST:PORT", help="The OpenFlow controller, seen from the switches; or several."
        ),
    ] = ["127.0.0.1:6653"],  # noqa: B006 (typer does not change it)
    ipv6: Annotated[bool, typer.Option("--ipv6", help="Hosts have IPv6 on the data network too.")] = False,
    name: Name = _MINE,
    directory: Directory = DIRECTORY,
) -> None:
    """Build a lab, which stays until `saps lab down`.

    In `tree:4x2` four clusters have an edge switch and two hosts each, `c1b1` to `c4b2`, under one core switch.
    Ctrl-C, or any failure, leaves nothing behind. Until the controller is there the switches learn and forward like
    any others.
    """
    with _refusals():
        start = time.monotonic()
        lab = Lab(
            _described(topology),
            controller=list(map(Address.parse, controller)),
            name=name,
            directory=directory,
            ipv6=ipv6,
        )
        lab.up()
    made = lab.topology
    typer.echo(
        f"lab {name}: {len(made.switches)} switches, {len(made.links)} links, {len(made.hosts)} hosts"
        f" up in {time.monotonic() - start:.2f} s"
    )


def _described(topology: str) -> str:
    """Return the text of a topology: that of the file if `topology` names one, else `topology` itself.

    Raises `LabError` for an unreadable file."""
    path = Path(topology)
    try:
        return path.read_text() if path.is_file() else topology
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"cannot read {path}: {error}") from None


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The program and its arguments.")],
    where: Annotated[str, typer.Option("--in", metavar="HOST", help="A host, or `switches`.")] = SWITCHES,
    name: Name = _MINE,
    directory: Directory = DIRECTORY,
) -> None:
    """Become a program that runs on a host, or beside the switches.

    Beside the switches is where a controller belongs, and from where all hosts can be reached at their management
    addresses. `ovs-ofctl`, `ovs-vsctl` and `ovs-appctl` find the lab's switches by themselves:

        saps lab run -- ovs-ofctl -O OpenFlow13 dump-flows core
        saps lab run --in c1b1 -- ip address
    """
    with _refusals():
        lab = _standing(name, directory)
        space = lab.switches if where == SWITCHES else lab.host(where)
        space.enter()
        # exec discards buffered output, so it is flushed before, and keeps ignored signals, so they get defaults.
        sys.stdout.flush()
        for number in (signal.SIGTERM, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        try:
            os.execvpe(command[0], command, space.environment)
        except OSError as error:
            raise LabError(f"cannot run {command[0]}: {error.strerror}") from None


@app.command()
def down(name: Name = _MINE, directory: Directory = DIRECTORY) -> None:
    """Take a lab down with every process in it, and whatever killed labs have left. Nothing to do is no fault."""
    with _refusals():
        gone = take_down(name, directory)
    typer.echo(f"down: {', '.join(gone)}" if gone else f"there is no lab {name}")


@app.command()
def status(name: Name = _MINE, directory: Directory = DIRECTORY) -> None:
    """Show switches, links and hosts, with their addresses and what has crossed the links."""
    with _refusals():
        lab = _standing(name, directory)
        counters = lab.counters()
    console = Console()
    console.print(
        f"lab [bold]{lab.name}[/]: controller {lab.controller or 'none'}, "
        f"the switches' namespace is {lab.switches.name}, {MANAGEMENT_GATE}",
        soft_wrap=True,
        highlight=False,
    )
    switches = _table("switch", "datapath id", "cluster")
    for switch in lab.topology.switches:
        switches.add_row(switch.name, f"{switch.datapath_id:016x}", switch.cluster or "-")
    console.print(switches)
    links = _table("link", "ports", "kind", "packets\nthere", "bytes\nthere", "packets\nback", "bytes\nback")
    for link, there, back in counters.links():
        kind = ("inter-cluster" if link.inter_cluster else "within") + (", spare" if link.spare else "")
        links.add_row(link.name, f"{link.a_port} - {link.b_port}", kind, *_counts(there), *_counts(back))
    console.print(links)
    hosts = _table("host", "cluster", "address", "management", "MAC", "port", "packets\nsent", "packets\nheard")
    for host, sent, heard in counters.hosts():
        place = f"{host.switch}:{host.port}"
        numbers = (f"{sent.packets:,}", f"{heard.packets:,}")
        hosts.add_row(host.name, host.cluster, host.ip, host.management, host.mac, place, *numbers)
    console.print(hosts)


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        counted = column.startswith(("packets", "bytes"))
        table.add_column(column, justify="right" if counted else "left", no_wrap=True)
    return table


def _counts(traffic: Traffic) -> tuple[str, str]:
    return f"{traffic.packets:,}", f"{traffic.bytes:,}"


@app.command()
def link(
    a: Annotated[str, typer.Argument(metavar="SWITCH", show_default=False)],
    b: Annotated[str, typer.Argument(metavar="SWITCH", show_default=False)],
    change: Annotated[Change, typer.Argument(show_default=False)],
    bits: Annotated[
        int | None, typer.Argument(metavar="BITS", help="Bits per second, for `rate`; none lifts it.")
    ] = None,
    by_priority: Annotated[
        bool, typer.Option("--by-priority", help="For `rate`: packets with a class selector in their DSCP go first.")
    ] = False,
    number: Annotated[
        int, typer.Option("--number", metavar="N", min=1, help="For `up` and `down`: which of parallel links.")
    ] = 1,
    name: Name = _MINE,
    directory: Directory = DIRECTORY,
) -> None:
    """Take a link between two switches down or up, or limit the rate from the first to the second."""
    with _refusals():
        lab = _standing(name, directory)
        if change is Change.RATE:
            lab.set_rate(a, b, bits, by_priority=by_priority)
        else:
            lab.set_link(a, b, up=change is Change.UP, number=number)


@app.command()
def restart(
    switch: Annotated[str, typer.Argument(metavar="SWITCH", show_default=False)],
    name: Name = _MINE,
    directory: Directory = DIRECTORY,
) -> None:
    """Restart a switch: its tables are empty then, but for one flow that sends everything `NORMAL`."""
    with _refusals():
        _standing(name, directory).restart_switch(switch)


if __name__ == "__main__":
    app(prog_name="saps lab")
