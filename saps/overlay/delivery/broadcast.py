"""Broadcasts a control message to many brokers along the multicast tree, with one aggregated reply.

The initiator sends O(log n) messages for n brokers, as for a publication. Nothing is repeated here: the reply names the
brokers that are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from saps.overlay.delivery.tree import by_place, divide
from saps.overlay.frames.delivery import GroupKeys, Tell, Told
from saps.overlay.port import Handlers, Port
from saps.overlay.ring.keys import BrokerRef

SHARE = 0.7
"""Fraction of its own timeout that a broker leaves to its children: their replies must be in before its own is due."""

Missing = Callable[[list[BrokerRef]], None]


class _Waiting:
    """A message that has been passed on, until all replies are in."""

    __slots__ = ("done", "missing", "parts")

    def __init__(self, done: Missing) -> None:
        self.done = done
        self.missing: list[BrokerRef] = []
        self.parts: dict[int, list[BrokerRef]] = {}
        """Brokers that each awaited reply stands for, by token; the child is the first of them."""


class Broadcaster:
    """The broadcasts of one broker. `take` is called with each message for this broker and returns whether the broker
    accepted it; set it after construction."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self.take: Callable[[GroupKeys], bool] = lambda body: False
        self._tokens = 0
        self._waiting: dict[int, _Waiting] = {}
        self.sent = 0
        """`Tell` frames sent or passed on since the start."""

    def tell(self, brokers: Iterable[BrokerRef], body: GroupKeys, timeout: float, done: Missing) -> None:
        """Broadcast `body` to the brokers. Calls `done` once with the brokers that did not accept it, or did not answer
        within `timeout` seconds."""
        waiting = _Waiting(done)
        wanted = set(brokers)
        if self._port.me in wanted and not self.take(body):
            waiting.missing.append(self._port.me)
        others = wanted - {self._port.me}
        self._pass_on(waiting, by_place(others, self._port.order), body, timeout)

    @property
    def handlers(self) -> Handlers:
        return {Tell: self._on_tell, Told: self._on_told}

    def _on_tell(self, sender: BrokerRef, frame: Tell) -> None:
        waiting = _Waiting(lambda missing: self._port.send(sender, Told(frame.token, missing)))
        if not self.take(frame.body):
            waiting.missing.append(self._port.me)
        if frame.body.leaf is None:
            self._pass_on(waiting, frame.slice, frame.body, SHARE * frame.timeout)
        else:
            waiting.done(waiting.missing)

    def _pass_on(self, waiting: _Waiting, slice: Sequence[BrokerRef], body: GroupKeys, timeout: float) -> None:
        for branch in divide(self._port.me, slice, self._port.order):
            self._tokens += 1
            waiting.parts[self._tokens] = [branch.child, *branch.slice]
            self._waiting[self._tokens] = waiting
            self.sent += 1
            self._port.send(branch.child, Tell(self._tokens, timeout, list(branch.slice), body))
        if waiting.parts:
            self._port.after(timeout, lambda: self._give_up(waiting))
        else:
            waiting.done(waiting.missing)

    def _on_told(self, sender: BrokerRef, frame: Told) -> None:
        token = frame.token
        waiting = self._waiting.get(token)
        if waiting is not None and waiting.parts[token][0].name == sender.name:
            del self._waiting[token], waiting.parts[token]
            waiting.missing.extend(frame.missing)
            if not waiting.parts:
                waiting.done(waiting.missing)

    def _give_up(self, waiting: _Waiting) -> None:
        if not waiting.parts:
            return
        for token, brokers in waiting.parts.items():
            del self._waiting[token]
            waiting.missing.extend(brokers)
        waiting.parts.clear()
        waiting.done(waiting.missing)
