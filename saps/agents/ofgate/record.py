"""OFGate's record of one topic: what is wanted, what has been built, and who has been told of it."""

from __future__ import annotations

from saps.agents.switchover import Member, Mode
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.schema import OfmState, Status
from saps.overlay.delivery.ofm_members import Tree

UNSURE = 5.0
"""Time in seconds after which the trees are no longer relied upon, if the controller knows nothing of the switches."""

Intent = tuple[frozenset[BrokerAddress], frozenset[BrokerAddress]]
"""The elements of the broker list, and those of the other brokers that only send."""


class Lease:
    """A publisher's lease on the status it was told (EITHER)."""

    __slots__ = ("member", "until", "uses_tree")

    def __init__(self, member: Member, until: float, uses_tree: bool) -> None:
        self.member = member
        self.until = until
        self.uses_tree = uses_tree


class Departures:
    """The brokers that have left the present tree (BOTH)."""

    def __init__(self) -> None:
        self.members: set[str] = set()
        """Names of the members that have left. They do not come back by themselves."""
        self.all = False
        """Whether all members were made to leave, so that only a tree with another epoch can be joined."""

    def clear(self) -> None:
        """Begin anew: there is another tree, or none."""
        self.members.clear()
        self.all = False


class Trust:
    """How far the tree is known to be what was built."""

    def __init__(self) -> None:
        self.doubts = 0
        """Times in a row that the tree was not what was built."""
        self.unsure: float | None = None
        """Time since which the controller has known nothing of the switches. None if it knows them."""

    def holds(self, now: float) -> bool:
        """Return whether the tree can still be relied upon, while the controller knows nothing of the switches."""
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
        """The reason of the last refusal, or what the controller waits for."""
        self.tree: Tree | None = None
        self.built: Intent | None = None
        """The intent that the tree has been built for. None if it is unknown and must be asked for again."""
        self.refused: Intent | None = None
        """The intent that the controller refuses for now. The controller resumes it by itself when it can."""
        self.busy = False
        """Whether a change is under way. New requests wait until it ends."""
        self.leases: dict[str, Lease] = {}
        self.members: dict[str, Member] = {}
        """The wanted members, by name (BOTH)."""
        self.senders: dict[str, Member] = {}
        """Publishers that want to use the tree, by name."""
        self.departures = Departures()
        self.renew = False
        """Whether a new key is wanted, although the members stay the same."""
        self.trust = Trust()

    def reconsidered(self, state: OfmState | None) -> bool:
        """Return whether the controller no longer refuses what it has refused."""
        return self.refused is not None and (state is None or state.status is not Status.REFUSED)

    def moved(self, state: OfmState | None) -> bool:
        """Return whether the controller has moved the built tree to another address while the former one still
        works."""
        if self.busy or self.tree is None or self.built is None or state is None or state.address is None:
            return False
        whole = state.status is Status.CONSTRUCTED and self.built[0] | self.built[1] <= set(state.brokers)
        return whole and state.former == self.tree.address

    def stands(self, state: OfmState | None, now: float) -> bool:
        """Return whether the controller's state matches what has been built, so that the tree can be used. A tree that
        is not built yet, or is being changed, counts as matching. A controller that has just started knows nothing of
        any switch: the tables count as unchanged for `UNSURE` seconds."""
        if self.busy or self.tree is None or self.built is None:
            return True
        if state is None or state.address != self.tree.address:
            return False
        if state.status is Status.UPDATING and not state.brokers:
            return self.trust.holds(now)
        self.trust.unsure = None
        return state.status is Status.CONSTRUCTED and self.built[0] | self.built[1] <= set(state.brokers)
