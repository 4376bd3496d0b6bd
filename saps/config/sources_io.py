"""Reads the settings. Flags override `SAPS_` environment variables, these a TOML file, and the file the defaults.

Each value keeps its source, so that a fault is one line with setting, source and cause. One file and one environment
serve all programs: the controller, OFGate and the monitor have tables of their names, which other programs ignore.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from saps.config.address import Address
from saps.config.knobs import Knob, SettingError, knobs
from saps.config.settings import BrokerSettings, disagreement
from saps.frontend.mqtt.access.toml_lines import TomlLines
from saps.runtime.variables import CONFIG_VARIABLE, URL_VARIABLE

S = TypeVar("S", bound=msgspec.Struct)

_PREFIX = "SAPS_"
_LINK_IDS = {"overlay": "overlay.listen", "upstream": "upstream.url", "web": "web.listen"}
"""Short names of settings, for all three sources: ``overlay``, ``upstream`` or ``web`` alone means the address, as the
rest of the table has defaults."""
TABLES = {
    "controller": "saps.ofm.controller.driver.settings",
    "ofgate": "saps.config.ofgate_io",
    "monitor": "monitoring.settings",
}
"""Tables of programs other than the broker, and the modules whose `PROGRAM` declares them."""


def variable_of(setting: str) -> str:
    """Return the environment variable of a setting, such as ``SAPS_OVERLAY__HEARTBEAT_INTERVAL``."""
    return _PREFIX + setting.upper().replace(".", "__")


def assigned(assignments: Iterable[str]) -> dict[str, str]:
    """Return the values of ``--set NAME=VALUE`` by name. Raises `SettingError` for an assignment without ``=``."""
    values = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator:
            raise SettingError(assignment, "--set needs NAME=VALUE", "flag --set")
        values[name.strip()] = value.strip()
    return values


class Given(NamedTuple):
    """A value as written, and its source. `text` is True if the source has only text (all but TOML)."""

    value: Any
    source: str
    text: bool


class Loaded(NamedTuple, Generic[S]):
    """The settings of a program, and the source of each value that is not a default, by dotted name."""

    settings: S
    sources: Mapping[str, str]
    program: Program[S]

    def locate(self, error: SettingError) -> SettingError:
        """Return an error of the running program with the full name and the source of its setting."""
        known, own = self.program.knobs, self.program.table + error.setting
        name = own if own in known else _LINK_IDS.get(error.setting, error.setting)
        source = self.sources.get(name, "default" if name in known else None)
        shown = own if own in known else error.setting
        return SettingError(shown, error.message, error.source or source)


@dataclass(frozen=True)
class Program(Generic[S]):
    """The settings of one program. Its flags, variables and tables all come from here."""

    struct: type[S]
    table: str = ""
    """Prefix of the names of its settings, such as ``controller.``."""
    flagged: str = ""
    """Prefix of the settings whose declared flags the program has."""
    declared_flags: Mapping[str, str] = field(default_factory=dict)
    """Flags of further settings, in the form of `About.flag`."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """By setting: the program's own setting that replaces it, unless a flag gives a value."""
    disagreement: Callable[[S], SettingError | None] = lambda settings: None
    """Returns the first fault of settings that are valid alone but cannot be used together, or None."""

    @cached_property
    def knobs(self) -> dict[str, Knob]:
        """The declarations of all settings by dotted name."""
        return knobs(self.struct, self.table)

    @cached_property
    def options(self) -> dict[str, str]:
        """By setting: its flag and the name of the flag's value. Other settings are given with ``--set``."""
        own = {
            name: knob.about.flag
            for name, knob in self.knobs.items()
            if knob.about.flag and name.startswith(self.flagged)
        }
        return {**own, **self.declared_flags}

    def flag_of(self, setting: str) -> str:
        """Return the flag of a setting, such as ``--overlay`` for ``overlay.listen``."""
        return self.options.get(setting, "--set").partition(" ")[0]

    def load(
        self,
        flags: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        file: Path | None = None,
    ) -> Loaded[S]:
        """Load the settings. `flags` maps dotted names to values; None means that the flag was not given.

        Raises `SettingError` for the first fault: an unreadable file, an unknown name, a bad or a missing value.
        """
        given: dict[str, Given] = {}
        if file is not None:
            given |= self._known(read_file(file))
        given |= self._known(_from_environment(environ or {}))
        given = {name: entry for name, entry in given.items() if name not in self.replaced}
        by_flag = self._from_flags(flags or {})
        for name, entry in by_flag.items():
            if name not in self.knobs:
                raise unknown(name, entry, self.knobs)
        given |= by_flag
        values = {name: _decode(self.knobs[name], entry) for name, entry in given.items()}
        sources = {name: entry.source for name, entry in given.items()}
        for name, own in self.replaced.items():
            if name not in by_flag:
                values[name] = values.get(own, self.knobs[own].default)
                sources |= {name: sources[own]} if own in sources else {}
        self._require(values)
        loaded = Loaded(_build(self.struct, values, self.table), sources, self)
        error = self.disagreement(loaded.settings)
        if error is not None:
            raise loaded.locate(error)
        return loaded

    def _require(self, values: Mapping[str, Any]) -> None:
        for name, knob in self.knobs.items():
            if knob.default is msgspec.NODEFAULT and name not in values:
                how = f"{self.flag_of(name)}, {variable_of(name)} or a line such as"
                raise SettingError(name, f'is missing: give {how} {name} = "..." in the file')

    def _from_flags(self, flags: Mapping[str, Any]) -> dict[str, Given]:
        return {
            name: Given(value, f"flag {self.flag_of(name)}", text=True)
            for name, value in flags.items()
            if value is not None
        }

    def _known(self, given: Mapping[str, Given]) -> dict[str, Given]:
        """Return the values of this program's settings. Raises `SettingError`, with the nearest name, for an unknown
        name."""
        for name, entry in given.items():
            if name not in self.knobs and not self._foreign(name):
                raise unknown(name, entry, self.knobs)
        return {name: entry for name, entry in given.items() if name in self.knobs}

    def _foreign(self, name: str) -> bool:
        """Return whether a name belongs to another program."""
        if self.table:
            return not name.startswith(self.table)
        table = name.partition(".")[0]
        return table in TABLES and not any(known.startswith(table + ".") for known in self.knobs)


