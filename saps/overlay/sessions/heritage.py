"""The former brokers of the sessions here: what they had missed, the sessions have missed.

The brokers beyond a cut do not know that a session has moved, or was adopted. To them a former broker had its filters;
this one has them only from then on. When they ask what this broker has missed, it also names the former ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from saps.local.batch import Batch
from saps.marks import hit
from saps.mesh import SessionHost
from saps.overlay.frames.delivery import MOST_FORMER
from saps.overlay.frames.sessions import LONG_AGO, Heirloom
from saps.overlay.missed.heirs import UNNOTICED
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.publications import Publications
from saps.topics import shared

KEPT = 86400.0
"""Seconds for which former brokers are remembered during a cut: as long as others keep what was missed. Without one it
is `UNNOTICED`."""


class Legacy(NamedTuple):
    """Sessions here that have the same former brokers."""

    owner: BrokerRef
    """One of these."""
    former: dict[BrokerRef, tuple[float, float]]
    """All of them and this one, each with the times at which the first of the sessions left it, and the last one first
    came to it."""
    filters: dict[str, float]
    """The sessions' plain filters, with the times at which they left the owner, in seconds of the port's clock; long
    ago if the owner was taken for dead."""


class _Left(NamedTuple):
    """A session that has left a broker."""

    owner: BrokerRef
    at: float
    """When, as in `Legacy.filters`."""
    noted: float
    """When that was noted here, in seconds of the port's clock."""
    answered: frozenset[str]
    """`Heirloom.answered`"""
    came: float
    """When the session first came to it, in seconds of the port's clock; long ago if it began there."""


class Heritage:
    """The former brokers of the sessions at this broker."""

    def __init__(self, port: Port, publications: Publications, host: Callable[[], SessionHost | None]) -> None:
        """`host` returns what has the sessions, if there is anything."""
        self._port = port
        self._publications = publications
        self._host = host
        self._left: dict[tuple[str, int], tuple[_Left, ...]] = {}
        """By client and `SessionHost.birth` of its session."""
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
            since = now - (KEPT if self.cut else UNNOTICED)
            self._left = {key: left for key, left in self._left.items() if any(each.noted >= since for each in left)}
        known = {each.owner: each.noted for each in self._left.get((client, self._birth(client)), ())}
        found = {
            each.owner: _Left(
                each.owner, told - each.age, known.get(each.owner, now), frozenset(each.answered), told - each.came
            )
            for each in heirlooms
        }
        if birth := self._birth(client):
            self._left[client, birth] = tuple(found.values())[-MOST_FORMER:]

    def of(self, client: str) -> list[Heirloom]:
        """Return the former brokers of a client's session here, this broker included, the first one first."""
        now, me = self._port.now, self._port.me
        left = self._left.get((client, self._birth(client)), ())
        found = [Heirloom(each.owner, now - each.at, sorted(each.answered), now - each.came) for each in left]
        before = [each.came for each in found if each.owner == me]
        here = max([now - max(each.noted for each in left), *before]) if left else LONG_AGO
        return [*(each for each in found if each.owner != me), Heirloom(me, 0.0, came=here)]

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
        found: dict[tuple[BrokerRef, tuple[BrokerRef, ...]], Legacy] = {}
        me, now = self._port.me, self._port.now
        for (client, birth), left in self._left.items():
            filters = self._filters(client, birth)
            stays = {other.owner: (other.at, other.came) for other in left}
            for each in left if filters else ():
                if asking.name not in each.answered:
                    former = {me: (now, each.noted), **stays}
                    legacy = found.setdefault((each.owner, (*former,)), Legacy(each.owner, former, {}))
                    for broker, (at, came) in former.items():
                        known = legacy.former[broker]
                        legacy.former[broker] = min(at, known[0]), max(came, known[1])
                    for topic_filter in filters:
                        legacy.filters[topic_filter] = max(each.at, legacy.filters.get(topic_filter, each.at))
        yield from found.values()

    def make_up(self, owners: Iterable[BrokerRef], batches: list[Batch], late: bool) -> None:
        """Give the sessions that were at these former brokers what has come to this broker before, unless they have had
        it there."""
        host, owners = self._host(), set(owners)
        clients = [
            client
            for (client, birth), left in self._left.items()
            if self._birth(client) == birth and any(each.owner in owners for each in left)
        ]
        if host is not None and clients:
            hit("made up for sessions that were elsewhere")
            host.make_up(clients, batches, again=False, late=late)
