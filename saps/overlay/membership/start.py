"""The start of a broker: it finds its mesh or begins one, so that brokers started in any order form a single mesh.

The broker listens first. Then it repeatedly probes every address it knows (`join`, and the last members it remembers):

1. A broker that is in a mesh says so, and is joined.
2. Of brokers that are all starting, the one with the smallest name begins a mesh: when every address has answered, or
   `timeout` seconds after the first of them started. The others wait for it and join.
3. A probe makes two brokers known to each other, so at most one of two can decide: it knows the other one, or the other
   hears of its decision. A broker that probes but cannot be reached from here counts only for a moment.
4. In the mesh the broker goes on probing addresses without a known member. Two meshes that began apart are thus merged
   (`World.found`), and brokers that start later hear of this one.

Pure: `World` makes the probes and keeps the timers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import partial
from typing import NamedTuple, Protocol

from saps.overlay.frames.ring import StartProbe, There
from saps.overlay.ring.keys import BrokerRef

AGAIN = 0.2
"""Seconds between an answer and the next probe of its address, while starting."""
SEEK = 2.0
"""Seconds between an answer and the next probe of its address, in the mesh. A longer time delays the merge of meshes
that began apart; a shorter one costs connections."""
FRESH = 2.0
"""Seconds for which an answer counts."""
BUSY = 10.0
"""Seconds for which the answer of a broker that has decided counts: it may be reading a large store. A longer time
delays the others if it hangs."""
AT_MOST = 4
"""Multiple of `timeout` after which a broker no longer waits for others that do not begin: they hang, or are
hostile."""
ONE_WAY = 3
"""Failed probes after which an address does not count: its broker is gone or cannot be reached from here."""
MOST = 256
"""Most addresses; each broker that probes adds its own."""


class Stage(IntEnum):
    """The stage of a broker's start."""

    STARTING = 0
    DECIDED = 1
    """The broker begins or joins a mesh; others wait for it."""
    MEMBER = 2


class Fault(NamedTuple):
    """The reason why an address does not count."""

    text: str
    refused: bool = False
    """Whether a broker is there and refuses this one, as their settings differ."""
    twin: bool = False
    """Whether another broker with this broker's name is there."""


Answer = Callable[[There | Fault], None]


