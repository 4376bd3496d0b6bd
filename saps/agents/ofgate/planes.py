"""OFGate's part in stateless delivery: which brokers take part, which bits they have, and that all share one key.

A broker enrols once in its incarnation, not with its topics. The controller assigns the bits and lays the planes. Each
holder of the key is told all bits and the working planes. A wrong bit at a broker does no harm: topic and number travel
inside the packet, so a stranger drops it, and the member asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from saps.agents.api import Answers
from saps.agents.ofgate.calls import Calls
from saps.agents.ofgate.revocation import Call
from saps.agents.ofgate.roster import Roster
from saps.agents.switchover import Controller, Member
from saps.ofm.keys.server import KeyServer
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.schema import OfmRequest, OfmState, Status
from saps.ofm.stateless.address import EVERY_TOPIC
from saps.ofm.stateless.spread import by_load, carried


class Planes:
    """The planes of one term of OFGate."""

    def __init__(
        self,
        controller: Controller,
        roster: Roster,
        keys: KeyServer,
        calls: Calls,
        call: Call,
        epoch: Callable[[], int],
    ) -> None:
        """`epoch` returns a number that is greater than any that brokers know of."""
        self._controller = controller
        self._roster = roster
        self._keys = keys
        self._calls = calls
        self._next_epoch = epoch
        self._asked: frozenset[BrokerAddress] = frozenset()
        """The brokers that the controller has been asked for."""
        self._state: OfmState | None = None
        """The controller's latest state of the planes. None if there are no planes."""
        self._loads: dict[str, float] = {}
        """Topic -> expected bytes a second, for the busiest topics without a tree."""
        self._bits = _Notice("planes", call)
        """Bits of each set, planes and label of the key."""
        self._spread = _Notice("spread", call)
        """Topic -> plane."""

    def advance(self) -> None:
        """Adapt the planes to the enrolled brokers. To be called when some have come or gone."""
        wanted = frozenset(member.element for member in self._roster.enrolled.values())
        if wanted != self._asked:
            self._asked = wanted
            self._ask()
        elif self._state is not None:
            self._share()

    def take(self, state: OfmState) -> None:
        """Take over a state that the controller reports."""
        self._state = state if state.status is not Status.NONE else None
        self._share()

    def compare(self, state: OfmState | None) -> None:
        """Compare with what the controller has (None: nothing), and ask again if it has forgotten the planes."""
        if state is not None and state.status is not Status.NONE:
            self.take(state)
        elif self._asked:
            self._ask()

    def _ask(self) -> None:
        request = OfmRequest(EVERY_TOPIC, sorted(self._asked))
        if request.brokers:
            self._calls.make(EVERY_TOPIC, lambda done: self._controller.put(request, done), self.take, self._ask)
        else:
            self._calls.make(EVERY_TOPIC, lambda done: self._controller.delete(EVERY_TOPIC, done), self.take, self._ask)

    def _members(self) -> dict[BrokerAddress, Member]:
        """Return the brokers that the planes reach, by element."""
        reached = frozenset(self._state.brokers) if self._state is not None else frozenset()
        return {member.element: member for member in self._roster.enrolled.values() if member.element in reached}

    def _share(self) -> None:
        """Share the key with the brokers that the planes reach and no others, and then tell them the bits."""
        self._keys.change(EVERY_TOPIC, {member.ref for member in self._members().values()}, self.tell)

    def tell(self) -> None:
        """Tell all brokers the bits of the key holders, if they are news. Brokers that have not confirmed are told
        again."""
        members, holders = self._members(), self._keys.holders(EVERY_TOPIC)
        enrolled = self._roster.enrolled
        sets: list[list[list[Any]]] = []
        for brokers in self._state.sets if self._state is not None else []:
            placed = [(position, members[broker]) for position, broker in enumerate(brokers) if broker in members]
            sets.append([[at, m.ref.name, m.ref.incarnation] for at, m in placed if m.ref in holders])
        self._bits.tell((sets, self.working, self._keys.label(EVERY_TOPIC)), enrolled.values(), self._next_epoch)
        if self._loads or self._spread.told:
            self._spread.tell((by_load(self._loads, self.working),), enrolled.values(), self._next_epoch)

    # --- what they carry --------------------------------------------------------------------------------------------

    @property
    def working(self) -> list[int]:
        """The working planes."""
        return self._state.planes if self._state is not None else []

    def spread(self, loads: dict[str, float]) -> None:
        """Spread topics with these loads over the planes, and tell all brokers. Other topics are spread by a hash."""
        self._loads = loads
        self.tell()

    def carried(self) -> list[dict[str, float]]:
        """Return, for each working plane, the bytes a second that it is expected to carry of topics whose loads are
        known, and those that it would carry by a hash."""
        spread = carried(self._loads, by_load(self._loads, self.working), self.working)
        hashed = carried(self._loads, {}, self.working)
        return [{"plane": plane, "carried": spread[plane], "by_hash": hashed[plane]} for plane in self.working]


class _Notice:
    """A notice to all enrolled brokers, each of which is told until it has confirmed the latest one."""

    def __init__(self, method: str, call: Call) -> None:
        self._method = method
        self._call = call
        self.told: tuple[Any, ...] = ()
        """The latest notice, after its epoch; empty before the first."""
        self._know: dict[str, tuple[int, int]] = {}
        """Name of broker -> its incarnation, and the epoch of the latest notice that it has confirmed."""

    def tell(self, news: tuple[Any, ...], members: Iterable[Member], epoch: Callable[[], int]) -> None:
        """Tell the members this news. It gets the next `epoch` if it differs from the last."""
        if news != self.told[1:]:
            self.told = (epoch(), *news)
        for member in members:
            if self._know.get(member.ref.name) != (member.ref.incarnation, self.told[0]):
                self._tell(member, self.told)

    def _tell(self, member: Member, told: tuple[Any, ...]) -> None:
        def answered(answers: Answers) -> None:
            if any(answer.error is None for answer in answers):
                self._know[member.ref.name] = member.ref.incarnation, told[0]

        self._call(member, self._method, told, answered)
