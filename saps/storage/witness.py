"""Witnesses of how far a broker's storage goes: other brokers, which remember it.

A copy of all files of a store, put back later, is sound in itself: only somebody else can tell that it lacks what came
after it. So a broker with storage tells two others the number of its last transaction every `EVERY` seconds, and asks
all of them at its start. They remember it in memory, for as long as one of them lives.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from saps.agents.api import Answers, remote

WITNESS = "witness"
"""Name of each broker's witness, which is called by way of its broker: it costs the overlay no key."""
EVERY = 5.0
"""Seconds between two notes: what was stored within the last ones may be missing unseen. Less costs two calls each."""
WITNESSES = 2
"""Brokers that are told. More find a copy put back where more of them have died."""
REMEMBERED = 4096
"""Brokers that are remembered."""


class Witness:
    """The agent of one broker that remembers how far the stores of others go."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[bytes, int]] = OrderedDict()

    @remote
    def note(self, broker: str, store: bytes, number: int) -> list[Any]:
        """A broker's store, by the file's identity, has come to a transaction. What was remembered of it before:
        nothing, or the identity and the number."""
        before = self._known.pop(broker, None)
        self._known[broker] = store, number
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return list(before or ())


class Noted(Protocol):
    """The store that is told of (`saps.storage.driver.store.Store`)."""

    @property
    def identity(self) -> bytes:
        """Which file."""

    @property
    def number(self) -> int:
        """Its last transaction."""


class Calls(Protocol):
    """What calls the witnesses (`saps.agents.api.AgentRegistry`)."""

    def call(self, name: str, method: str, args: Iterable[Any], done: Callable[[Answers], None]) -> None: ...


class Notes:
    """What one broker with storage tells its witnesses."""

    def __init__(
        self, name: str, store: Noted, calls: Calls, others: Callable[[], list[str]], found: Callable[[str, int], None]
    ) -> None:
        """`name`: of this broker. `others`: brokers it is linked to. `found` is told what is wrong, and how many
        transactions are missing."""
        self._name = name
        self._store = store
        self._calls = calls
        self._others = others
        self._found = found
        self._told: tuple[int, list[str]] = (-1, [])
        """Of which transaction, and whom."""

    def ask(self) -> None:
        """At the start, once joined: what do the others remember?"""
        store, number = self._store.identity, self._store.number

        def answered(answers: Answers) -> None:
            known = [answer.value for answer in answers if isinstance(answer.value, list) and len(answer.value) == 2]
            same = [last for file, last in known if file == store and isinstance(last, int)]
            if same and max(same) > number:
                self._found("an older copy of the storage was put back", max(same) - number)
            elif known and not same:
                self._found("another storage is in the place of the one it had", 0)

        self._calls.call(f"!{WITNESS}", "note", (self._name, store, number), answered)

    def tell(self) -> None:
        """From time to time: how far it has come."""
        number, others = self._store.number, sorted(self._others())[:WITNESSES]
        if (number, others) == self._told:
            return
        self._told = number, others
        for other in others:
            self._calls.call(f"{other}!{WITNESS}", "note", (self._name, self._store.identity, number), _nothing)


def _nothing(answers: Answers) -> None:
    pass
