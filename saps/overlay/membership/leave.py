"""An orderly leave: nothing that was acknowledged is lost, and nobody sends here any more when this broker goes.

In this order: own publications arrive, filters and presence are withdrawn, the keys are taken out of the ring; then
`Leave` goes to everyone that has sent to this broker in this life, and it is gone when each has answered `LeaveAck`.
Filters stay if sessions go on elsewhere: publishers' brokers then keep for these what this one can take no more.
"""

from __future__ import annotations

from collections.abc import Callable

from saps.overlay.frames.ring import Leave, LeaveAck
from saps.overlay.port import Handlers, Port
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.ring.skip_graph import SkipGraph

SETTLE_AT_MOST, SETTLE_EVERY = 3.0, 0.01
"""Seconds for which a leaving broker waits until its publications have arrived."""
LEAVE_KEYS_AT_MOST = 1.5

Withdraw = Callable[[Callable[[], None]], None]


class Leaving:
    """Whom this broker must part from, and how far it has come with that."""

    def __init__(
        self, port: Port, graph: SkipGraph, settled: Callable[[], bool], withdraw: Withdraw, timeout: float
    ) -> None:
        """`settled`: nothing of its own is under way. `withdraw` gives up what the mesh keeps of this broker, and calls
        what it is handed when all concerned know. After `timeout` seconds it goes even if not everyone has answered."""
        self._port = port
        self._graph = graph
        self._settled = settled
        self._withdraw = withdraw
        self._timeout = timeout
        self.correspondents: dict[str, BrokerRef] = {}
        """Brokers that have sent to this one in this life: they must know when it leaves."""
        self._leave_acks: set[BrokerRef] = set()
        """Brokers that have parted from this one."""
        self._left: Callable[[], None] | None = None
        self.begun = False
        self._eviction = False

    def begin(self, left: Callable[[], None]) -> None:
        """Leave. `left` runs when nothing more can arrive, or when the time is up."""
        self.begun = True
        self._left = left
        self._port.after(self._timeout, self._gone)
        self._settle(self._port.now + SETTLE_AT_MOST)

    def heard(self, sender: BrokerRef) -> bool:
        """A broker has sent something. True if it does not know yet that this one is going: see `tell`."""
        if sender in self._leave_acks:  # an answer to a range call may come later than that
            return False
        stranger = self._eviction and sender.name not in self.correspondents
        self.correspondents[sender.name] = sender
        return stranger

    def tell(self, stranger: BrokerRef) -> None:
        """Part from it, after it was answered: what comes behind the `Leave` counts for nothing."""
        if stranger.name in self.correspondents:
            self._port.send(stranger, Leave())

    @property
    def handlers(self) -> Handlers:
        return {LeaveAck: self._on_leave_ack}

    def _on_leave_ack(self, sender: BrokerRef, frame: LeaveAck) -> None:
        self._leave_acks.add(sender)
        self.parted(sender)

    def link_down(self, peer: BrokerRef) -> None:
        """Nothing is to be had from it any more."""
        if self._eviction:
            self.parted(peer)

    def parted(self, broker: BrokerRef) -> None:
        """Nothing more can come from a broker."""
        self.correspondents.pop(broker.name, None)
        if self._eviction and not self.correspondents:
            self._gone()

    def _settle(self, limit: float) -> None:
        """Once all own publications are out (at the latest at `limit`), give up filters and presence."""
        if not self._settled() and self._port.now < limit:
            self._port.after(SETTLE_EVERY, lambda: self._settle(limit))
        else:
            self._withdraw(self._take_out_keys)

    def _take_out_keys(self) -> None:
        keys = list(self._graph.nodes)
        missing = len(keys)

        def one_done() -> None:
            nonlocal missing
            missing -= 1
            if missing == 0:
                self._part()

        # Keys that all leave at once wait for each other, round the ring. Own ones that are all of it concern nobody
        # else; where others leave, too, the repair is left to those that stay.
        patience = 0.0 if self._graph.alone else LEAVE_KEYS_AT_MOST
        for key in keys:
            self._graph.remove(key, one_done)
        self._port.after(patience, self._part)

    def _part(self) -> None:
        if self._eviction:
            return
        self._eviction = True
        if not self.correspondents:
            self._gone()
        for broker in self.correspondents.values():
            self._port.send(broker, Leave())

    def _gone(self) -> None:
        left, self._left = self._left, None
        if left is not None:
            left()
