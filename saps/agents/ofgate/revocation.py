"""Revokes what publishers and members were told about a tree, before a member is taken out or the tree goes (decision
032)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saps.agents.api import Answers
from saps.agents.ofgate.record import Topic
from saps.agents.switchover import Member, Mode
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef

DRAIN = 0.2
"""Longest time in seconds that a datagram is under way: a tree stays unchanged so long after its last use."""
REVOKE_AGAIN = 0.05
"""Delay in seconds until a broker that could not let go of a tree at once is asked again."""
REVOKE_AT_MOST = 5.0
"""Time in seconds after which a broker of BOTH that has not let go is declared dead."""

Done = Callable[[], None]
Call = Callable[[Member, str, tuple[Any, ...], Callable[[Answers], None]], None]
"""Calls a method of a broker's OFM agent."""


class Revocation:
    """The revocations of one term of OFGate. Call `close` when it stops leading: then nothing more is done."""

    def __init__(self, port: Port, call: Call) -> None:
        self._port = port
        self._call = call
        self._closed = False

    def close(self) -> None:
        """Ask no broker any more."""
        self._closed = True

    def take_back(self, topic: Topic, then: Done) -> None:
        """Run `then` when no broker uses the tree as it is any more, and all datagrams under way have arrived."""
        if topic.mode is Mode.EITHER:
            leases = [lease for lease in topic.leases.values() if lease.uses_tree]
            holders = {lease.member: lease.until for lease in leases}
        else:
            users = (topic.members | topic.senders).values()
            topic.departures.all = True
            holders = dict.fromkeys(users, self._port.now + REVOKE_AT_MOST)
        waiting = {member.ref for member in holders}

        def drained() -> None:
            if not self._closed:
                then()

        def let_go(ref: BrokerRef) -> None:
            waiting.discard(ref)
            if not waiting:
                self._port.after(DRAIN, drained)

        for member, until in holders.items():
            self._revoke(topic, member, until, let_go)
        if not holders:
            self._port.after(DRAIN, drained)

    def _revoke(self, topic: Topic, member: Member, until: float, let_go: Callable[[BrokerRef], None]) -> None:
        """Ask the broker until it has let go, or until its time is over."""
        epoch = topic.tree.epoch if topic.tree is not None else 0
        over = False

        def done() -> None:
            nonlocal over
            if not over and not self._closed:
                over = True
                lease = topic.leases.get(member.ref.name)
                if lease is not None:
                    lease.uses_tree = False
                let_go(member.ref)

        def answered(answers: Answers) -> None:
            if any(answer.value is True for answer in answers):
                done()
            else:
                self._port.after(REVOKE_AGAIN, ask)

        def ask() -> None:
            if not over and not self._closed:
                self._call(member, "revoke", (topic.name, epoch), answered)

        self._port.after(max(0.0, until - self._port.now), done)
        ask()