class World(Protocol):
    """The driver of a start."""

    @property
    def now(self) -> float:
        """Monotonic time in seconds."""

    def start_probe(self, address: str, question: StartProbe, answer: Answer) -> None:
        """Ask which broker is at an address; `answer` is called once."""

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Run `action` in `delay` seconds."""

    def knows(self, address: str) -> bool:
        """Return whether a broker of this mesh is at the address."""

    def decided(self, contact: BrokerRef | None) -> None:
        """Join this broker, or begin a mesh if None."""

    def refused(self) -> None:
        """Report that every mesh refuses this broker, which has given up; `Start.faults` says why."""

    def found(self, broker: BrokerRef) -> None:
        """Report, while in the mesh, a broker whose mesh may be another one."""


class _Place:
    """An address where a broker may be."""

    __slots__ = ("address", "failed", "fault", "given", "heard", "name", "there", "tried")

    def __init__(self, address: str, name: str, given: bool) -> None:
        self.address = address
        self.name = name
        """Name of the expected broker; empty: any broker."""
        self.given = given
        """Whether the address was known at the start; such an address is never forgotten."""
        self.there: There | None = None
        """The last answer, which came at `heard`."""
        self.heard = -float("inf")
        self.tried = False
        self.failed = 0
        """Failed probes since the last answer."""
        self.fault: Fault | None = None


class Start:
    """The start of one broker, and its search for other parts of the mesh afterwards."""

    def __init__(self, me: BrokerRef, places: Mapping[str, str], world: World, timeout: float) -> None:
        """`places` maps addresses to the name of the expected broker, empty for any. `timeout`: seconds to wait for
        brokers that do not answer."""
        self.me = me
        self.stage = Stage.STARTING
        self._world = world
        self._timeout = timeout
        self._began = world.now
        self._denied = ""
        """Why the mesh that was found refused this broker; empty if it did not."""
        self._closed = False
        self._places: dict[str, _Place] = {}
        for address, name in places.items():
            self._add(address, name, given=True)

    # --- what the driver says -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start probing. Without any address it decides at once."""
        self._began = self._world.now
        for place in self._places.values():
            self._try(place)
        self._look()

    def probed(self, question: StartProbe) -> There:
        """Answer the probe of another broker."""
        by, place = question.broker, self._places.get(question.broker.address)
        if by.address and place is None and len(self._places) < MOST and by.name != self.me.name:
            place = self._add(by.address, by.name, given=False)
            self._try(place)
        if place is not None and place.failed < ONE_WAY and (place.name or by.name) == by.name:
            place.there, place.heard = There(by, question.stage, question.waited), self._world.now
        return There(self.me, self.stage, self._waited())

    def deny(self, fault: str) -> None:
        """Note that the chosen mesh refuses this broker, and try again."""
        self._denied = fault
        self.again()

    def again(self) -> None:
        """Start again after a failed decision."""
        if self.stage is Stage.DECIDED:
            self.stage = Stage.STARTING
            self._world.after(AGAIN, self._look)

    def joined(self) -> None:
        """Note that this broker is in a mesh."""
        self.stage = Stage.MEMBER

    def close(self) -> None:
        """Stop probing."""
        self._closed = True

    def faults(self) -> dict[str, str]:
        """Return by address the reasons why it does not count."""
        denied = {} if not self._denied else {a: self._denied for a, place in self._places.items() if place.there}
        return denied | {a: place.fault.text for a, place in self._places.items() if place.fault is not None}

    # --- inside -------------------------------------------------------------------------------------------------

    def _add(self, address: str, name: str, *, given: bool) -> _Place:
        place = self._places[address] = _Place(address, name, given)
        return place

    def _waited(self) -> float:
        """Return the seconds since the start."""
        return self._world.now - self._began

    def _try(self, place: _Place) -> None:
        if self._closed:
            return
        if self.stage is Stage.MEMBER and self._acquainted(place):
            self._world.after(SEEK, partial(self._try, place))
        else:
            question = StartProbe(self.me, self.stage, self._waited())
            self._world.start_probe(place.address, question, partial(self._answered, place))

    def _acquainted(self, place: _Place) -> bool:
        """Return whether the broker heard at an address belongs to this mesh; its own reference may have another
        address."""
        there = place.there
        return self._world.knows(place.address) or (
            there is not None and (there.broker == self.me or self._world.knows(there.broker.address))
        )

    def _answered(self, place: _Place, answer: There | Fault) -> None:
        place.tried = True
        if isinstance(answer, There) and place.name not in ("", answer.broker.name):
            answer = Fault(f"there is {answer.broker.name}, not {place.name}")
        if isinstance(answer, There):
            place.there, place.heard, place.failed, place.fault = answer, self._world.now, 0, self._twin(answer)
        else:
            place.failed, place.fault = place.failed + 1, answer
            if self.stage is Stage.MEMBER and not place.given and place.failed >= ONE_WAY:
                del self._places[place.address]
                return
        there = place.there if place.fault is None else None
        found = there.broker if there is not None and there.stage == Stage.MEMBER else None
        if self.stage is Stage.MEMBER and found is not None and not self._closed and not self._acquainted(place):
            self._world.found(found)
        self._world.after(SEEK if self.stage is Stage.MEMBER else AGAIN, partial(self._try, place))
        self._look()

    def _twin(self, there: There) -> Fault | None:
        """Return a fault if another broker with this one's name is there and started earlier."""
        other, me = there.broker, self.me
        if other.name != me.name or other == me:
            return None
        if there.stage == Stage.STARTING and (other.incarnation, other.address) > (me.incarnation, me.address):
            return None
        return Fault(f"there is a broker with the same name, {other.name!r}, at {other.address}", True, True)

    def _look(self) -> None:
        """Decide if possible."""
        if self.stage is not Stage.STARTING or self._closed:
            return
        others = [place for place in self._places.values() if place.there is None or place.there.broker != self.me]
        present = [there for place in others if (there := self._present(place)) is not None]
        members = [there.broker for there in present if there.stage == Stage.MEMBER]
        late = max([self._waited(), *(there.waited for there in present)]) >= self._timeout
        if late and (self._denied if members else self._refused(others, bool(present))):
            self.close()
            self._world.refused()
        elif members:
            self._decide(members[0])
        elif self._waited() < AT_MOST * self._timeout and any(
            there.stage == Stage.DECIDED or there.broker.name < self.me.name for there in present
        ):
            return  # that one begins, or knows who does
        elif all(place.tried for place in others) and (late or len(present) == len(others)):
            self._decide(None)

    def _present(self, place: _Place) -> There | None:
        """Return the last answer of an address if it still counts, else None."""
        there = place.there
        if there is None or place.failed >= ONE_WAY or there.broker.name == self.me.name:
            return None
        lasts = BUSY if there.stage == Stage.DECIDED else FRESH
        return there if self._world.now - place.heard < lasts else None

    def _refused(self, others: list[_Place], company: bool) -> bool:
        """Return whether this broker must give up because others refuse it. In `company` it ignores brokers with other
        settings."""
        faults = [place.fault for place in others if place.fault is not None and place.fault.refused]
        return any(fault.twin or not company for fault in faults)

    def _decide(self, contact: BrokerRef | None) -> None:
        self.stage = Stage.DECIDED
        self._world.decided(contact)
