"""Where it happens: two cities with a broker or more each, and what there is between them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import NamedTuple, Protocol

from examples.common.mesh import Address
from examples.common.program import Program
from examples.emergency.door import door
from examples.emergency.result import HERE, THERE
from examples.smart_city.processes import free_ports, saps_broker
from lab.domains import TwoDomains
from lab.programs import CALM, MQTT

PRIORITY = "alert/#"
"""The priority topics."""
SETTINGS = {"priority.topics": PRIORITY}


class Doors(NamedTuple):
    """Where clients attach."""

    centre: Address
    """The emergency centre's, in the first city."""
    sirens: dict[str, Address]
    """Of each city."""
    cameras: Address
    """In the first city."""
    archive: Address
    """In the other one."""


class World(Protocol):
    """One of the two."""

    words: str
    """What it is, in a line."""
    cameras: tuple[int, float]
    """Bytes of a picture, and pictures a second."""

    def open(self, program: Program) -> AbstractAsyncContextManager[Doors]:
        """Everything is up inside the block."""

    async def by_trees(self, topics: list[str]) -> bool:
        """Have these topics use OpenFlow multicast in both cities, if there is such a thing: says so."""

    def across(self) -> int | None:
        """Bytes that have gone from the first city to the other so far, where that is counted."""


class Lab:
    """Two OpenFlow domains on Open vSwitch: a controller and an OFGate in each, an IP way of a few Mbit/s between."""

    def __init__(self, domains: TwoDomains, mbit: float) -> None:
        self._domains = domains
        self.words = f"two OpenFlow domains on Open vSwitch, {mbit:g} Mbit/s between them"
        self.cameras = (4096, 1.5 * mbit * 1e6 / 8 / 4096)
        self._bits = round(mbit * 1e6)

    @asynccontextmanager
    async def open(self, program: Program) -> AsyncIterator[Doors]:
        """See `World`."""
        domains = self._domains
        async with AsyncExitStack() as stack:
            at: dict[tuple[str, str], Address] = {}
            for city, host in domains.brokers():
                at[city, host] = await stack.enter_async_context(
                    door(domains.labs[city].host(host), ("127.0.0.1", MQTT))
                )
            # Siren and archive at one broker: what they get comes by one link, unless it has priority.
            first, second = (domains.meshes[HERE].hosts[:2], domains.meshes[THERE].hosts[:2])
            yield Doors(
                at[HERE, first[0]],
                {HERE: at[HERE, first[1]], THERE: at[THERE, second[1]]},
                at[HERE, first[0]],
                at[THERE, second[1]],
            )
            program.troubles += domains.failed()

    async def by_trees(self, topics: list[str]) -> bool:
        """See `World`. The way is narrow from then on."""
        await asyncio.to_thread(self._domains.exploit, topics)
        self._domains.way.set_rate(self._bits, by_priority=True)
        return True

    def across(self) -> int | None:
        """See `World`."""
        return self._domains.way.across()[0].bytes


class Loopback:
    """Two brokers on this machine, where nothing is narrow: to see the application without root."""

    words = "two brokers on this machine: nothing is narrow here"
    cameras = (16_384, 200.0)

    @asynccontextmanager
    async def open(self, program: Program) -> AsyncIterator[Doors]:
        """See `World`."""
        ports = free_ports(4, random.Random())
        mqtt, overlay = [("127.0.0.1", port) for port in ports[:2]], [f"127.0.0.1:{port}" for port in ports[2:]]
        async with AsyncExitStack() as stack:
            for number, city in enumerate((HERE, THERE)):
                clients = f"127.0.0.1:{ports[number]}"
                process = saps_broker(city, city, clients, overlay[number], overlay[:number], SETTINGS)
                await stack.enter_async_context(process)
            yield Doors(mqtt[0], {HERE: mqtt[0], THERE: mqtt[1]}, mqtt[0], mqtt[1])

    async def by_trees(self, topics: list[str]) -> bool:
        """See `World`."""
        return False

    def across(self) -> int | None:
        """See `World`."""
        return None


@contextmanager
def lab(mbit: float, name: str | None = None) -> Iterator[Lab]:
    """Two domains, up inside the block. Raises `LabError`."""
    with TwoDomains((HERE, THERE), settings={**CALM, **SETTINGS}, name=name) as domains:
        yield Lab(domains, mbit)
