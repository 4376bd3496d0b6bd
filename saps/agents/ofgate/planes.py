"""OFGate's part in stateless delivery: which brokers take part, which bits they have, and that all share one key.

A broker enrols once in its incarnation, not with its topics. The controller assigns the bits and lays the planes. Each
holder of the key is told all bits and the working planes. A wrong bit at a broker does no harm: topic and number travel
inside the packet, so a stranger drops it, and the member asks for it.
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
        self._call = call
        self._next_epoch = epoch
        self._asked: frozenset[BrokerAddress] = frozenset()
        """The brokers that the controller has been asked for."""
        self._state: OfmState | None = None
        """The controller's latest state of the planes. None if there are no planes."""
        self._told: tuple[Any, ...] | None = None
        """The latest notice to the brokers: epoch, bits of each set, planes and label of the key."""
        self._know: dict[str, int] = {}
        """Name of broker -> epoch of the latest notice that it has confirmed."""

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
