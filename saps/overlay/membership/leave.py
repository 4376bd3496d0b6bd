"""An orderly leave: nothing acknowledged is lost, and no broker sends to this one any more when it ends.

1. Own publications arrive, also at the heirs of brokers that have just died.
2. Filters and publisher keys are withdrawn. Filters stay if sessions go on elsewhere: publishers' brokers then keep
   publications for these sessions.
3. The keys are removed from the ring.
4. `Leave` goes to all brokers that have sent to this incarnation; it ends when each has answered `LeaveAck`.
"""

from __future__ import annotations

from collections.abc import Callable

from saps.overlay.frames.ring import Leave, LeaveAck
from saps.overlay.port import Handlers, Port
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.ring.skip_graph import SkipGraph

SETTLE_AT_MOST, SETTLE_EVERY = 3.0, 0.01
"""Most seconds to wait until own publications have arrived, and seconds between two checks."""
LEAVE_KEYS_AT_MOST = 1.5

Withdraw = Callable[[bool, Callable[[], None]], None]


class Leaving:
    """The leave of one broker, and the brokers that it must say `Leave` to."""

    def __init__(
        self,
        port: Port,
        graph: SkipGraph,
        settled: Callable[[], bool],
        owed: Callable[[], bool],
        withdraw: Withdraw,
        timeout: float,
    ) -> None:
        """`settled` returns whether nobody waits for anything that only this broker has, `owed` whether sessions here
        go on elsewhere. `withdraw` gets that answer, withdraws what the mesh keeps of this broker, and calls its last
        argument when all concerned brokers know. The leave ends after `timeout` seconds even without all answers."""
        self._port = port
        self._graph = graph
        self._settled = settled
        self._owed = owed
        self._withdraw = withdraw
        self._timeout = timeout
        self.correspondents: dict[str, BrokerRef] = {}
        """By name: brokers that have sent to this incarnation and must be told when it leaves."""
        self._leave_acks: set[BrokerRef] = set()
        """Brokers that have answered `LeaveAck`."""
        self._left: Callable[[], None] | None = None
        self.begun = False
        self._eviction = False
        self._leave = Leave()
        """The frame that ends the leave, once it is known whether sessions are owed."""

    def begin(self, left: Callable[[], None]) -> None:
        """Leave. `left` runs when nothing more can arrive, or after the timeout."""
        self.begun = True
        self._left = left
        self._port.after(self._timeout, self._gone)
        self._settle(self._port.now + SETTLE_AT_MOST)

    def heard(self, sender: BrokerRef) -> bool:
        """Note that a broker has sent something. Returns True if it does not know yet that this one leaves: see
        `tell`."""
        if sender in self._leave_acks:  # an answer to a range call may come later than that
            return False
        stranger = self._eviction and sender.name not in self.correspondents
        self.correspondents[sender.name] = sender
        return stranger

    def tell(self, stranger: BrokerRef) -> None:
        """Send `Leave` to a broker after its frame was answered: frames behind the `Leave` would be ignored."""
        if stranger.name in self.correspondents:
            self._port.send(stranger, self._leave)

    @property
    def handlers(self) -> Handlers:
        return {LeaveAck: self._on_leave_ack}

    def _on_leave_ack(self, sender: BrokerRef, frame: LeaveAck) -> None:
        self._leave_acks.add(sender)
        self.parted(sender)

    def link_down(self, peer: BrokerRef) -> None:
        """Stop waiting for a broker whose link is down."""
        if self._eviction:
            self.parted(peer)

    def parted(self, broker: BrokerRef) -> None:
        """Note that nothing more can come from a broker."""
        self.correspondents.pop(broker.name, None)
        if self._eviction and not self.correspondents:
            self._gone()

    def _settle(self, limit: float) -> None:
        """Withdraw filters and publisher keys once this broker is `settled`, at the latest at `limit`."""
        if not self._settled() and self._port.now < limit:
            self._port.after(SETTLE_EVERY, lambda: self._settle(limit))
        else:
            self._leave = Leave(self._owed())
            self._withdraw(self._leave.owed, self._take_out_keys)

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
        limit = 0.0 if self._graph.alone else LEAVE_KEYS_AT_MOST
        for key in keys:
            self._graph.remove(key, one_done)
        self._port.after(limit, self._part)

    def _part(self) -> None:
        if self._eviction:
            return
        self._eviction = True
        if not self.correspondents:
            self._gone()
        for broker in self.correspondents.values():
            self._port.send(broker, self._leave)

    def _gone(self) -> None:
        left, self._left = self._left, None
        if left is not None:
            left()