def unknown(name: str, entry: Given, known: Iterable[str]) -> SettingError:
    """Return the error of a name that no setting has, with the nearest of the `known` names."""
    import difflib  # here: a broker that starts without a fault needs none of it

    known = list(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.7) or [
        full for full in known if full.endswith("." + name)
    ]
    hint = f"; did you mean {close[0]}?" if close else ""
    return SettingError(name, f"there is no such setting{hint}", entry.source)


BROKER = Program(BrokerSettings, disagreement=disagreement)
KNOBS = BROKER.knobs
"""The declarations of all settings of a broker by dotted name."""
load = BROKER.load


def faults_of_file(file: Path) -> list[SettingError]:
    """Return all faults of a TOML file, in the order of its lines, for every program that has a table in it.

    A missing value is no fault, as a flag may give it."""
    try:
        given = read_file(file)
    except SettingError as error:
        return [error]
    tables = sorted({name.partition(".")[0] for name in given} & TABLES.keys())
    programs: list[Program[Any]] = [BROKER, *(importlib.import_module(TABLES[table]).PROGRAM for table in tables)]
    every = {name: knob for program in programs for name, knob in program.knobs.items()}
    faults, values = [], {"name": "unnamed"}
    for name, entry in given.items():
        try:
            if name not in every:
                raise unknown(name, entry, every)
            values[name] = _decode(every[name], entry)
        except SettingError as error:
            faults.append(error)
    sources = {name: entry.source for name, entry in given.items()}
    for program in programs if not faults else ():
        if all(knob.default is not msgspec.NODEFAULT or name in values for name, knob in program.knobs.items()):
            loaded = Loaded(_build(program.struct, values, program.table), sources, program)
            conflict = program.disagreement(loaded.settings)
            faults += [loaded.locate(conflict)] if conflict is not None else []
    return faults


