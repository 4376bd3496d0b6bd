"""The former brokers of the sessions here: what they had missed, the sessions have missed.

The brokers beyond a cut do not know that a session has moved, or was adopted. To them a former broker had its filters;
this one has them only from then on. When they ask what this broker has missed, it also names the former ones. These are
part of a session's copies, for its heirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from saps.marks import hit
from saps.mesh import SessionHost
from saps.overlay.frames.copies import LONG_AGO, Heirloom
from saps.overlay.frames.delivery import MOST_FORMER
from saps.overlay.missed.absences import UNNOTICED
from saps.overlay.missed.lag import Stay
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.publications import Publications
from saps.routing.batch import Batch
from saps.topics import shared

KEPT = 86400.0
"""Seconds for which former brokers are remembered during a cut: as long as others keep what was missed. Without one it
is `UNNOTICED`."""


class Legacy(NamedTuple):
    """Sessions here that have the same former brokers."""

    stays: list[Stay]
    """At each of them, and here. One at a broker that was taken for dead has ended long ago."""
    owed: list[bool]
    """For each stay, whether the sessions are owed what that broker had missed."""
    filters: dict[str, None]
    """The sessions' plain filters."""
    clients: list[tuple[str, int]]
    """The sessions, by client and `SessionHost.birth`."""


class _Left(NamedTuple):
    """A session that has left a broker."""

    stay: Stay
    """At that broker: from long ago if the session began there, until long ago if the broker was taken for dead."""
    answered: frozenset[str]
    """`Heirloom.answered`"""
    settled: bool
    """Whether it left so long ago that it is owed nothing that the broker had missed."""


class Heritage:
    """The former brokers of the sessions at this broker."""

    def __init__(self, port: Port, publications: Publications, host: Callable[[], SessionHost | None]) -> None:
        """`host` returns what has the sessions, if there is anything."""
        self._port = port
        self._publications = publications
        self._host = host
        self._left: dict[tuple[str, int], tuple[float, list[_Left]]] = {}
        """By client and `SessionHost.birth` of its session: when that came here, and the brokers that it left."""
        self._looked = port.now
        """When old entries were last forgotten."""
        self._told = -math.inf
        """Until when another broker's word for a cut counts, in seconds of the port's clock."""

    @property
    def cut(self) -> bool:
        """Whether brokers of the mesh are known to be cut off. This broker may have started since, and know none."""
        return self._publications.cut or self._port.now < self._told

    def add(self, client: str, heirlooms: Iterable[Heirloom], cut: bool = False, told: float | None = None) -> None:
        """Note the former brokers of a client's session, which has come here. `cut` is the word of the broker from
        which it came, `told` the time of that word in seconds of the port's clock; None: now."""
        now = self._port.now
        told = now if told is None else told
        if cut:
            self._told = now + KEPT
        if now - self._looked >= UNNOTICED:
            self._looked = now
            self._left = {key: came for key, came in self._left.items() if came[0] >= now - self._kept}
        found: list[_Left] = []
        for each in heirlooms:
            age = each.age if each.age < LONG_AGO / 2 else each.age - LONG_AGO
            stay = Stay(each.owner, told - each.came, told - each.age)
            found.append(_Left(stay, frozenset(each.answered), age > self._kept))
        while found and found[min(1, len(found) - 1)].settled:  # of these the last one counts: the next one's begin
            del found[0]
        if (birth := self._birth(client)) and found:
            self._left[client, birth] = now, found[1 - MOST_FORMER :]

    def pulled(self, client: str, answered: frozenset[str]) -> None:
        """Note that the messages of a client's session are asked for now: what the broker from which it comes gets
        later does not come along. That broker has all that was published at the brokers with these names."""
        _, left = self._left.get((client, self._birth(client)), (0.0, []))
        left[-1:] = [_Left(each.stay._replace(left=self._port.now), answered, each.settled) for each in left[-1:]]

    def answered(self, client: str, owner: BrokerRef, names: Iterable[str]) -> None:
        """Note the brokers that have sent what the former broker of a client's session, adopted here, had missed."""
        _, left = self._left.get((client, self._birth(client)), (0.0, []))
        left[:] = [each._replace(answered=frozenset(names)) if each.stay.broker == owner else each for each in left]

    def caught_up(self, sessions: Iterable[tuple[str, int]], name: str, since: float) -> None:
        """Note that a broker has sent these sessions (`Legacy.clients`), if they have been here from the time `since`
        on, all that their former brokers had missed."""
        for session in sessions:
            came, left = self._left.get(session, (math.inf, []))
            if came <= since:
                left[:] = [each._replace(answered=each.answered | {name}) for each in left]

    @property
    def _kept(self) -> float:
        """Seconds for which former brokers are remembered now."""
        return KEPT if self.cut else UNNOTICED

    def of(self, client: str) -> list[Heirloom]:
        """Return the former brokers of a client's session here, this broker included, the first one first."""
        now, me = self._port.now, self._port.me
        came, left = self._left.get((client, self._birth(client)), (now - LONG_AGO, []))
        found = [
            Heirloom(stay.broker, now - stay.left, sorted(answered), now - stay.came) for stay, answered, _ in left
        ]
        return [*found, Heirloom(me, 0.0, came=now - came)]

    def _birth(self, client: str) -> int:
        host = self._host()
        return 0 if host is None else host.birth(client)

    def _filters(self, client: str, birth: int) -> list[str]:
        """Return the plain filters of a client's session with this `birth`; none without one."""
        host = self._host()
        if host is None or host.birth(client) != birth:
            return []
        return [each for each in host.filters(client) if shared(each) is None]

    def legacies(self, asking: BrokerRef) -> Iterator[Legacy]:
        """Yield what the broker `asking`, which has come from beyond a cut, has to know of the sessions here."""
        self._told = min(self._told, self._port.now + UNNOTICED)
        found: dict[tuple[tuple[BrokerRef, bool], ...], Legacy] = {}
        for (client, birth), (came, left) in self._left.items():
            filters = dict.fromkeys(self._filters(client, birth))
            owed = [*(not each.settled and asking.name not in each.answered for each in left), False]
            if filters and any(owed):
                stays = [*(each.stay for each in left), Stay(self._port.me, came, self._port.now)]
                key = tuple(zip((stay.broker for stay in stays), owed, strict=True))
                legacy = found.setdefault(key, Legacy(stays, owed, {}, []))
                legacy.stays[:] = map(Stay.common, legacy.stays, stays)
                legacy.filters.update(filters)
                legacy.clients.append((client, birth))
        yield from found.values()

    def make_up(self, sessions: Iterable[tuple[str, int]], batches: list[Batch], late: bool) -> None:
        """Give these sessions (`Legacy.clients`) what has come to this broker before, unless they have had it."""
        host = self._host()
        clients = [client for client, birth in sessions if self._birth(client) == birth]
        if host is not None and clients:
            hit("made up for sessions that were elsewhere")
            host.make_up(clients, batches, again=False, late=late)
