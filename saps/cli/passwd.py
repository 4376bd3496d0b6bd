"""The command ``saps passwd``: adds a user to a password file, changes a password, or removes a user.

Exit status: 0 if the file was changed, 2 if not. In the second case a line on standard error says why, and the file is
unchanged.
"""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from saps.cli.apps import command_app, refuse
from saps.frontend.mqtt.access.faults import FileError
from saps.frontend.mqtt.access.users import user_name_fault
from saps.frontend.mqtt.driver.access_files import edit_users

app = command_app("passwd")

MAX_PASSWORD_BYTES = 65535
"""Greatest length of a password in CONNECT (MQTT 5, 3.1.3.6)."""


@app.command()
def passwd(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The password file; made if missing.")],
    user: Annotated[str, typer.Argument(metavar="USER", help="The user's name.")],
    scram: Annotated[
        bool, typer.Option("--scram", help="Store keys of SCRAM-SHA-256: MQTT 5 clients can prove the password.")
    ] = False,
    delete: Annotated[bool, typer.Option("--delete", "-d", help="Remove the user from the file.")] = False,
) -> None:
    r"""Set a user's password in a password file.

    The password is asked for twice, unseen. In a pipe it is the first line of standard input:

        pwgen 20 1 | saps passwd /etc/saps/passwords sensor-7

    The file is replaced in one step, so a broker never reads half of it. Send the broker SIGHUP afterwards.
    """
    try:
        if (fault := user_name_fault(user)) is not None:
            raise ValueError(fault)
        change = edit_users(file, user, None if delete else _password(user), scram)
    except FileError as error:
        raise refuse(*(f"{file}:{fault.line}: {fault.reason}" for fault in error.faults)) from None
    except OSError as error:
        raise refuse(f"cannot write {file}: {error.strerror}") from None
    except (ValueError, EOFError) as error:
        raise refuse(str(error)) from None
    typer.echo(f"{file}: {change} {user}")


def _password(user: str) -> bytes:
    """Read a password, twice and without echo from a terminal, or from a line of the pipe.

    Raises `ValueError` for an empty or too long password, or for two that differ."""
    if sys.stdin.isatty():
        password = getpass.getpass(f"Password of {user}: ").encode()
        if password != getpass.getpass("Once more: ").encode():
            raise ValueError("the two passwords differ")
    else:
        line = sys.stdin.buffer.readline(MAX_PASSWORD_BYTES + 3)
        password = line.removesuffix(b"\n").removesuffix(b"\r")
    if not password:
        raise ValueError("the password is empty")
    if len(password) > MAX_PASSWORD_BYTES:
        raise ValueError(f"the password is longer than {MAX_PASSWORD_BYTES} bytes")
    return password
