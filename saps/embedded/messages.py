"""What a program has subscribed to, message by message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Self

from saps.embedded.inbox import Inbox
from saps.messages import Message, Subscription


class ClosedError(Exception):
    """The broker has stopped: nothing can be published or subscribed any more."""


class TooSlowError(Exception):
    """More messages with QoS 1 or 2 have come than there was room for: those after the ones that were handed out are
    lost to this subscription, which has ended."""


class Messages:
    """A subscription: an asynchronous iterator of `saps.Message`, made by `saps.Broker.subscribe`.

    With ``async with`` it is in force from then on to the end of the block; no message published after its beginning,
    anywhere in the mesh, is missed. Iterated without, it is in force from the first step to the end of the loop. The
    loop ends when the broker stops; it raises `TooSlowError`.
    """

    def __init__(
        self,
        inbox: Callable[[Callable[[], None]], Inbox],
        subscription: Subscription,
        begun: Callable[[Messages], None],
        ended: Callable[[Messages], None],
    ) -> None:
        """`inbox` makes the agent, which calls its argument when there is no room. `begun` is told of the beginning,
        and may refuse it with `ClosedError`; `ended` of the end."""
        self._make = inbox
        self._subscription = subscription
        self._begun = begun
        self._ended = ended
        self._inbox: Inbox | None = None
        self.closed = False

    @property
    def dropped(self) -> int:
        """Messages with QoS 0 that there was no room for, and those that expired while they waited."""
        return self._inbox.dropped if self._inbox is not None else 0

    async def __aenter__(self) -> Self:
        """Raises `ClosedError` if the broker has stopped."""
        await self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._all(begun=self._inbox is not None)

    def close(self) -> None:
        """End the subscription, and every loop over it."""
        if not self.closed:
            self.closed = True
            if self._inbox is not None:
                self._inbox.end()
            self._ended(self)

    async def _all(self, begun: bool) -> AsyncIterator[Message]:
        inbox = self._inbox if self._inbox is not None else await self._begin()
        try:
            while (message := await inbox.take()) is not None:
                yield message
            if inbox.overrun:
                self.close()
                raise TooSlowError(f"{self._subscription.filter}: more than {inbox.room} messages wait")
        finally:
            if not begun:
                self.close()

    async def _begin(self) -> Inbox:
        if self.closed:
            raise ClosedError("the subscription has ended")
        if self._inbox is not None:
            return self._inbox
        self._begun(self)
        inbox = self._inbox = self._make(self._overrun)
        try:
            await inbox.begin(self._subscription)
        except BaseException:
            self.close()
            raise
        if self.closed:
            raise ClosedError("the broker has stopped")
        return inbox

    def _overrun(self) -> None:
        asyncio.get_running_loop().call_soon(self.close)  # later: the hub is at it
