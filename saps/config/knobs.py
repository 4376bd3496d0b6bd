"""Declares settings, and reads their explanations, bounds and defaults from the declarations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class SettingError(ValueError):
    """A setting that cannot be used: its dotted name, the fault, and the source of the value, if known.

    Loading raises it for a bad value. A running broker raises it if a valid value fails, such as a port in use.
    """

    def __init__(self, setting: str, message: str, source: str | None = None) -> None:
        self.setting = setting
        self.message = message
        self.source = source
        super().__init__(setting, message, source)

    def __str__(self) -> str:
        where = f" ({self.source})" if self.source else ""
        return f"{self.setting}{where}: {self.message}"


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of a setting, for readers and for the loader."""

    text: str
    unit: str = ""
    cost: str = ""
    """The cost of raising the value."""
    check: Callable[[Any], str | None] | None = None
    """A check of the decoded value, or of each value of a tuple. It returns the fault, or None."""
    parse: Callable[[str], Any] | None = None
    """Converts text to the value, where the type alone does not say how. Raises `ValueError`."""
    flag: str = ""
    """The option of the command line, with the name of its value: ``--join HOST:PORT``."""
    split: bool = True
    """Whether commas in text separate the values of a tuple."""


def knob(text: str, **described: Any) -> msgspec.Meta:
    """Return the declaration of a setting, for a field's `Annotated` type.

    `described` has fields of `About`, and the bounds of `msgspec.Meta` (``ge``, ``le``, ``gt``)."""
    bounds = {name: described.pop(name) for name in ("ge", "le", "gt") if name in described}
    info = About(text=text, **described)
    return msgspec.Meta(description=text, extra={"about": info}, **bounds)


class Knob(msgspec.Struct, frozen=True):
    """One setting: its dotted name, declared type, default (`msgspec.NODEFAULT` if required) and explanation."""

    name: str
    type: Any
    default: Any
    about: About


def knobs(struct: type[msgspec.Struct], prefix: str = "") -> dict[str, Knob]:
    """Return all settings of a struct and of nested structs, by dotted name, in the order of declaration.

    Raises `TypeError` for a field declared without `knob`."""
    found: dict[str, Knob] = {}
    for field in msgspec.structs.fields(struct):
        name = prefix + field.encode_name
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            found |= knobs(field.type, name + ".")
        else:
            found[name] = Knob(name, field.type, field.default, _about(field.type))
    return found


def _about(annotated: Any) -> About:
    for meta in annotated.__metadata__:
        if isinstance(meta, msgspec.Meta) and meta.extra is not None:
            info: About = meta.extra["about"]
            return info
    raise TypeError(f"{annotated} is declared without `knob`")
