"""The commands ``saps storage``: verify what is stored, export it, repair damage, and make a backup.

Exit status: 0 if everything is intact and done, 1 for damage, 2 if the storage cannot be used. In the last case a line
on standard error says why.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from saps.cli.apps import command_group, refusing
from saps.cli.look.tables import safe
from saps.storage.damage import StorageError
from saps.storage.driver.copying import Examined, brokers, examine, repair_rows
from saps.storage.driver.copying import backup as copy_of
from saps.storage.driver.copying import repair as repaired
from saps.storage.driver.exporting import records
from saps.storage.place import Server, shown, url_fault

app = command_group(
    "storage", "What a broker has stored, in a file or in a database of its site: verify, export, repair, back up."
)

_Stored = Annotated[
    str, typer.Argument(metavar="FILE|URL", help="What `storage.file` or `storage.url` says.", show_default=False)
]
_File = Annotated[str, typer.Argument(metavar="FILE", help="The file of `storage.file`.", show_default=False)]
_New = Annotated[Path, typer.Argument(metavar="NEW", help="The file to write; it must not exist.", show_default=False)]
_NewFile = Annotated[
    Path | None, typer.Argument(metavar="[NEW]", help="The file to write, for a file.", show_default=False)
]
_Broker = Annotated[str, typer.Option("--broker", metavar="NAME", help="Whose rows in the database.")]


@app.command()
def verify(stored: _Stored, broker: _Broker = "") -> None:
    """Read every record and compare it with its checksum, and a file with its marks.

    Of a database all brokers' rows, or those of one. Says what is damaged or missing, a line each. Exit status: 0 if
    all is intact, 1 if not, 2 if nothing can be read.
    """
    damaged = False
    with refusing(StorageError):
        for place in _places(stored, broker):
            found = examine(place)
            damaged = damaged or bool(found.faults)
            for table, reason, _ in found.reader.quarantine:
                _say(f"set aside at an earlier start: {reason or table}")
            _say_faults(found)
            state = found.reader.state
            number = "" if state is None else f"; {state.number} transactions"
            _say(f"{place}: {'damaged' if found.faults else 'intact'}; {_content(found)}{number}")
    if damaged:
        raise typer.Exit(1)


@app.command()
def export(stored: _Stored, broker: _Broker = "") -> None:
    """Print all that is intact as JSON, a record a line.

    The member `record` says what it is: session, subscription, message (of a session, with its `serial`), release,
    incoming, retained, set aside. Payloads and other bytes are base64, times seconds since 1970.
    What is damaged is said on standard error; then the exit status is 1.
    """
    with refusing(StorageError):
        found = examine(_place(stored, broker))
    for record in records(found):
        sys.stdout.buffer.write(msgspec.json.encode(record) + b"\n")
    sys.stdout.flush()
    _say_faults(found, err=True)
    if found.faults:
        raise typer.Exit(1)


@app.command()
def repair(stored: _Stored, new: _NewFile = None, broker: _Broker = "") -> None:
    """Write a new file of all that is intact in a damaged one, and say what was dropped.

    The damaged file stays as it is. Stop its broker before, and start it with `storage.file` set to the new one:

        saps storage repair /var/lib/saps/b1.db /var/lib/saps/b1.repaired.db

    In a database intact rows take the place of all rows of a broker, which are kept under another name.
    """
    with refusing(StorageError):
        place = _place(stored, broker)
        if isinstance(place, Server):
            if new is not None:
                raise StorageError(f"{new}: rows of a database are repaired in it; give no file")
            found, name = repair_rows(place)
        elif new is None:
            raise StorageError("name the file to write")
        else:
            found, name = repaired(place, new), ""
    _say_faults(found)
    aside = (
        f"; {len(found.reader.quarantine)} records set aside earlier are not in it" if found.reader.quarantine else ""
    )
    kept = f"; what was there is kept as broker {name!r}" if name else ""
    _say(f"{new or place}: {_content(found)}{aside}{kept}")


@app.command()
def backup(file: _File, new: _New) -> None:
    """Copy the file as it is at this moment, also while its broker writes; every record of the copy is checked.

    A broker of the same name starts from the copy: `storage.file` set to NEW (move it together with NEW-mark). What it
    has delivered since then it delivers again, what it has taken since then is not in it.
    """
    with refusing(StorageError):
        if "://" in file:
            raise StorageError("a database is backed up by its own means: pg_dump --table='saps_*' (docs/storage.md)")
        size = copy_of(Path(file), new)
    _say(f"{new}: {size:,} bytes")


def _places(stored: str, broker: str) -> list[Path | Server]:
    """Return the places to examine: a file, or the rows in a database of `broker`, or of all brokers for an empty name.

    Raises `StorageError` for a broker with a file, or for a malformed URL."""
    if "://" not in stored:
        if broker:
            raise StorageError(f"{stored}: a file has the records of one broker; --broker is for a database")
        return [Path(stored)]
    if (fault := url_fault(stored)) is not None:
        raise StorageError(f"the URL {fault}")
    names = [broker] if broker else brokers(Server(stored, ""))
    return [Server(stored, name) for name in names]


def _place(stored: str, broker: str) -> Path | Server:
    """Return a file, or the rows of one broker. Raises `StorageError` also if the database has several brokers."""
    found = _places(stored, broker)
    if len(found) != 1:
        names = ", ".join(place.broker for place in found if isinstance(place, Server))
        raise StorageError(f"{shown(stored)}: name one with --broker: {names or 'it has nothing of any broker'}")
    return found[0]


def _content(found: Examined) -> str:
    saved = found.reader.saved
    copies = sum(len(session.copies) for session in saved.sessions)
    return f"{len(saved.sessions)} sessions, {copies} messages for them, {len(saved.retained)} retained messages"


def _say_faults(found: Examined, err: bool = False) -> None:
    for fault in found.faults:
        _say(f"damaged: {fault}", err)


def _say(text: str, err: bool = False) -> None:
    typer.echo(safe(text).plain, err=err)
