"""The claims and releases that one broker sends to the holders of partitions, one call at a time for each partition.

The first call to a partition is a range call, which finds whoever holds it. The holders answer who else holds it, so
later claims go straight to all that are known, with one message there and one back each. Whenever what they answer does
not fit (one holds it no longer, or cannot be reached, or names somebody who was not asked) the same claim goes as a
range call once more. Why no claim is missed is in decision 065.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from saps.overlay.frames.calls import Claim, SessionLeases
from saps.overlay.port import Port
from saps.overlay.rendezvous.range_calls import AT_ONCE, ATTEMPT, LONGEST_ATTEMPT, PAUSE, Outcome, RangeCalls
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.directory import holder_key, partition_of, shelf

SEARCH = 3.0
"""Seconds after which an incomplete range call is not repeated; the answers so far are used."""
LINGER = 1.0
"""Seconds for which ended leases are gathered, so that many go in one call or with the next claim. A client that has
moved on meanwhile costs its new broker one more question."""

Q = TypeVar("Q")
Names = frozenset[str]


class _RequestHandler(Generic[Q]):
    """The notices waiting for the holders of one partition."""

    __slots__ = ("busy", "claims", "holders", "released", "scheduled")

    def __init__(self) -> None:
        self.claims: dict[str, Q] = {}
        self.released: dict[str, int] = {}
        self.busy = False
        self.scheduled = False
        self.holders: dict[str, BrokerRef] = {}
        """The known holders of the partition by name; empty if they must be searched."""


class _Telling:
    """A claim under way."""

    __slots__ = ("begun", "body", "done", "holders", "pause", "timeout", "tried")

    def __init__(
        self, body: Claim, holders: dict[str, BrokerRef], begun: float, done: Callable[[Outcome], None]
    ) -> None:
        self.body = body
        self.holders = holders
        self.begun = begun
        self.done = done
        self.tried: Names = frozenset()
        """The holders that the claim went to directly in the last attempt, which did not suffice."""
        self.pause, self.timeout = PAUSE, ATTEMPT


class Notices(Generic[Q]):
    """The claims and releases of one broker. `Q` is the purpose of a claim, which is handed back with the answer."""

    def __init__(
        self,
        port: Port,
        calls: RangeCalls,
        joined: Callable[[], bool],
        leases: dict[str, int],
        keeps: Callable[[str], bool],
        answered: Callable[[int, dict[str, Q], Outcome], None],
    ) -> None:
        """`joined` says if this broker is in the mesh: until then what is to be told waits. `leases`: the stamps of
        the clients claimed here; `keeps`: does the session of one outlive this broker?
        `answered` gets a partition, the claims that the holders have heard of, and their
        answers."""
        self._port = port
        self._calls = calls
        self._joined = joined
        self._leases = leases
        self._keeps = keeps
        self._answered = answered
        self._request_handlers: dict[int, _RequestHandler[Q]] = {}
        self.straight = 0
        """Calls without a search."""
        self.searched = 0
        """Range calls."""

    def claim(self, client: str, what: Q) -> None:
        """Claim a client's session for this broker."""
        number = partition_of(client)
        self._request_handler(number).claims[client] = what
        self._write(number)

    def claim_again(self, claims: dict[str, Q]) -> None:
        """Repeat claims that the holders could not answer, unless there are later claims of the same clients.

        A claim whose purpose is None waits for nobody, so that it takes no precedence."""
        self._add(claims)
        for number in {partition_of(client) for client in claims}:
            self._write(number)

    def release(self, client: str, stamp: int) -> None:
        """Report within `LINGER` seconds that a client's lease up to this stamp has ended."""
        number = partition_of(client)
        request_handler = self._request_handler(number)
        request_handler.released[client] = stamp
        if not request_handler.scheduled:
            request_handler.scheduled = True

            def due() -> None:
                request_handler.scheduled = False
                self._write(number)

            self._port.after(LINGER, due)

    def search_again(self, claims: dict[str, Q]) -> None:
        """Send these claims and all waiting notices by a search, since the known holders may be incomplete: this broker
        has joined, or two parts of the mesh may have merged. A waiting claim of a client takes precedence."""
        self._add(claims)
        for number, request_handler in list(self._request_handlers.items()):
            request_handler.holders = {}
            self._write(number)

    def _add(self, claims: dict[str, Q]) -> None:
        for client, what in claims.items():
            waiting = self._request_handler(partition_of(client)).claims
            if waiting.get(client) is None:
                waiting[client] = what

    def _request_handler(self, number: int) -> _RequestHandler[Q]:
        request_handler = self._request_handlers.get(number)
        if request_handler is None:
            request_handler = self._request_handlers[number] = _RequestHandler()
        return request_handler

    def _write(self, number: int) -> None:
        request_handler = self._request_handlers[number]
        if request_handler.busy or not self._joined() or not (request_handler.claims or request_handler.released):
            return
        request_handler.busy = True
        claims, request_handler.claims = request_handler.claims, {}
        released, request_handler.released = request_handler.released, {}
        for client in claims:
            released.pop(client, None)  # the new lease takes the place of the old one
        told = {client: self._leases[client] for client in claims if client in self._leases}
        kept = [client for client in told if self._keeps(client)]
        body = Claim(number, self._port.me, list(told.items()), list(released.items()), kept=kept)

        def done(outcome: Outcome) -> None:
            if outcome.complete:
                request_handler.holders = _holders(outcome)
            request_handler.busy = False
            self._answered(number, {client: what for client, what in claims.items() if client in told}, outcome)
            self._write(number)

        self._call(_Telling(body, request_handler.holders, self._port.now, done))

    def _call(self, telling: _Telling) -> None:
        """Send a claim directly to the known live holders, or by a search if there are none or the same ones have not
        sufficed."""
        asked = {name: ref for name, ref in telling.holders.items() if not self._port.lost(ref)}
        names = frozenset(asked)
        if not names or names == telling.tried or not all(map(self._port.reachable, asked.values())):
            self._search(telling)
            return

        def answered(outcome: Outcome) -> None:
            if outcome.complete and self._agreed(outcome, names):
                self.straight += 1
                telling.done(outcome)
            else:
                telling.tried = names
                telling.holders = _holders(outcome) if outcome.complete else telling.holders
                self._call(telling)

        number, order = telling.body.partition, self._port.order
        self._calls.call_at([(holder_key(number, ref, order), ref) for ref in asked.values()], telling.body, answered)

    def _search(self, telling: _Telling) -> None:
        """Send a claim by a range call. If a crash makes it incomplete, the other holders are asked directly as soon as
        the crashed broker is known, which is before the repair."""

        asked = self._port.now

        def found(outcome: Outcome) -> None:
            if outcome.complete or self._port.now - telling.begun >= SEARCH:
                telling.done(outcome)
            else:
                self._port.after(telling.pause, lambda: self._call(telling))
                telling.pause = min(2 * telling.pause, AT_ONCE)
                if self._port.now - asked >= telling.timeout:
                    telling.timeout = min(2 * telling.timeout, LONGEST_ATTEMPT)

        self.searched += 1
        self._calls.call(shelf(telling.body.partition), telling.body, found, 1, telling.timeout)

    def _agreed(self, outcome: Outcome, asked: Names) -> bool:
        """Return whether all holders that were `asked` have answered and name no others, and one of them knows the
        whole partition."""
        answers = [result for result in outcome.results if isinstance(result, SessionLeases)]
        answered = {answer.broker.name for answer in answers}
        named = {ref.name for answer in answers for ref in answer.holders if not self._port.lost(ref)}
        return answered == asked and named <= answered and any(answer.ready for answer in answers)


def _holders(outcome: Outcome) -> dict[str, BrokerRef]:
    answers = [result for result in outcome.results if isinstance(result, SessionLeases)]
    found = {ref.name: ref for answer in answers for ref in answer.holders}
    return found | {answer.broker.name: answer.broker for answer in answers}
