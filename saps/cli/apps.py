"""Declares the commands of `saps`. The module imports little, because starting a broker loads it as well."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

from saps.runtime.variables import CONFIG_VARIABLE

if TYPE_CHECKING:
    from saps.config.sources_io import Program

S = TypeVar("S", bound=msgspec.Struct)
Run = Callable[[S], int]


def command_app(name: str, completion: bool = False, **options: Any) -> typer.Typer:
    """Return the app in which a module declares its one command of `saps`.

    `completion` adds the options that install shell completion. `options` are further ones of `typer.Typer`."""
    return typer.Typer(
        name=name,
        add_completion=completion,
        rich_markup_mode="markdown",
        pretty_exceptions_show_locals=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        **options,
    )


def command_group(name: str, says: str) -> typer.Typer:
    """Return the app in which a module declares a command of `saps` that has commands of its own. `says` is its help
    text."""
    return command_app(name, no_args_is_help=True, help=says)


def refuse(*lines: str, status: int = 2) -> typer.Exit:
    """Print why a command fails, a line each on standard error, and return the exception to raise."""
    for line in lines:
        typer.echo(f"saps: {line}", err=True)
    return typer.Exit(status)


@contextmanager
def refusing(*expected: type[Exception]) -> Iterator[None]:
    """Turn expected errors into one line on standard error and exit status 2."""
    try:
        yield
    except expected as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise refuse(f"{error.filename}: {error.strerror}") from None
        raise refuse(str(error)) from None


def settings_command(app: typer.Typer, program: Program[S]) -> Callable[[Run[S]], Run[S]]:
    """Return a decorator that declares a command whose options are the flags of a program's settings.

    The decorated function gets the loaded settings and returns the exit status; see `saps.cli.flags.serve`.
    """
    from saps.cli.flags import Flags, serve

    def declare(run: Run[S]) -> Run[S]:
        def command(config: Path | None, assignments: list[str] | None = None, **flags: Any) -> None:
            given = {name: _given(flags[_parameter(name)], program, name) for name in program.options}
            raise typer.Exit(serve(program, Flags(given, assignments or (), config), os.environ, run))

        command.__doc__ = run.__doc__
        parameters = _parameters(program)
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # what typer reads
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        app.command()(command)
        return run

    return declare


def _parameter(setting: str) -> str:
    return setting.replace(".", "_")


def _given(value: Any, program: Program[Any], setting: str) -> Any:
    """Return the value of a flag, as text for a setting that is a list; None if the flag was not given."""
    from saps.cli.flags import joined

    return joined(program, setting, value) if isinstance(value, list) else None if value is False else value


def _parameters(program: Program[Any]) -> list[inspect.Parameter]:
    found = [_option(program, name, flag) for name, flag in program.options.items()]
    if program.options.keys() != program.knobs.keys():
        some = next(name for name in program.knobs if name not in program.options and "." in name)
        help_ = f"Any other setting, such as {some}."
        option = typer.Option("--set", metavar="NAME=VALUE", help=help_, show_default=False)
        found.append(_keyword("assignments", Annotated[list[str] | None, option]))
    config = typer.Option(
        "--config", "-c", metavar="FILE", envvar=CONFIG_VARIABLE, help="Settings in TOML.", show_default=False
    )
    return [*found, _keyword("config", Annotated[Path | None, config])]


def _option(program: Program[Any], setting: str, flag: str) -> inspect.Parameter:
    from saps.cli.flags import takes_several
    from saps.config.sources_io import kind_of

    knob = program.knobs[setting]
    name, _, metavar = flag.partition(" ")
    plain = knob.default in (msgspec.NODEFAULT, (), None, "", False)
    unit = f" ({knob.about.unit})" if knob.about.unit else ""
    help_ = f"{knob.about.text}{unit}." + ("" if plain else f" [default: {knob.default}]")
    option = typer.Option(name, metavar=metavar or None, help=help_.replace("[", r"\["), show_default=False)
    kind: Any = str | None
    if kind_of(knob) is bool:
        kind = bool
    elif takes_several(program, setting):
        kind = list[str] | None
    return _keyword(_parameter(setting), Annotated[kind, option], False if kind is bool else None)


def _keyword(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
