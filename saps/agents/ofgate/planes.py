"""OFGate's part in stateless delivery: which brokers take part, by which bits, and that they have one key.

Brokers come once in their life, not with their topics. The controller gives them bits and lays planes; whoever holds
the key is told all bits, and the planes that work. A broker that errs about a bit does no harm: topic and number
travel inside, so a stranger drops the packet, and the member asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
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


class Planes:
    """Of one term of OFGate."""

    def __init__(
        self,
        controller: Controller,
        roster: Roster,
        keys: KeyServer,
        calls: Calls,
        call: Call,
        epoch: Callable[[], int],
    ) -> None:
        """`epoch` gives a number that is greater than any that brokers know of."""
        self._controller = controller
        self._roster = roster
        self._keys = keys
        self._calls = calls
        self._call = call
        self._next_epoch = epoch
        self._asked: frozenset[BrokerAddress] = frozenset()
        """Whom the controller has been asked for."""
        self._state: OfmState | None = None
        """As the controller told it last; None: there is nothing."""
        self._told: tuple[Any, ...] | None = None
        """What brokers are told."""
        self._know: dict[str, int] = {}
        """Name of broker -> epoch of what it has been told."""

    def advance(self) -> None:
        """Somebody has come or gone."""
        wanted = frozenset(member.element for member in self._roster.enrolled.values())
        if wanted != self._asked:
            self._asked = wanted
            self._ask()
        elif self._state is not None:
            self._share()

    def take(self, state: OfmState) -> None:
        """The controller tells how it stands."""
        self._state = state if state.status is not Status.NONE else None
        self._share()

    def compare(self, state: OfmState | None) -> None:
        """This is what the controller has; None: nothing. It may have forgotten."""
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
        """The brokers that the planes reach, by their elements."""
        reached = frozenset(self._state.brokers) if self._state is not None else frozenset()
        return {member.element: member for member in self._roster.enrolled.values() if member.element in reached}

    def _share(self) -> None:
        """Those who are reached, and nobody else, are to have the key, and then to know the bits."""
        self._keys.change(EVERY_TOPIC, {member.ref for member in self._members().values()}, self.tell)

    def tell(self) -> None:
        """Have all brokers know the bits of those who hold the key, if that is new; and whoever has not confirmed."""
        members, holders = self._members(), self._keys.holders(EVERY_TOPIC)
        sets: list[list[list[Any]]] = []
        for brokers in self._state.sets if self._state is not None else []:
            placed = [(position, members[broker]) for position, broker in enumerate(brokers) if broker in members]
            sets.append([[at, m.ref.name, m.ref.incarnation] for at, m in placed if m.ref in holders])
        planes = self._state.planes if self._state is not None else []
        told = sets, planes, self._keys.label(EVERY_TOPIC)
        if self._told is None or told != self._told[1:]:
            self._told = (self._next_epoch(), *told)
        for name, member in self._roster.enrolled.items():
            if self._know.get(name) != self._told[0]:
                self._tell(member, self._told)

    def _tell(self, member: Member, told: tuple[Any, ...]) -> None:
        def answered(answers: Answers) -> None:
            if any(answer.error is None for answer in answers):
                self._know[member.ref.name] = told[0]

        self._call(member, "planes", told, answered)
