"""Drives an overlay node with real links and the real clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from time import monotonic

from saps.links import Links
from saps.overlay.frames.base import Frame
from saps.overlay.node import OverlayNode
from saps.overlay.node_port import Driver
from saps.overlay.ring.keys import BrokerRef
from saps.storage.driver.mesh import HeldFrames


class LiveMesh:
    """An `OverlayNode` driven by the event loop (a `saps.overlay.node_port.Driver` and a
    `saps.links.user.LinkUser`)."""

    def __init__(self, links: Links, node: Callable[[Driver], OverlayNode]) -> None:
        """`node` makes the node for this driver."""
        self._links = links
        self._loop = asyncio.get_running_loop()
        self._flushing = False
        self.ready = asyncio.Event()
        """Set once the mesh is joined and its session directory knows the sessions here."""
        self.gates: list[HeldFrames] = []
        """Gates at which frames wait for pending commits of the storage."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self.node = node(self)
        self.node.port.timers.epoch = _epoch()
        self.receive, self.met = self.node.receive, self.node.peers.met
        self.session_started, self.link_down = self.node.session_started, self.node.link_down
        self.express_started = self.node.delivery.multicast.forwarder.express_started
        self.answered_for = self.node.answered_for
        links.side.user = self

    def act(self, action: Callable[[], None]) -> None:
        """Run an action on the node, and send the frames that result."""
        action()
        self.wanted()

    def datagrams(self, datagrams: list[bytes]) -> None:
        """Take datagrams from OpenFlow trees."""
        self.node.receive_datagrams(datagrams)

    async def join(self, contact: BrokerRef | None, former: Collection[str] = ()) -> None:
        """Join the mesh through a broker, or begin a mesh if `contact` is None. Return once joined. `former` as for
        `OverlayNode.start`."""
        joined = asyncio.Event()
        self.node.start(contact, joined.set, self.ready.set, former)
        await joined.wait()

    async def leave(self) -> None:
        """Leave the mesh in order, and return when the Leave is complete."""
        left = asyncio.Event()
        self.node.leave(left.set)
        self.wanted()
        await left.wait()
        self._flush()

    def close(self) -> None:
        """Stop the node's timer, since the links are about to close. No commit waits for other brokers any more."""
        self.node.replicas.source.end()
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, float("-inf")

    def wanted(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def given_up(self, broker: BrokerRef) -> None:
        self._links.drop(broker)

    def _flush(self) -> None:
        """Send the node's pending frames, except those that a gate holds, and set the timer anew."""
        self._flushing = False
        send, gates, detours = self._links.send, self.gates, self.node.peers.detours
        for to, frame in self.node.take():
            if not gates or not any(gate.holds(to, frame) for gate in gates):
                send(*(detours.way(to, frame) if detours.ways else (to, frame)))
        self._links.flush()
        self._arm()

    def send_now(self, frames: list[tuple[BrokerRef, Frame]]) -> None:
        """Send frames that a gate has released."""
        for to, frame in frames:
            self._links.send(*self.node.peers.detours.way(to, frame))
        self._links.flush()

    def _arm(self) -> None:
        deadline = self.node.port.timers.deadline
        if deadline < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = deadline
            self._timer = self._loop.call_later(max(0.0, deadline - monotonic()), self._wake)

    def _wake(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        try:
            self.node.wake()
        finally:  # a fault in one timer must not stop the others
            self._flush()

    def whois(self, name: str, answer: Callable[[BrokerRef | None], None]) -> None:
        """Find the newest incarnation of the broker with this name, in the ring and among acquaintances.

        `answer` gets it, or None if there is none; it may never run if the search is lost."""
        heard = [ref for ref in self.node.rejoin.ring_probe.acquaintances if ref.name == name]

        def found(broker: BrokerRef | None) -> None:
            known = heard if broker is None else [broker, *heard]
            answer(max(known, key=lambda ref: ref.incarnation, default=None))

        self.node.whois(name, found)


def _epoch() -> float:
    """Return the seconds to add to `monotonic` for the time since the epoch.

    It is read when the node begins, as the incarnation may be much older. The greatest of several readings counts,
    since the process may be suspended between the two clocks of one."""
    return max(time.time_ns() / 1e9 - monotonic() for _ in range(5))
