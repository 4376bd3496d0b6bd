"""How a setting is declared, so that code can find its explanation, its bounds and its default again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class SettingError(ValueError):
    """A setting that cannot be used: its dotted name, what is wrong with it, and where it was set, if known.

    Loading raises it for a bad value; a running broker when the world refuses a good one (a port in use).
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
    """What a reader should know of a setting."""

    text: str
    unit: str = ""
    cost: str = ""
    """What raising the value costs."""
    check: Callable[[Any], str | None] | None = None
    """A further condition on the decoded value (or on each of a tuple's): why it fails, or None."""
    parse: Callable[[str], Any] | None = None
    """From text to the value, where the type alone does not say how. Raises ValueError."""
    flag: str = ""
    """The option of the command line, and how its value is called: ``--join HOST:PORT``."""
    split: bool = True
    """Commas in text separate the values of a tuple."""


def knob(text: str, **described: Any) -> msgspec.Meta:
    """To be put into a field's `Annotated` type. `described`: fields of `About`, and the bounds of `msgspec.Meta`
    (``ge``, ``le``, ``gt``)."""
    bounds = {name: described.pop(name) for name in ("ge", "le", "gt") if name in described}
    info = About(text=text, **described)
    return msgspec.Meta(description=text, extra={"about": info}, **bounds)


class Knob(msgspec.Struct, frozen=True):
    """One setting: dotted name, declared type, default (`msgspec.NODEFAULT` if required), explanation."""

    name: str
    type: Any
    default: Any
    about: About


def knobs(struct: type[msgspec.Struct], prefix: str = "") -> dict[str, Knob]:
    """All settings of a struct and those nested in it, by dotted name, in the order of declaration."""
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
