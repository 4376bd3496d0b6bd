"""Asks the controller for the switches' free room: ``GET /v1/budgets`` and ``/v1/ofms``, or a file.

The controller counts a standing tree that the job decided as used. That tree competes with the other candidates for the
same room, so its use is subtracted again. The room is the budget less the use by *others*, such as trees that an
operator ordered.
"""

from __future__ import annotations

import http.client
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from monitoring.counts.features import sites_of
from monitoring.decisions.table import Judged
from monitoring.selection.network import Network, Room
from monitoring.selection.selection import Held

logger = logging.getLogger(__name__)

TIMEOUT = 5.0
"""Timeout of a request in seconds."""


class Told(NamedTuple):
    """The controller's answers."""

    budgets: dict[str, Room]
    """Budget of each switch, by datapath id."""
    used: dict[str, Room]
    """Used room of each switch, by datapath id."""
    standing: frozenset[str] | None
    """Topics that have trees; None: unknown, and all decided trees are taken to stand."""


class Budgets:
    """Asks for the budgets at each epoch. Without an answer the last known budgets hold, or those of `known`."""

    def __init__(self, source: str, known: Network, token: str | None = None) -> None:
        """`source` is a controller's northbound URL, or a file with the answer of its ``/v1/budgets``."""
        self._source = source.rstrip("/")
        self._known = known
        self._token = token
        self._told: Told | None = None
        self._reachable = True

    def network(self, judged: Iterable[Judged], held: Mapping[str, Held]) -> Network:
        """Return the network with the present room for decisions about `judged`.

        The room includes that of the trees in `held`. A failed request is logged and raises nothing."""
        try:
            self._told = self._ask()
            self._say(None)
        except (OSError, ValueError, LookupError, TypeError, http.client.HTTPException) as error:
            self._say(error)
        if self._told is None:
            return self._known
        return room(self._known, self._told, [row for row in judged if row.topic in held and held[row.topic].tree])

    def _ask(self) -> Told:
        if not self._source.startswith(("http://", "https://")):
            return read(json.loads(Path(self._source).read_text()), None)
        return read(self._get("/v1/budgets"), self._get("/v1/ofms"))

    def _get(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        with urllib.request.urlopen(urllib.request.Request(self._source + path, headers=headers), timeout=TIMEOUT) as f:
            return json.load(f)

    def _say(self, error: Exception | None) -> None:
        """Log once when the controller is lost and once when it is back."""
        if (error is None) != self._reachable:
            self._reachable = error is None
            if error is not None:
                logger.warning(
                    "the last known budgets of the switches stay in use, %s does not answer: %s", self._source, error
                )
            else:
                logger.info("%s answers with the switches' budgets again", self._source)


def read(budgets: Any, ofms: Any) -> Told:
    """Parse the northbound's answers.

    Raises ValueError, LookupError or TypeError for malformed answers, and ValueError if the controller knows no
    switch."""
    if not budgets:
        raise ValueError("no switch is known")
    rooms, used = {}, {}
    for each in budgets:
        entries, buckets = each["entries"], each["buckets"]
        rooms[str(each["dpid"])] = Room(int(entries["budget"]), int(buckets["budget"]))
        used[str(each["dpid"])] = Room(int(entries["used"]), int(buckets["used"]))
    standing = None if ofms is None else frozenset(str(each["topic"]) for each in ofms if each["address"])
    return Told(rooms, used, standing)


def room(known: Network, told: Told, trees: Iterable[Judged]) -> Network:
    """Return the network with budgets less the room that others than `trees` use.

    A cluster whose switch is unknown (`Network.dpids`) gets the room of the fullest of the switches that `dpids` does
    not name, or of all if it names them all. A budget given by name is never exceeded."""
    ours: dict[str, Room] = {}
    for tree in trees:
        if told.standing is None or tree.topic in told.standing:
            for name, need in known.needs(sites_of(tree.sites)).items():
                ours[name] = _plus(ours.get(name, Room()), need)
    unknown = told.budgets.keys() - set(known.dpids.values()) or told.budgets.keys()
    free = {dpid: _minus(told.budgets[dpid], told.used[dpid]) for dpid in told.budgets}
    budgets = dict(known.budgets)
    for name in {*ours, *known.dpids}:
        dpid = known.dpids.get(name, "")
        places = {dpid} if dpid in told.budgets else unknown
        left = _plus(_least(*(free[at] for at in places)), ours.get(name, Room()))
        given = [known.budgets[name]] if name in known.budgets else []
        budgets[name] = _least(left, *given, *(told.budgets[at] for at in places))
    return replace(known, default=_least(*(free[at] for at in unknown)), budgets=budgets)


def _plus(a: Room, b: Room) -> Room:
    return Room(a.entries + b.entries, a.buckets + b.buckets)


def _minus(a: Room, b: Room) -> Room:
    return Room(max(0, a.entries - b.entries), max(0, a.buckets - b.buckets))


def _least(*rooms: Room) -> Room:
    return Room(min(room.entries for room in rooms), min(room.buckets for room in rooms))
