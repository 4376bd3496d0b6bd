"""Reads the flags of a program's settings without typer, which would take 2 MiB of each idle broker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_origin

import msgspec

from saps.config.knobs import SettingError
from saps.config.sources_io import Loaded, Program, assigned, kind_of
from saps.runtime.variables import CONFIG_VARIABLE

S = TypeVar("S", bound=msgspec.Struct)


class Flags(NamedTuple):
    """The flags of a program as given."""

    given: Mapping[str, Any]
    """Values by setting: text, True, or a list of texts; None if the flag was not given."""
    assignments: Iterable[str]
    """Values of ``--set``."""
    config: Path | None


def read(program: Program[S], arguments: Iterable[str], environ: Mapping[str, str]) -> Flags | None:
    """Return the flags among a program's arguments. Returns None if something is left to typer: help, a fault, or a
    form that is seldom used."""
    settings = {flag.partition(" ")[0]: name for name, flag in program.options.items()}
    found: dict[str, list[str]] = {flag: [] for flag in (*settings, "--set", "--config")}
    rest = iter(arguments)
    for argument in rest:
        flag, assigns, value = argument.partition("=")
        if argument == "-c":
            flag = "--config"
        if flag not in found or (flag in settings and kind_of(program.knobs[settings[flag]]) is bool):
            return None
        if not assigns and (value := next(rest, "-")).startswith("-"):
            return None
        found[flag].append(value)
    config = (found["--config"] or [environ.get(CONFIG_VARIABLE, "")])[-1]
    given = {name: _given(program, name, found[flag]) for flag, name in settings.items()}
    return Flags(given, found["--set"], Path(config) if config or found["--config"] else None)


def _given(program: Program[Any], setting: str, values: list[str]) -> Any:
    if not values:
        return None
    return joined(program, setting, values) if takes_several(program, setting) else values[-1]


def takes_several(program: Program[Any], setting: str) -> bool:
    """Return whether the flag of a setting may be repeated, because the setting is a list."""
    return get_origin(kind_of(program.knobs[setting])) is tuple


def joined(program: Program[Any], setting: str, values: list[str]) -> Any:
    """Return the values of a repeated flag as the setting takes them."""
    return ",".join(values) if program.knobs[setting].about.split else values


def serve(program: Program[S], flags: Flags, environ: Mapping[str, str], run: Callable[[S], int]) -> int:
    """Load the settings of a program, run it, and return the exit status. A `SettingError`, while loading or from
    `run`, becomes a line on standard error and status 2. The line names the setting, where it was set, and the
    fault."""
    loaded: Loaded[S] | None = None
    try:
        loaded = program.load({**flags.given, **assigned(flags.assignments)}, environ, flags.config)
        return run(loaded.settings)
    except SettingError as error:
        print(f"saps: {loaded.locate(error) if loaded is not None else error}", file=sys.stderr)
        return 2
