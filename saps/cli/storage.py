"""The commands ``saps storage``: is a storage file sound, what is in it, and how to go on without what is damaged.

Exit status: 0 if the file is sound and all is done, 1 if it is damaged, 2 if it cannot be used; then a line on standard
error says why.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from saps.cli.look.tables import safe
from saps.storage.damage import StorageError
from saps.storage.driver.copying import Examined, examine
from saps.storage.driver.copying import backup as copy_of
from saps.storage.driver.copying import repair as repaired
from saps.storage.driver.exporting import records

app = typer.Typer(
    name="storage",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A broker's storage file: verify, export, repair, back up. None of them changes it; its broker may run.",
)

_File = Annotated[Path, typer.Argument(metavar="FILE", help="The file of `storage.file`.", show_default=False)]
_New = Annotated[Path, typer.Argument(metavar="NEW", help="The file to write; it must not exist.", show_default=False)]


@app.command()
def verify(file: _File) -> None:
    """Read every record and compare it with its checksum, and the file with its marks.

    Says what is damaged or missing, a line each. Exit status: 0 if the file is sound, 1 if not, 2 if nothing can be
    read.
    """
    with _refusing():
        found = examine(file)
    for table, reason, _ in found.reader.quarantine:
        _say(f"set aside at an earlier start: {reason or table}")
    _say_faults(found)
    state = found.reader.state
    number = "" if state is None else f"; {state.number} transactions"
    _say(f"{file}: {'damaged' if found.faults else 'sound'}; {_content(found)}{number}")
    if found.faults:
        raise typer.Exit(1)


@app.command()
def export(file: _File) -> None:
    """Print all that is sound as JSON, a record a line.

    The member `record` says what it is: session, subscription, message (of a session, with its `serial`), release,
    incoming, retained, set aside. Payloads and other bytes are base64, times seconds since 1970.
    What is damaged is said on standard error; then the exit status is 1.
    """
    with _refusing():
        found = examine(file)
    for record in records(found):
        sys.stdout.buffer.write(msgspec.json.encode(record) + b"\n")
    sys.stdout.flush()
    _say_faults(found, err=True)
    if found.faults:
        raise typer.Exit(1)


@app.command()
def repair(file: _File, new: _New) -> None:
    """Write a new file of all that is sound in a damaged one, and say what was dropped.

    The damaged file stays as it is. Stop its broker before, and start it with `storage.file` set to the new one:

        saps storage repair /var/lib/saps/b1.db /var/lib/saps/b1.repaired.db
    """
    with _refusing():
        found = repaired(file, new)
    _say_faults(found)
    aside = (
        f"; {len(found.reader.quarantine)} records set aside earlier are not in it" if found.reader.quarantine else ""
    )
    _say(f"{new}: {_content(found)}{aside}")


@app.command()
def backup(file: _File, new: _New) -> None:
    """Copy the file as it is at this moment, also while its broker writes; every record of the copy is checked.

    A broker of the same name starts from the copy: `storage.file` set to NEW (move it together with NEW-mark). What it
    has delivered since then it delivers again, what it has taken since then is not in it.
    """
    with _refusing():
        size = copy_of(file, new)
    _say(f"{new}: {size:,} bytes")


def _content(found: Examined) -> str:
    saved = found.reader.saved
    copies = sum(len(session.copies) for session in saved.sessions)
    return f"{len(saved.sessions)} sessions, {copies} messages for them, {len(saved.retained)} retained messages"


def _say_faults(found: Examined, err: bool = False) -> None:
    for fault in found.faults:
        _say(f"damaged: {fault}", err)


def _say(text: str, err: bool = False) -> None:
    typer.echo(safe(text).plain, err=err)


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        typer.echo(f"saps: {error}", err=True)
        raise typer.Exit(2) from None
