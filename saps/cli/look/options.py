"""The options with which every command chooses the broker to ask and the user to ask as."""

from __future__ import annotations

import getpass
import inspect
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from saps.cli.apps import refuse
from saps.cli.look.http_client import LOCAL, AskError, SilentError, WebPort, basic, url_of
from saps.cli.look.tables import safe
from saps.runtime.variables import URL_VARIABLE

WEB_VARIABLE = "SAPS_WEB"
"""Environment variable of the broker's own Web port: beside a broker, commands ask that one."""
Json = Annotated[bool, typer.Option("--json", help="Print JSON, a document a line.")]


def _port(
    web: Annotated[
        str,
        typer.Option(
            "--web",
            metavar="URL",
            envvar=[URL_VARIABLE, WEB_VARIABLE],
            help="A broker's Web port: http://HOST:PORT, or HOST:PORT as given to the broker.",
        ),
    ] = LOCAL,
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="A user who may receive $SYS/saps/mesh.")
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option("--password-file", metavar="FILE", help="Its first line is the password; else it is asked for."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="Its first line is sent as bearer token.")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option("--ca", metavar="FILE", help="Certificates (PEM) to trust with https.")
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE", help="Your own certificate and its key (PEM), with https."),
    ] = None,
) -> WebPort:
    """Return the Web port that the options name. Raises `AskError`."""
    return WebPort(url_of(web), _authorization(user, password_file, token_file), _tls(ca, certificate))


def asks(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `_port` to a command, which gets the resulting `WebPort` as its first argument.

    An `AskError` becomes one line on standard error and exit status 2."""
    shared = inspect.signature(_port, eval_str=True).parameters
    _, *own = inspect.signature(command, eval_str=True).parameters.values()

    def run(**given: Any) -> None:
        try:
            port = _port(**{name: given.pop(name) for name in shared})
            command(port, **given)
        except AskError as error:
            hint = "; name a broker's Web port with --web" if isinstance(error, SilentError) else ""
            raise refuse(f"{safe(str(error)).plain}{hint}") from None

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *shared.values())]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__doc__ = command.__doc__
    run.__name__ = command.__name__
    return run


def _authorization(user: str | None, password_file: Path | None, token_file: Path | None) -> str | None:
    if user is not None and token_file is not None:
        raise AskError("give --user or --token-file, not both")
    if token_file is not None:
        return f"Bearer {_first_line(token_file)}"
    if user is None:
        if password_file is not None:
            raise AskError("--password-file needs --user")
        return None
    if password_file is not None:
        return basic(user, _first_line(password_file))
    if not sys.stdin.isatty():
        raise AskError("--user needs --password-file where there is no terminal to ask at")
    return basic(user, getpass.getpass(f"Password of {user}: "))


def _tls(ca: Path | None, certificate: Path | None) -> ssl.SSLContext | None:
    if ca is None and certificate is None:
        return None
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(certificate)
    except (OSError, ValueError) as error:
        raise AskError(f"--ca, --certificate: {error}") from None
    return context


def _first_line(file: Path) -> str:
    try:
        return file.read_text().partition("\n")[0].strip()
    except (OSError, ValueError) as error:
        raise AskError(f"cannot read {file}: {error}") from None
