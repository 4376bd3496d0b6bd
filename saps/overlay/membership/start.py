"""How a broker that starts finds its mesh, or begins it: whoever is there agrees on one, whatever the order.

It listens first. Then it probes every address it knows (`join`, and the last members it remembers), again and again:

1. Who is in a mesh answers so: it is joined.
2. Of those that are all starting the one with the smallest name begins, once every address has answered, or `patience`
   seconds after the first of them started. The others wait for it, and join.
3. A probe makes the two known to each other. So of two at most one can decide: it has heard of the other one, or is
   heard to have decided. Somebody who probes but cannot be reached from here counts for a moment only.
4. In the mesh it goes on probing where nobody of the mesh is known to be: two meshes that began apart become one
   (`World.found`), and who starts meanwhile hears of this one.

Pure: probes and timers are the world's.
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
"""The same in the mesh. Longer delays that meshes which began apart become one; shorter costs connections."""
FRESH = 2.0
"""Seconds for which an answer counts."""
BUSY = 10.0
"""The same of one that has decided: it may be reading a large store. Longer delays the others if it hangs."""
AT_MOST = 4
"""Times its patience that a broker waits for others that are there and do not begin: then they hang, or mean harm."""
ONE_WAY = 3
"""Failed probes after which nobody counts there: it is gone, or nothing gets there from here."""
MOST = 256
"""Addresses, at most; whoever probes adds its own."""


class Stage(IntEnum):
    """How far a broker is."""

    STARTING = 0
    DECIDED = 1
    """It begins a mesh or joins one: others wait for it."""
    MEMBER = 2


class Fault(NamedTuple):
    """Why nobody at an address counts."""

    text: str
    refused: bool = False
    """Somebody is there, and will not have this broker: their settings differ."""
    twin: bool = False
    """Somebody is there with this broker's name."""


Answer = Callable[[There | Fault], None]


class World(Protocol):
    """What the driver does."""

    @property
    def now(self) -> float:
        """Seconds, monotonic."""

    def start_probe(self, address: str, question: StartProbe, answer: Answer) -> None:
        """Ask who is at an address; `answer` is called once."""

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Run `action` in `delay` seconds."""

    def knows(self, address: str) -> bool:
        """Is a broker of this mesh at the address?"""

    def decided(self, contact: BrokerRef | None) -> None:
        """Here is the broker to join, or None: begin a mesh."""

    def refused(self) -> None:
        """No mesh will have this broker; `Start.faults` says why. It has given up."""

    def found(self, broker: BrokerRef) -> None:
        """In the mesh: here is a broker of a mesh that is perhaps another one."""


class _Place:
    """An address where a broker may be."""

    __slots__ = ("address", "failed", "fault", "given", "heard", "name", "there", "tried")

    def __init__(self, address: str, name: str, given: bool) -> None:
        self.address = address
        self.name = name
        """Who is meant; empty: whoever is there."""
        self.given = given
        """It was known at the start: it is never forgotten."""
        self.there: There | None = None
        """What was heard last, and when."""
        self.heard = -float("inf")
        self.tried = False
        self.failed = 0
        """Probes since the last answer."""
        self.fault: Fault | None = None


class Start:
    """The start of one broker, and its search for other parts of the mesh afterwards."""

    def __init__(self, me: BrokerRef, places: Mapping[str, str], world: World, patience: float) -> None:
        """`places`: addresses, with the name of the broker that is to be there, or empty for any. `patience`: seconds
        to wait for those that do not answer."""
        self.me = me
        self.stage = Stage.STARTING
        self._world = world
        self._patience = patience
        self._began = world.now
        self._denied = ""
        """Why the mesh that was found would not have this broker."""
        self._closed = False
        self._places: dict[str, _Place] = {}
        for address, name in places.items():
            self._add(address, name, given=True)

    # --- what the driver says -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to probe. Alone, it decides at once."""
        self._began = self._world.now
        for place in self._places.values():
            self._try(place)
        self._look()

    def probed(self, question: StartProbe) -> There:
        """Somebody probes this broker. What it is told."""
        by, place = question.broker, self._places.get(question.broker.address)
        if by.address and place is None and len(self._places) < MOST and by.name != self.me.name:
            place = self._add(by.address, by.name, given=False)
            self._try(place)
        if place is not None and place.failed < ONE_WAY and (place.name or by.name) == by.name:
            place.there, place.heard = There(by, question.stage, question.waited), self._world.now
        return There(self.me, self.stage, self._waited())

    def deny(self, fault: str) -> None:
        """The mesh that was to be joined will not have this broker; perhaps that passes."""
        self._denied = fault
        self.again()

    def again(self) -> None:
        """What was decided has come to nothing."""
        if self.stage is Stage.DECIDED:
            self.stage = Stage.STARTING
            self._world.after(AGAIN, self._look)

    def joined(self) -> None:
        """It is in a mesh."""
        self.stage = Stage.MEMBER

    def close(self) -> None:
        """Ask nobody any more."""
        self._closed = True

    def faults(self) -> dict[str, str]:
        """By address: why nobody there counts."""
        denied = {} if not self._denied else {a: self._denied for a, place in self._places.items() if place.there}
        return denied | {a: place.fault.text for a, place in self._places.items() if place.fault is not None}

    # --- inside -------------------------------------------------------------------------------------------------

    def _add(self, address: str, name: str, *, given: bool) -> _Place:
        place = self._places[address] = _Place(address, name, given)
        return place

    def _waited(self) -> float:
        """Seconds since this broker has begun to wait."""
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
        """Is whoever was heard at an address of this mesh? Its own address may be written in another way."""
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
        """Somebody else with this broker's name is there, and was so before."""
        other, me = there.broker, self.me
        if other.name != me.name or other == me:
            return None
        if there.stage == Stage.STARTING and (other.incarnation, other.address) > (me.incarnation, me.address):
            return None
        return Fault(f"there is a broker with the same name, {other.name!r}, at {other.address}", True, True)

    def _look(self) -> None:
        """Can it be decided?"""
        if self.stage is not Stage.STARTING or self._closed:
            return
        others = [place for place in self._places.values() if place.there is None or place.there.broker != self.me]
        present = [there for place in others if (there := self._present(place)) is not None]
        members = [there.broker for there in present if there.stage == Stage.MEMBER]
        late = max([self._waited(), *(there.waited for there in present)]) >= self._patience
        if late and (self._denied if members else self._refused(others, bool(present))):
            self.close()
            self._world.refused()
        elif members:
            self._decide(members[0])
        elif self._waited() < AT_MOST * self._patience and any(
            there.stage == Stage.DECIDED or there.broker.name < self.me.name for there in present
        ):
            return  # that one begins, or knows who does
        elif all(place.tried for place in others) and (late or len(present) == len(others)):
            self._decide(None)

    def _present(self, place: _Place) -> There | None:
        """Who is at an address now, as far as it counts."""
        there = place.there
        if there is None or place.failed >= ONE_WAY or there.broker.name == self.me.name:
            return None
        lasts = BUSY if there.stage == Stage.DECIDED else FRESH
        return there if self._world.now - place.heard < lasts else None

    def _refused(self, others: list[_Place], company: bool) -> bool:
        """Whoever is there will not have this broker. In company it goes without those whose settings differ."""
        faults = [place.fault for place in others if place.fault is not None and place.fault.refused]
        return any(fault.twin or not company for fault in faults)

    def _decide(self, contact: BrokerRef | None) -> None:
        self.stage = Stage.DECIDED
        self._world.decided(contact)
