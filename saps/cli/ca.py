"""The commands ``saps ca``: make an authority for a mesh, issue certificates, revoke and list them.

Exit status: 0 if done, 2 if not. In the second case a line on standard error says why.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from saps.cli.apps import command_group, refusing
from saps.config.settings import cluster_fault, name_fault
from saps.identity.folder import Entry, Folder, FolderError, write
from saps.identity.names import Identity
from saps.identity.secret import new_secret

DAY, HOUR = 86400.0, 3600.0

app = command_group(
    "ca", "Certificates for brokers, servers and clients: an authority, what it issues, and what it revokes."
)

_Directory = Annotated[Path, typer.Option("--ca", metavar="DIR", help="The authority's directory.")]
_FOLDER = Path("ca")


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The authority's directory; made if missing.")],
    name: Annotated[str, typer.Option("--name", help="The authority's name, for readers.")] = "SAPS mesh",
    days: Annotated[float, typer.Option("--days", min=1, max=36500, help="How long it holds.")] = 3650,
) -> None:
    """Make an authority for a mesh.

    Brokers need `DIR/authority.pem` and `DIR/revoked.pem`. Keep the directory off their machines: who reads
    `DIR/authority.key` can be any broker.
    """
    with refusing(OSError, FolderError, ValueError):
        Folder(directory).create(name, time.time() + days * DAY, time.time())
    typer.echo(f"{directory}: authority {name!r}, for {days:g} days")


@app.command()
def issue(
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="The broker's name.")],
    cluster: Annotated[str, typer.Option("--cluster", metavar="PATH", help="Its cluster: it can be in no other.")],
    ca: _Directory = _FOLDER,
    days: Annotated[float | None, typer.Option("--days", min=0.001, max=3650, help="How long it holds; or")] = None,
    hours: Annotated[float | None, typer.Option("--hours", min=0.001, help="in hours. 7 days if left out.")] = None,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME", help="Host name or IP address, for what is reached by https: URLs."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="File to write; else DIR/issued/BROKER.pem.")
    ] = (None),
) -> None:
    r"""Issue a certificate to a broker, OFGate or a controller: one file with key and certificate.

        saps ca init ca
        saps ca issue b1 --cluster tokyo/ward1 --days 7
        saps broker --name b1 --cluster tokyo/ward1 --set links.tls.certificate=ca/issued/b1.pem \
                    --set links.tls.authority=ca/authority.pem --set links.tls.revoked=ca/revoked.pem

    Do it again before it ends, and put the new file in the place of the old one: a running broker takes it.
    """
    with refusing(OSError, FolderError, ValueError):
        if (fault := name_fault(broker) or cluster_fault(cluster)) is not None:
            raise FolderError(fault)
        if days is not None and hours is not None:
            raise FolderError("--days or --hours, not both")
        seconds = hours * HOUR if hours is not None else (days if days is not None else 7.0) * DAY
        now = time.time()
        file = Folder(ca).issue(Identity(cluster, broker), now + seconds, now, host or (), out)
    typer.echo(f"{file}: {broker} of {cluster}, until {_when(now + seconds)}")


_Days = Annotated[float, typer.Option("--days", min=0.001, max=3650, help="How long it holds.")]


@app.command()
def server(
    name: Annotated[str, typer.Argument(metavar="NAME", help="For readers.")],
    host: Annotated[
        list[str], typer.Option("--host", metavar="NAME", help="Host name or IP address that clients connect to.")
    ],
    ca: _Directory = _FOLDER,
    days: _Days = 90,
) -> None:
    """Issue a certificate for `tls.certificate`, which MQTT and Web clients see. It is no broker's identity."""
    _issue_plain(name, ca, days, host)


@app.command()
def client(
    user: Annotated[str, typer.Argument(metavar="USER", help="The user whom the certificate identifies.")],
    ca: _Directory = _FOLDER,
    days: _Days = 365,
) -> None:
    """Issue a certificate to an MQTT client, with its key: it is that user (`tls.client_ca`), and no broker."""
    _issue_plain(user, ca, days, None)


def _issue_plain(name: str, ca: Path, days: float, hosts: list[str] | None) -> None:
    with refusing(OSError, FolderError, ValueError):
        if (fault := name_fault(name)) is not None:
            raise FolderError(fault)
        now = time.time()
        file = Folder(ca).issue_plain(name, now + days * DAY, now, hosts)
    typer.echo(f"{file}: {name}, until {_when(now + days * DAY)}")


@app.command()
def revoke(
    broker: Annotated[str | None, typer.Argument(metavar="NAME", help="Whose.")] = None,
    serial: Annotated[str | None, typer.Option("--serial", help="One certificate only, by its number.")] = None,
    ca: _Directory = _FOLDER,
) -> None:
    """Revoke the certificates of a broker, server or client, and write the list anew. Bring `revoked.pem` to all
    brokers: they take it while they run, and cut a broker's links; for clients see `tls.client_revoked`."""
    with refusing(OSError, FolderError, ValueError):
        if (broker is None) == (serial is None):
            raise FolderError("name a broker, or --serial")
        folder = Folder(ca)
        gone = folder.revoke(broker, serial.lower() if serial else None, time.time())
        if not gone:
            raise FolderError(f"{ca} has issued nothing to {broker or serial} that still holds")
    typer.echo(f"{folder.revoked}: {len(gone)} more revoked, of {gone[0].broker}")


@app.command("list")
def list_issued(
    ca: _Directory = _FOLDER,
    everything: Annotated[bool, typer.Option("--all", help="List ended ones, too.")] = False,
) -> None:
    """List what the authority has issued."""
    with refusing(OSError, FolderError, ValueError):
        entries = Folder(ca).entries()
    now = time.time()
    table = Table("broker", "cluster", "until (UTC)", "state", "serial")
    for entry in entries:
        if everything or entry.ends > now:
            table.add_row(entry.broker, entry.cluster, _when(entry.ends), _state(entry, now), entry.serial)
    Console(width=None if Console().is_terminal else 160).print(table)


@app.command()
def secret(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; it must not exist.")],
) -> None:
    """Write a secret for a small mesh (`links.secret_file`): whoever has it can be any broker."""
    with refusing(OSError, FolderError, ValueError):
        if file.exists():
            raise FolderError(f"{file} is there already")
        write(file, new_secret().encode() + b"\n", secret=True)
    typer.echo(f"{file}: a new secret; give it to each broker of the mesh, and to nobody else")


def _state(entry: Entry, now: float) -> str:
    return "revoked" if entry.revoked is not None else "ended" if entry.ends <= now else "holds"


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