def read_file(file: Path) -> dict[str, Given]:
    """Return the values of a TOML file by dotted name, known or not.

    Raises `SettingError` ("config") if the file cannot be read or is not valid TOML."""
    try:
        text = file.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except OSError as error:
        raise SettingError("config", f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError("config", f"{file} is not valid TOML: {error}") from error
    lines = TomlLines(text)
    found = {}
    for name, value in _leaves(table):
        line = lines.line_of(name)
        found[_LINK_IDS.get(name, name)] = Given(value, f"{file}:{line}" if line else str(file), text=False)
    return found


def token(setting: str, path: str | Path | None) -> str:
    """Return the first line of the file that a setting names; empty if `path` is.

    Raises `SettingError` if the file cannot be read or its first line is empty."""
    if not path:
        return ""
    try:
        found = Path(path).read_text().partition("\n")[0].strip()
    except (OSError, ValueError) as error:
        raise SettingError(setting, f"cannot read {path}: {error}") from None
    if not found:
        raise SettingError(setting, f"the first line of {path} is empty")
    return found


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, dict) and (value or name in TABLES or any(k.startswith(name + ".") for k in KNOBS)):
            yield from _leaves(value, name + ".")
        else:
            yield name, value


def _from_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    found = {}
    for variable, value in environ.items():
        if variable.startswith(_PREFIX) and variable not in (CONFIG_VARIABLE, URL_VARIABLE):
            name = variable.removeprefix(_PREFIX).lower().replace("__", ".")
            found[_LINK_IDS.get(name, name)] = Given(value, f"variable {variable}", text=True)
    return found


def kind_of(knob: Knob) -> Any:
    """Return the declared type of a setting without its explanation, and without ``| None``."""
    kind = get_args(knob.type)[0]
    some = [part for part in get_args(kind) if part is not type(None)]
    return some[0] if type(None) in get_args(kind) and len(some) == 1 else kind


def _decode(knob: Knob, given: Given) -> Any:
    """Return the value of a setting in its declared type. Raises `SettingError` with the value's source."""
    kind = kind_of(knob)
    try:
        value = _converted(knob, given, kind)
    except ValueError as error:
        raise SettingError(knob.name, _reason(error, given, kind), given.source) from error
    if knob.about.check is not None:
        for part in value if get_origin(kind) is tuple else (value,):
            if (fault := knob.about.check(part)) is not None:
                raise SettingError(knob.name, fault, given.source)
    return value


def _converted(knob: Knob, given: Given, kind: Any) -> Any:
    value = given.value
    if knob.about.parse is not None:
        return knob.about.parse(str(value))
    if kind is Address:
        return _address(value)
    if kind == tuple[Address, ...]:
        return tuple(_address(text) for text in _list(value))
    if kind == tuple[str, ...]:
        return msgspec.convert(_list(value, "texts", knob.about.split), knob.type)
    if kind is Path:
        return Path(msgspec.convert(value, str))
    bounded = Annotated[(kind, *knob.type.__metadata__)]  # bounds hold for the number, not for None
    return msgspec.convert(value, bounded, strict=not given.text)


def _address(value: Any) -> Address:
    if not isinstance(value, str):
        raise ValueError(f'{value!r} is not an address: expected text such as "127.0.0.1:1883"')
    return Address.parse(value)


def _list(value: Any, of: str = "addresses", split: bool = True) -> list[Any]:
    """Return a value as a list. With `split`, text is a list joined by commas, as in an environment variable."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()] if split else [value]
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
    for each in msgspec.structs.fields(struct):
        name = prefix + each.encode_name
        if isinstance(each.type, type) and issubclass(each.type, msgspec.Struct):
            arguments[each.name] = _build(each.type, values, name + ".")
        elif name in values:
            arguments[each.name] = values[name]
    return struct(**arguments)
