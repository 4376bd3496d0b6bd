"""Offers each session of a draining broker to other brokers, until one of them has adopted it.

A session belongs to this broker until the other has all of it, so a failed or lost offer costs only time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import msgspec

from saps.agents.api import Answers
from saps.drain.adoption import Claims
from saps.drain.agent import DRAIN
from saps.drain.hosts import Hosts
from saps.drain.values import Offer
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.session.session import Session
from saps.overlay.ring.keys import BrokerRef

AT_ONCE = 64
"""Most sessions offered or under way at once. More is faster; each takes a few round trips and the memory of its
messages."""
OVERDUE = 15.0
"""Seconds after an offer until a session that is still here is offered to another broker."""
AGAIN = 1.0
"""Seconds until a refused session is offered again."""

Call = Callable[[str, str, tuple[Any, ...], Callable[[Answers], None]], None]
"""Calls a method of an agent by name (`saps.agents.api.AgentRegistry.call`)."""


class Offering:
    """The sessions of a draining broker whose clients are away."""

    def __init__(self, me: Callable[[], BrokerRef], frontend: Frontend, claims: Claims, call: Call) -> None:
        self._me = me
        self._frontend = frontend
        self._claims = claims
        self._call = call
        self._hosts = Hosts()
        """Those of the current drain; an answer to an earlier drain is ignored."""
        self._due: dict[str, float] = {}
        """By client: when to offer the session."""
        self.moving: dict[str, float] = {}
        """By client: when the pending offer counts as failed."""

    def begin(self, hosts: Hosts, now: float) -> None:
        """Start a drain: sessions without a connected client are due at once."""
        self._hosts = hosts
        sessions = self._frontend.sessions
        self._due = {client: now for client, session in sessions.items() if session.connection is None}

    def end(self) -> None:
        """Forget everything: the drain was cancelled."""
        self._due.clear()
        self.moving.clear()

    def later(self, client: str, due: float) -> None:
        """Schedule the session of a redirected client, unless it follows its client before."""
        self._due[client] = due

    def look(self, due: float) -> None:
        """Schedule sessions whose clients have left meanwhile."""
        for client, session in self._frontend.sessions.items():
            if session.connection is None:
                self._due.setdefault(client, due)

    def offer(self, now: float) -> None:
        """Offer the sessions that are due, and check on those offered before."""
        sessions = self._frontend.sessions
        for client, overdue in list(self.moving.items()):
            if client not in sessions:
                del self.moving[client]
                self._due.pop(client, None)
            elif now >= overdue:
                self._claims.sync_one(client)  # perhaps there is a later one, and this one is to end
                self._refused(client, now)
        offers: dict[str, list[Offer]] = {}
        for offer in self._offers(now):
            host = self._hosts.choose(offer.client)
            if host is None:
                self._due[offer.client] = now + AGAIN
            else:
                self.moving[offer.client] = now + OVERDUE
                offers.setdefault(host, []).append(offer)
        for host, batch in offers.items():
            self._offer(host, batch)

    def _offers(self, now: float) -> Iterator[Offer]:
        """Yield offers for the sessions that are due, at most `AT_ONCE` under way."""
        room = AT_ONCE - len(self.moving)
        for client, due in list(self._due.items()):
            if due > now or client in self.moving:
                continue
            session = self._frontend.sessions.get(client)
            if session is None or session.connection is not None:
                del self._due[client]
            elif room > 0 and session.ends_at < inf:  # else another broker is taking it
                room -= 1
                yield self._described(client, session, now)

    def _described(self, client: str, session: Session, now: float) -> Offer:
        will = session.will
        return Offer(
            client,
            session.user,
            self._me(),
            self._claims.leases.get(client, 0),
            session.ends_at - now,
            len(session.queue.copies or ()),
            session.queue.bytes,
            None if will is None else will.message,
            0.0 if will is None else max(0.0, will.due - now),
        )

    def _offer(self, host: str, batch: list[Offer]) -> None:
        hosts = self._hosts

        def answered(answers: Answers) -> None:
            if hosts is not self._hosts:
                return
            reasons = [reason for _, some in answers.of(list[str]) for reason in some]
            if len(reasons) != len(batch):
                reasons = ["no answer"] * len(batch)
            for offer, reason in zip(batch, reasons, strict=True):
                if reason and offer.client in self.moving:
                    hosts.refused(offer.client, host)
                    self._refused(offer.client, self._frontend.clock())

        self._call(f"{host}!{DRAIN}", "adopt", (msgspec.to_builtins(batch, builtin_types=(bytes,)),), answered)

    def _refused(self, client: str, now: float) -> None:
        del self.moving[client]
        self._due[client] = now + AGAIN
