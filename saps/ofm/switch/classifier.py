"""Finds the matching flow of highest priority by tuple space search (Srinivasan, Suri & Varghese 1999).

Flows whose matches have the same fields under the same masks share one hash table. So a lookup costs as many probes as
there are distinct combinations, independent of the number of flows. Open vSwitch uses the same method.
"""

from __future__ import annotations

from typing import TypeAlias

from saps.ofm.flows.tables import Field, Flow, Match
from saps.ofm.switch.packets import Packet

_Shape: TypeAlias = tuple[tuple[Field, int], ...]
_Values: TypeAlias = tuple[int, ...]


class Classifier:
    """The flows of one table."""

    def __init__(self) -> None:
        self._tuples: dict[_Shape, dict[_Values, dict[int, Flow]]] = {}
        """Flows by fields and masks, then by values, then by priority."""

    def put(self, flow: Flow) -> None:
        """Add a flow, or replace the one with its match and priority."""
        shape, values = _parts(flow.match)
        self._tuples.setdefault(shape, {}).setdefault(values, {})[flow.priority] = flow

    def drop(self, flow: Flow) -> None:
        """Remove the flow with this match and priority. Raises `KeyError` if there is none."""
        shape, values = _parts(flow.match)
        table = self._tuples[shape]
        del table[values][flow.priority]
        if not table[values]:
            del table[values]
        if not table:
            del self._tuples[shape]

    def find(self, port: int, packet: Packet) -> Flow | None:
        """Return the matching flow of highest priority, or None. Of several with equal priority (undefined in
        OpenFlow), it is any."""
        best: Flow | None = None
        for shape, table in self._tuples.items():
            values = _values(shape, port, packet)
            for priority, flow in (table.get(values, {}) if values is not None else {}).items():
                if best is None or priority > best.priority:
                    best = flow
        return best


def _parts(match: Match) -> tuple[_Shape, _Values]:
    shape = tuple((name, masked.mask) for name, masked in match.fields)
    return shape, tuple(masked.value for _, masked in match.fields)


def _values(shape: _Shape, port: int, packet: Packet) -> _Values | None:
    found = []
    for name, mask in shape:
        value = port if name == "in_port" else packet.field(name)
        if value is None:
            return None
        found.append(value & mask)
    return tuple(found)
