"""Reading the settings: flags over `SAPS_` environment variables over a TOML file over the defaults.

Every value keeps the place it came from, so that a fault is one line with setting, place and cause.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import msgspec

from saps.config.address import Address
from saps.config.knobs import Knob, SettingError, knobs
from saps.config.settings import BrokerSettings, disagreement

KNOBS = knobs(BrokerSettings)
"""All settings by dotted name."""
CONFIG_VARIABLE = "SAPS_CONFIG"
"""Names the TOML file, like ``--config``; the only `SAPS_` variable that is not a setting."""
_PREFIX = "SAPS_"
FLAGS = {
    "name": "--name",
    "cluster": "--cluster",
    "mqtt": "--mqtt",
    "overlay.listen": "--overlay",
    "overlay.alm_order": "--alm",
    "join": "--join",
    "web.listen": "--web",
    "upstream.url": "--upstream",
    "log_level": "--log-level",
}
"""The settings with a flag of their own; all others are given with ``--set``."""
_SHORTHAND = {"overlay": "overlay.listen", "upstream": "upstream.url", "web": "web.listen"}
"""``overlay``, ``upstream`` or ``web`` alone means the address, in all three sources: the rest of the table has
defaults."""


def flag_of(setting: str) -> str:
    """How a setting is given on the command line: ``--overlay`` for ``overlay.listen``."""
    return FLAGS.get(setting, "--set")


def variable_of(setting: str) -> str:
    """The environment variable of a setting: ``SAPS_OVERLAY__HEARTBEAT_INTERVAL``."""
    return _PREFIX + setting.upper().replace(".", "__")


def assigned(assignments: Iterable[str]) -> dict[str, str]:
    """The values of ``--set NAME=VALUE``, by name. Raises SettingError for one without a value."""
    values = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator:
            raise SettingError(assignment, "--set needs NAME=VALUE", "flag --set")
        values[name.strip()] = value.strip()
    return values


class Given(NamedTuple):
    """A value as it was written, and where. `text` is True if the source knows only text (all but TOML)."""

    value: Any
    source: str
    text: bool


class Loaded(NamedTuple):
    """The settings, and the place of each one that is not a default."""

    settings: BrokerSettings
    sources: Mapping[str, str]

    def locate(self, error: SettingError) -> SettingError:
        """The error of a running broker, with the value and the place of its setting."""
        name = _SHORTHAND.get(error.setting, error.setting)
        source = self.sources.get(name, "default" if name in KNOBS else None)
        return SettingError(error.setting, error.message, error.source or source)


def load(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Loaded:
    """The broker's settings. `flags` maps dotted names to values; None stands for a flag that was not given.

    Raises SettingError for the first fault: an unreadable file, an unknown key, a bad or a missing value.
    """
    given: dict[str, Given] = {}
    if file is not None:
        given |= _known(read_file(file))
    given |= _known(_from_environment(environ or {}))
    given |= _known(_from_flags(flags or {}))
    values = {name: _decode(KNOBS[name], entry) for name, entry in given.items()}
    if "name" not in values:
        raise SettingError("name", 'is missing: give --name, SAPS_NAME or a line such as name = "b1" in the file')
    sources = {name: entry.source for name, entry in given.items()}
    loaded = Loaded(_build(BrokerSettings, values, ""), sources)
    error = disagreement(loaded.settings)
    if error is not None:
        raise loaded.locate(error)
    return loaded


def faults_of_file(file: Path) -> list[SettingError]:
    """All that is wrong with a TOML file by itself, in the order of its lines. A missing name is no fault."""
    try:
        given = read_file(file)
    except SettingError as error:
        return [error]
    faults, values = [], {"name": "unnamed"}
    for name, entry in given.items():
        try:
            values |= {known: _decode(KNOBS[known], entry) for known in _known({name: entry})}
        except SettingError as error:
            faults.append(error)
    if not faults:
        sources = {name: entry.source for name, entry in given.items()}
        loaded = Loaded(_build(BrokerSettings, values, ""), sources)
        conflict = disagreement(loaded.settings)
        faults = [] if conflict is None else [loaded.locate(conflict)]
    return faults


def read_file(file: Path) -> dict[str, Given]:
    """The values of a TOML file by dotted name, known or not. Raises SettingError("config") if unreadable."""
    try:
        text = file.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except OSError as error:
        raise SettingError("config", f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError("config", f"{file} is not valid TOML: {error}") from error
    lines = _line_numbers(text)
    found = {}
    for name, value in _leaves(table):
        line = _line_of(name, lines)
        found[_SHORTHAND.get(name, name)] = Given(value, f"{file}:{line}" if line else str(file), text=False)
    return found


def token(setting: str, path: str) -> str:
    """The first line of the file that a setting names; empty without a file. Raises `SettingError`."""
    if not path:
        return ""
    try:
        return Path(path).read_text().partition("\n")[0].strip()
    except (OSError, ValueError) as error:
        raise SettingError(setting, f"cannot read {path}: {error}") from None


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, dict) and (value or any(known.startswith(name + ".") for known in KNOBS)):
            yield from _leaves(value, name + ".")
        else:
            yield name, value


_HEADER = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]")
_ENTRY = re.compile(r"\s*([A-Za-z0-9_.\-\"' ]+?)\s*=")


def _line_numbers(text: str) -> dict[str, int]:
    """The line of each ``key =``, which `tomllib` does not tell; of a value over several lines, the first."""
    lines: dict[str, int] = {}
    prefix = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            prefix = _bare(header[1]) + "."
        elif entry := _ENTRY.match(line):
            lines.setdefault(prefix + _bare(entry[1]), number)
    return lines


def _line_of(name: str, lines: Mapping[str, int]) -> int | None:
    """The line of a setting, or of the inline table it stands in."""
    while name and name not in lines:
        name = name.rpartition(".")[0]
    return lines.get(name)


def _bare(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))


def _from_flags(flags: Mapping[str, Any]) -> dict[str, Given]:
    return {
        name: Given(value, f"flag {flag_of(name)}", text=True) for name, value in flags.items() if value is not None
    }


def _from_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    found = {}
    for variable, value in environ.items():
        if variable.startswith(_PREFIX) and variable != CONFIG_VARIABLE:
            name = variable.removeprefix(_PREFIX).lower().replace("__", ".")
            found[_SHORTHAND.get(name, name)] = Given(value, f"variable {variable}", text=True)
    return found


def _known(given: Mapping[str, Given]) -> dict[str, Given]:
    """`given`, if all its names are settings; else SettingError with the nearest one."""
    for name, entry in given.items():
        if name not in KNOBS:
            close = difflib.get_close_matches(name, KNOBS, n=1, cutoff=0.7) or [
                full for full in KNOBS if full.endswith("." + name)
            ]
            hint = f"; did you mean {close[0]}?" if close else ""
            raise SettingError(name, f"there is no such setting{hint}", entry.source)
    return dict(given)


def _decode(knob: Knob, given: Given) -> Any:
    """The value of a setting in its declared type. Raises SettingError with the place it was written at."""
    kind = get_args(knob.type)[0]
    try:
        if kind is Address:
            value: Any = _address(given.value)
        elif kind == tuple[Address, ...]:
            value = tuple(_address(text) for text in _list(given.value))
        elif kind == tuple[str, ...]:
            value = msgspec.convert(_list(given.value, "texts"), knob.type)
        else:
            value = msgspec.convert(given.value, knob.type, strict=not given.text)
    except ValueError as error:
        raise SettingError(knob.name, _reason(error, given, kind), given.source) from error
    if knob.about.check is not None:
        for part in value if get_origin(kind) is tuple else (value,):
            if (fault := knob.about.check(part)) is not None:
                raise SettingError(knob.name, fault, given.source)
    return value


def _address(value: Any) -> Address:
    if not isinstance(value, str):
        raise ValueError(f'{value!r} is not an address: expected text such as "127.0.0.1:1883"')
    return Address.parse(value)


def _list(value: Any, of: str = "addresses") -> list[Any]:
    """Text is a list joined by commas, as in an environment variable."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        raise ValueError(f"{value!r} is not a list of {of}")
    return list(value)


def _reason(error: ValueError, given: Given, kind: Any) -> str:
    if not isinstance(error, msgspec.ValidationError):
        return str(error)
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    what = f"expected {' or '.join(map(repr, choices))}" if choices else str(error).replace("`", "")
    return f"{given.value!r} does not fit: {what[0].lower()}{what[1:]}"


def _build(struct: type[Any], values: Mapping[str, Any], prefix: str) -> Any:
    arguments = {}
    for field in msgspec.structs.fields(struct):
        name = prefix + field.encode_name
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            arguments[field.name] = _build(field.type, values, name + ".")
        elif name in values:
            arguments[field.name] = values[name]
    return struct(**arguments)
