"""A policy file in XML, as in the paper (SDNPS 2016, 3.3), which does not print its elements; they follow the tree.

    <strategy version="3">
      <topic name="city"><topic name="health">
        <forbid cluster="osaka"/> <forbid broker="b7"/>
      </topic></topic>
      <cluster name="osaka"> <switch dpid="0000000000000003"/> </cluster>
    </strategy>

Nothing that expands is read: a file with a document type, where entities are declared, is refused at its first line.
"""

from __future__ import annotations

import re
from xml.parsers import expat

from saps.frontend.mqtt.access.faults import Fault, FileError
from saps.policy.draft import MOST_BYTES, Draft
from saps.policy.model import Policy

_WHOLE = re.compile(r"[0-9]{1,18}")
MOST_DEPTH = 64
"""Elements inside each other."""
_INSIDE = {"": ("strategy",), "strategy": ("topic", "cluster"), "topic": ("topic", "forbid"), "cluster": ("switch",)}
"""What each element may hold."""
_ATTRIBUTES = {
    "strategy": ("version",), "topic": ("name",), "forbid": ("cluster", "broker"), "cluster": ("name",),
    "switch": ("dpid",),
}  # fmt: skip


class _RefusedError(Exception):
    """The text must not be read on."""


def parse_xml(text: str) -> Policy:
    """The policy a text says. Raises `FileError`: each fault with its line and element."""
    if len(text.encode()) > MOST_BYTES:
        raise FileError([Fault(1, f"longer than {MOST_BYTES} bytes")])
    reading = _Reading()
    try:
        reading.parser.Parse(text.encode(), True)
    except _RefusedError:
        pass
    except expat.ExpatError as error:
        reading.draft.fault(error.lineno, f"not valid XML: {expat.ErrorString(error.code)}")
    return reading.draft.policy()


class _Reading:
    """One text on its way through the parser."""

    def __init__(self) -> None:
        self.draft = Draft()
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self._open: list[tuple[str, str]] = []
        """Elements begun, each with its name or, for a topic, the whole topic."""

    @property
    def _line(self) -> int:
        return self.parser.CurrentLineNumber

    def _doctype(self, *_: object) -> None:
        self.draft.fault(self._line, "<!DOCTYPE>: a document type, and so entities, are not read")
        raise _RefusedError

    def _text(self, text: str) -> None:
        if text.strip():
            self._fault(self._open[-1][0], f"text is not expected here: {text.strip()[:20]!r}")

    def _end(self, _: str) -> None:
        self._open.pop()

    def _start(self, element: str, attributes: dict[str, str]) -> None:
        father, above = self._open[-1] if self._open else ("", "")
        if len(self._open) >= MOST_DEPTH:
            self._fault(element, f"more than {MOST_DEPTH} elements inside each other")
            raise _RefusedError
        named = above
        if element not in _INSIDE.get(father, ()):
            self._fault(element, f"not expected {f'in <{father}>' if father else 'here: begin with <strategy>'}")
        elif self._attributes_fit(element, attributes):
            named = self._read(element, attributes, above)
        self._open.append((element, named))

    def _attributes_fit(self, element: str, attributes: dict[str, str]) -> bool:
        known = _ATTRIBUTES[element]
        wrong = [name for name in attributes if name not in known]
        for name in wrong:
            self._fault(element, f"attribute {name!r} is not known; known are {', '.join(known)}")
        if not wrong and len(attributes) != 1:
            self._fault(element, f"needs {' or '.join(known)}" if not attributes else f"one of {' and '.join(known)}")
        return not wrong and len(attributes) == 1

    def _read(self, element: str, attributes: dict[str, str], above: str) -> str:
        """Take an element in. Returns its name, for those inside it."""
        ((attribute, value),) = attributes.items()
        if element == "strategy":
            self.draft.version(int(value) if _WHOLE.fullmatch(value) else value, self._line)
            return ""
        if element == "topic":
            named = f"{above}/{value}" if self._open[-1][0] == "topic" else value
            self.draft.topic(named, self._line)
            return named
        if element == "forbid":
            forbid = self.draft.forbid_cluster if attribute == "cluster" else self.draft.forbid_broker
            forbid(above, value, self._line)
        elif element == "cluster":
            self.draft.cluster(value, self._line)
            return value
        else:
            self.draft.switch(above, value, self._line)
        return above

    def _fault(self, element: str, reason: str) -> None:
        self.draft.fault(self._line, f"<{element}>: {reason}")
