"""What a Web page sees of the signs: the broker's Web frontend, by server-sent events and by plain requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import aiohttp
import msgspec

from examples.parking.desk import Free
from examples.parking.town import CarPark

FOREVER = aiohttp.ClientTimeout(total=None)


class Event(msgspec.Struct, frozen=True):
    """A message as the Web frontend tells it."""

    topic: str
    payload: str


class WebPage:
    """A page that shows all signs, as one in a browser would by ``new EventSource("/v1/events?filter=...")``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds since the beginning."""
        self.seen: dict[str, list[tuple[float, int]]] = {}
        """The free places of each car park as the page has shown them, with the time."""
        self._clock = clock

    async def follow(self, broker: str, ready: asyncio.Event) -> None:
        """Show the signs until cancelled. Raises `aiohttp.ClientError` if the broker ends."""
        async with (
            aiohttp.ClientSession(timeout=FOREVER) as session,
            session.get(f"{broker}/v1/events?filter=parking/%2B/free&qos=1") as response,
        ):
            response.raise_for_status()
            ready.set()
            async for event in _events(response):
                free = msgspec.json.decode(event.payload, type=Free).free
                self.seen.setdefault(event.topic.split("/")[1], []).append((round(self._clock(), 3), free))

    def free(self, park: CarPark) -> int | None:
        """What the page shows now."""
        shown = self.seen.get(park.name)
        return shown[-1][1] if shown else None


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[Event]:
    """The events' data. (Each event of the broker has one line of data.)"""
    async for line in response.content:
        if line.startswith(b"data:"):
            yield msgspec.json.decode(line[5:], type=Event)


async def retained(brokers: Sequence[str], parks: Sequence[CarPark]) -> dict[tuple[str, str], int | None]:
    """What each broker answers to who asks for a sign: ``GET /v1/topics/parking/PARK/free``."""
    found: dict[tuple[str, str], int | None] = {}
    async with aiohttp.ClientSession() as session:
        for broker in brokers:
            for park in parks:
                async with session.get(f"{broker}/v1/topics/parking/{park.name}/free") as response:
                    body = await response.read()
                    found[broker, park.name] = (
                        msgspec.json.decode(body, type=Free).free if response.status == 200 else None
                    )
    return found
