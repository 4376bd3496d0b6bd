"""Parses an ACL file (TOML) into a `Policy`, and reports each fault with its line and reason."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from saps.frontend.mqtt.access.acl import Action, Policy, Rule
from saps.frontend.mqtt.access.faults import Fault, FileError
from saps.frontend.mqtt.access.patterns import NamePattern, TopicPattern
from saps.frontend.mqtt.access.toml_lines import TomlLines
from saps.operations.roles import Role, Roles

T = TypeVar("T")

_ACTIONS = {"publish": Action.PUBLISH, "subscribe": Action.SUBSCRIBE, "both": Action.BOTH}
_DEFAULTS = {"deny": False, "allow": True}
_FILE_KEYS = ("default", "rule", "roles")
_ROLES = {role.word: role for role in Role if role is not Role.NONE}
_RULE_KEYS = ("allow", "deny", "topics", "users", "anonymous", "clients")
_AT_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")


def parse_acl(text: str) -> Policy:
    """Return the policy of an ACL file. Raises `FileError` with all faults of the text."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileError([_syntax_fault(str(error), text)]) from None
    return _Reading(table, TomlLines(text)).policy()


def _syntax_fault(message: str, text: str) -> Fault:
    found = _AT_LINE.search(message)
    line = int(found[1]) if found else text.count("\n") + 1
    return Fault(line, f"not valid TOML: {_AT_LINE.sub('', message)}")


class _Reading:
    """Converts the table of one file into a policy. It collects all faults, and `policy` raises them together."""

    def __init__(self, table: Mapping[str, Any], lines: TomlLines) -> None:
        self._table = table
        self._lines = lines
        self._faults: list[Fault] = []

    def policy(self) -> Policy:
        table = self._table
        for key in table:
            if key not in _FILE_KEYS:
                self._fault(self._file_line(key), _unknown(key, _FILE_KEYS))
        default = table.get("default", "deny")
        if not isinstance(default, str) or default not in _DEFAULTS:
            self._fault(self._file_line("default"), f"default must be 'deny' or 'allow', not {default!r}")
        entries = table.get("rule", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            self._fault(self._file_line("rule"), "rule must be written as tables: begin each with [[rule]]")
            entries = []
        rules = [self._rule(entry, index) for index, entry in enumerate(entries)]
        roles = self._roles(table["roles"]) if "roles" in table else None
        if self._faults:
            raise FileError(self._faults)
        return Policy(tuple(rule for rule in rules if rule is not None), _DEFAULTS[default], roles)

    def _roles(self, table: object) -> Roles | None:
        if not isinstance(table, dict):
            self._fault(self._file_line("roles"), "roles must be a table: begin it with [roles]")
            return None
        for key in table:
            if key not in _ROLES:
                self._fault(self._line(0, key, table="roles"), _unknown(key, tuple(_ROLES)))
        known = [key for key in table if key in _ROLES]
        return Roles({_ROLES[key]: self._patterns(table, 0, key, _user_pattern, "roles") for key in known})

    def _rule(self, entry: Mapping[str, Any], index: int) -> Rule | None:
        before = len(self._faults)
        for key in entry:
            if key not in _RULE_KEYS:
                self._fault(self._line(index, key), _unknown(key, _RULE_KEYS))
        effects = [key for key in ("allow", "deny") if key in entry]
        if len(effects) != 1:
            problem = "both allow and deny" if effects else "neither allow nor deny"
            self._fault(self._line(index), f"a rule needs one of them, and this one has {problem}")
        elif not isinstance(action := entry[effects[0]], str) or action not in _ACTIONS:
            self._fault(self._line(index, effects[0]), f"{effects[0]} must be {_choice(_ACTIONS)}, not {action!r}")
        anonymous = entry.get("anonymous", False)
        if anonymous is not True and "anonymous" in entry:
            self._fault(self._line(index, "anonymous"), f"anonymous can only be true, not {anonymous!r}: leave it out")
        if "anonymous" in entry and "users" in entry:
            self._fault(self._line(index, "anonymous"), "an anonymous client has no user: give users or anonymous")
        if "topics" not in entry:
            self._fault(self._line(index), "topics are missing: a topic filter, or a list of them")
        topics = self._patterns(entry, index, "topics", TopicPattern)
        users = self._patterns(entry, index, "users", _user_pattern)
        clients = self._patterns(entry, index, "clients", NamePattern)
        if len(self._faults) > before:
            return None
        return Rule(effects[0] == "allow", _ACTIONS[entry[effects[0]]], topics, users, anonymous, clients)

    def _patterns(
        self, entry: Mapping[str, Any], index: int, key: str, kind: Callable[[str], T], table: str = "rule"
    ) -> tuple[T, ...]:
        """Return the pattern of a key's text, or the patterns of its list of texts. Invalid texts become faults."""
        value = entry.get(key, ())
        texts = [value] if isinstance(value, str) else value
        if key in entry and (not isinstance(texts, list) or not texts):
            self._fault(self._line(index, key, 0, table), f"{key} must be a text or a list of texts, not {value!r}")
            return ()
        found = []
        for item, text in enumerate(texts):
            if not isinstance(text, str):
                self._fault(self._line(index, key, item, table), f"{key} must be texts, not {text!r}")
                continue
            try:
                found.append(kind(text))
            except ValueError as error:
                self._fault(self._line(index, key, item, table), f"{key}: {error}")
        return tuple(found)

    def _fault(self, line: int, reason: str) -> None:
        self._faults.append(Fault(line, reason))

    def _file_line(self, key: str) -> int:
        place = self._lines.place(key)
        headers = self._lines.headers.get(key)
        return place.line if place is not None else headers[0] if headers else 1

    def _line(self, index: int, key: str = "", item: int = 0, table: str = "rule") -> int:
        """Return the nearest known line: of the item, else of the key, the table or the file."""
        place = self._lines.place(key, table, index)
        if place is not None:
            return place.items[item] if item < len(place.items) else place.line
        return self._lines.table_line(table, index) or 1


def _user_pattern(text: str) -> NamePattern:
    if "%u" in text.replace("%%", ""):
        raise ValueError(f"{text!r}: %u is the user itself")
    return NamePattern(text)


def _choice(values: Mapping[str, object]) -> str:
    return " or ".join(map(repr, values))


def _unknown(key: str, known: tuple[str, ...]) -> str:
    import difflib  # here: a broker with a valid file never needs it

    close = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
    return f"{key!r} is not known here; {hint}"
