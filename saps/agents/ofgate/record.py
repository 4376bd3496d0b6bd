"""What OFGate keeps about one topic: what is wished, what has been built, and who has been told of it."""

from __future__ import annotations

from saps.agents.switchover import Member, Mode
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.schema import OfmState, Status
from saps.overlay.delivery.ofm_members import Tree

UNSURE = 5.0
"""Seconds for which a controller may know nothing of the switches until their trees are no longer relied upon."""

Intent = tuple[frozenset[BrokerAddress], frozenset[BrokerAddress]]
"""Broker list, and those of the others that only send."""


class Lease:
    """What a publisher has been told (EITHER)."""

    __slots__ = ("member", "until", "uses_tree")

    def __init__(self, member: Member, until: float, uses_tree: bool) -> None:
        self.member = member
        self.until = until
        self.uses_tree = uses_tree


class Departures:
    """BOTH: who has left the present tree."""

    def __init__(self) -> None:
        self.members: set[str] = set()
        """They do not come back by themselves."""
        self.all = False
        """All have been made to leave, so only a tree with another epoch can be joined."""

    def clear(self) -> None:
        """There is another tree, or none."""
        self.members.clear()
        self.all = False


class Trust:
    """How far the tree is what had been built."""

    def __init__(self) -> None:
        self.doubts = 0
        """How often in a row it was not."""
        self.unsure: float | None = None
        """Since when the controller has known nothing of the switches."""

    def holds(self, now: float) -> bool:
        """The controller knows nothing of the switches. Is the tree to be relied upon still?"""
        self.unsure = now if self.unsure is None else self.unsure
        return now - self.unsure < UNSURE


class Topic:
    """A topic that somebody has asked for, or asked about."""

    def __init__(self, name: str, mode: Mode) -> None:
        self.name = name
        self.mode = mode
        self.wanted = False
        self.status = Status.NONE
        self.reason: str | None = None
        """Why it was refused last, or what the controller waits for."""
        self.tree: Tree | None = None
        self.built: Intent | None = None
        """What the tree has been built for; None: not known, to be asked for again."""
        self.refused: Intent | None = None
        """What the controller has refused for now: it goes on with it by itself when it can."""
        self.busy = False
        """A change is under way; what is wished meanwhile comes after it."""
        self.leases: dict[str, Lease] = {}
        self.members: dict[str, Member] = {}
        """BOTH: the wished members, by name."""
        self.senders: dict[str, Member] = {}
        """Publishers that want to use the tree, by name."""
        self.departures = Departures()
        self.renew = False
        """A new key is wished for, whoever the members are."""
        self.trust = Trust()

    def reconsidered(self, state: OfmState | None) -> bool:
        """Does the controller not refuse any more what it has refused?"""
        return self.refused is not None and (state is None or state.status is not Status.REFUSED)

    def moved(self, state: OfmState | None) -> bool:
        """Has the controller moved the tree that was built to another address, while the former one still works?"""
        if self.busy or self.tree is None or self.built is None or state is None or state.address is None:
            return False
        whole = state.status is Status.CONSTRUCTED and self.built[0] | self.built[1] <= set(state.brokers)
        return whole and state.former == self.tree.address

    def stands(self, state: OfmState | None, now: float) -> bool:
        """Is this what has been built, as far as anything has been, and can it be used? A controller that has just
        started knows nothing of any switch: the tables are as they were, until it says otherwise."""
        if self.busy or self.tree is None or self.built is None:
            return True
        if state is None or state.address != self.tree.address:
            return False
        if state.status is Status.UPDATING and not state.brokers:
            return self.trust.holds(now)
        self.trust.unsure = None
        return state.status is Status.CONSTRUCTED and self.built[0] | self.built[1] <= set(state.brokers)
