"""Witnesses: other brokers that remember the last transaction of a broker's storage.

An older copy of all files of a store, put back later, is consistent in itself. Only another broker can tell that it
lacks the transactions since. A broker with storage therefore tells `WITNESSES` other brokers the number of its last
transaction every `EVERY` seconds, and asks all brokers when it starts. Witnesses remember the number in memory only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from saps.agents.api import Answers, remote

WITNESS = "witness"
"""Name of the agent at each broker. Calls reach it by the broker's name, so that it needs no key in the overlay."""
EVERY = 5.0
"""Seconds between two reports to the witnesses. Transactions of the last `EVERY` seconds may be missing unnoticed. Each
report costs `WITNESSES` calls."""
WITNESSES = 2
"""Brokers that each report goes to. With more witnesses, an older copy is found although more of them have crashed."""
REMEMBERED = 4096
"""Most brokers that a witness remembers; it forgets the one with the oldest report first."""


class Witness:
    """The agent of one broker that remembers the last transactions of other brokers' stores."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[bytes, int]] = OrderedDict()

    @remote
    def note(self, broker: str, store: bytes, number: int) -> list[Any]:
        """Remember the last transaction `number` of a broker's `store` (its identity, `saps.storage.records.State`).
        Returns the store and number remembered before as a list of two, or an empty list."""
        before = self._known.pop(broker, None)
        self._known[broker] = store, number
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return list(before or ())


class Noted(Protocol):
    """The store that `Notes` report (`saps.storage.driver.store.Store`)."""

    @property
    def identity(self) -> bytes:
        """Identity of the store (`saps.storage.records.State.store`)."""

    @property
    def number(self) -> int:
        """Number of the store's last transaction."""


class Calls(Protocol):
    """Calls the witnesses (`saps.agents.api.AgentRegistry`)."""

    def call(self, name: str, method: str, args: Iterable[Any], done: Callable[[Answers], None]) -> None: ...


class Notes:
    """Reports one broker's storage to its witnesses, and asks them about it at the start."""

    def __init__(
        self, name: str, store: Noted, calls: Calls, others: Callable[[], list[str]], found: Callable[[str, int], None]
    ) -> None:
        """`name`: name of this broker. `others` returns the names of the brokers with a link to it. `found` is called
        with what is wrong and the number of missing transactions; 0 if that is unknown."""
        self._name = name
        self._store = store
        self._calls = calls
        self._others = others
        self._found = found
        self._told: tuple[int, list[str]] = (-1, [])
        """The last report: number of the transaction, and the brokers that got it."""

    def ask(self) -> None:
        """Ask all brokers what they remember of this store; report to `found` if it lacks transactions or is another
        store. To be called once, after the broker has joined the mesh."""
        store, number = self._store.identity, self._store.number

        def answered(answers: Answers) -> None:
            known = [values for _, values in answers.of(tuple[bytes, int])]
            same = [last for file, last in known if file == store]
            if same and max(same) > number:
                self._found("an older copy of the storage was put back", max(same) - number)
            elif known and not same:
                self._found("another storage is in the place of the one it had", 0)

        self._calls.call(f"!{WITNESS}", "note", (self._name, store, number), answered)

    def tell(self) -> None:
        """Report the last transaction to the witnesses, unless the last report was the same. To be called every `EVERY`
        seconds."""
        number, others = self._store.number, sorted(self._others())[:WITNESSES]
        if (number, others) == self._told:
            return
        self._told = number, others
        for other in others:
            self._calls.call(f"{other}!{WITNESS}", "note", (self._name, self._store.identity, number), _nothing)


def _nothing(answers: Answers) -> None:
    pass
