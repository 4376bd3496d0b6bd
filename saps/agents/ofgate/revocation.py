"""Taking back what has been told about a tree, before somebody is taken out of it or it goes (decision 032)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saps.agents.api import Answers
from saps.agents.ofgate.record import Topic
from saps.agents.switchover import Member, Mode
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef

DRAIN = 0.2
"""Seconds that a datagram may be under way: so long a tree stays as it is after nobody uses it any more."""
REVOKE_AGAIN = 0.05
"""Seconds until a broker is asked again that could not let go of a tree at once."""
REVOKE_AT_MOST = 5.0
"""Seconds after which a broker of BOTH that has not let go is taken for dead."""

Done = Callable[[], None]
Call = Callable[[Member, str, tuple[Any, ...], Callable[[Answers], None]], None]
"""Calls a method of a broker's OFM agent."""


class Revocation:
    """Of one term of OFGate. `close` it when it does not lead any more: then nothing is done any more."""

    def __init__(self, port: Port, call: Call) -> None:
        self._port = port
        self._call = call
        self._closed = False

    def close(self) -> None:
        """Ask nobody any more."""
        self._closed = True

    def take_back(self, topic: Topic, then: Done) -> None:
        """Run `then` when nobody uses the tree as it is any more, and what is under way has arrived."""
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
        """Ask until the broker has let go, or its time is over."""
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
