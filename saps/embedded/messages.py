"""A program's subscription as an asynchronous iterator of messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Self

from saps.embedded.inbox import Inbox
from saps.messages import Message, Subscription


class ClosedError(Exception):
    """The broker has stopped, so that nothing can be published or subscribed."""


class TooSlowError(Exception):
    """The subscription has ended since a message of QoS 1 or 2 found no room. Messages after those already returned are
    lost to it."""


class Messages:
    """A subscription: an asynchronous iterator of `saps.Message`, made by `saps.Broker.subscribe`.

    With ``async with`` it lasts to the end of the block, and misses no message published anywhere in the mesh after its
    start. Without, it lasts from the first step of a loop to the loop's end. The loop ends when the broker stops, and
    raises `TooSlowError` when the program is too slow.
    """

    def __init__(
        self,
        inbox: Callable[[Callable[[], None]], Inbox],
        subscription: Subscription,
        begun: Callable[[Messages], None],
        ended: Callable[[Messages], None],
    ) -> None:
        """`inbox` makes the agent, which calls its argument when there is no room. `begun` is called at the start and
        may raise `ClosedError`; `ended` is called at the end."""
        self._make = inbox
        self._subscription = subscription
        self._begun = begun
        self._ended = ended
        self._inbox: Inbox | None = None
        self.closed = False

    @property
    def dropped(self) -> int:
        """Messages of QoS 0 dropped for lack of room, and messages that expired while waiting."""
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
