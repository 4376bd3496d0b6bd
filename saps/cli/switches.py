"""The command `saps switches`.

Exit status: 0 after an orderly end, 1 after a failure, 2 for an unusable option.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saps.cli.apps import command_app, refuse
from saps.config import Address, SettingError
from saps.ofm.switch.topologies import Topology, TopologyError, from_toml, parse

app = command_app("switches")


@app.command()
def switches(
    topology: Annotated[
        str,
        typer.Option("--topology", metavar="TOPOLOGY", help="As for `saps lab`: tree:3x2, line:8x1, or a TOML file."),
    ] = "tree:3x2",
    controller: Annotated[
        str, typer.Option("--controller", metavar="HOST:PORT", help="The OpenFlow controller.")
    ] = "127.0.0.1:6653",
    ports: Annotated[
        str,
        typer.Option(
            "--ports",
            metavar="HOST:PORT",
            help="Where the hosts' ports take frames (UDP): the first host's; the others follow. 0: any free ones.",
        ),
    ] = "127.0.0.1:0",
    capacity: Annotated[
        int | None, typer.Option("--capacity", metavar="N", min=1, help="Flow entries a switch has room for.")
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", metavar="LEVEL", help="Least severe log line.")] = "info",
) -> None:
    r"""Run OpenFlow 1.3 switches in software until SIGTERM or SIGINT: a network for OFM without root.

    Brokers are attached to them by `ofm.attach`. The host c1b1 of a topology has the address 10.77.1.1:

        saps controller &
        saps switches --topology tree:3x2 --ports 127.0.0.1:7500 &
        saps broker --set ofm.listen=10.77.1.1:7400 --set ofm.attach=127.0.0.1:7500

    A line on standard output says where each host's port is. Lines on standard input are orders: `down A B` and
    `up A B` (a link), `restart SWITCH`, `status`. Each is answered by a line of JSON.
    """
    try:
        shape, ofc, first = _topology(topology), Address.parse(controller), Address.parse(ports)
    except (TopologyError, ValueError, OSError) as error:
        raise refuse(str(error)) from None
    from saps.ofm.switch.program import run  # here, so that --help does not pay for the imports

    try:
        status = run(shape, ofc, first, capacity, log_level)
    except SettingError as error:
        raise refuse(str(error)) from None
    raise typer.Exit(status)


def _topology(text: str) -> Topology:
    """Return the topology of a TOML file (`*.toml`) or of a text. Raises `TopologyError`, or OSError for the file."""
    return from_toml(Path(text).read_text()) if text.endswith(".toml") else parse(text)
