"""Plays a tape into a mesh: each topic at one broker, in order and time; receivers at other brokers listen."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from zlib import crc32

from aiomqtt import Client, Message

from examples.common.clients import body, connected, while_listening
from examples.common.mesh import Address
from examples.common.program import Program
from examples.replay.follow import Follower
from examples.replay.tape import Recorded, Tape
from examples.smart_city.latency import Latencies

UNDER_WAY = 64
"""Publications of a player that wait for their acknowledgement at a time."""


class Player:
    """Plays the topics of one broker."""

    def __init__(self, name: str, messages: Sequence[Recorded]) -> None:
        self.name = name
        self.messages = messages
        self.late = Latencies()
        """How long after its time each message was played."""

    async def work(self, program: Program, at: Address, speed: float, show: Show, ready: asyncio.Event) -> None:
        """Play from the beginning to the end, or until the curtain."""
        async with connected(self.name, at) as client:
            ready.set()
            await program.beginning()
            await while_listening(client, lambda message: None, self._play(program, client, speed, show))

    async def _play(self, program: Program, client: Client, speed: float, show: Show) -> None:
        room, sending = asyncio.Semaphore(UNDER_WAY), set[asyncio.Task[None]]()
        for message in self.messages:
            due = message.at / speed - program.elapsed
            if (due > 0 and await program.ended_after(due)) or program.curtain.is_set():
                break
            await room.acquire()
            self.late.add(max(0.0, program.elapsed - message.at / speed))
            show.playing(message)
            # A task's first step hands the message to the client: tasks begin in their order.
            task = asyncio.create_task(client.publish(message.topic, message.payload, message.qos, message.retain))
            sending.add(task)
            task.add_done_callback(sending.discard)
            task.add_done_callback(lambda _: room.release())
        await asyncio.gather(*sending)


class Receiver:
    """Listens to some topics, and follows."""

    def __init__(self, name: str, filters: Sequence[str], topics: Sequence[str], show: Show) -> None:
        """`topics`: those of the tape that match the filters."""
        self.name, self.filters, self.topics = name, list(filters), list(topics)
        self.follower = Follower(show.played)
        self.latencies = Latencies()
        self._show = show

    async def work(self, at: Address, ready: asyncio.Event) -> None:
        """Until cancelled."""
        async with connected(self.name, at) as client:
            await client.subscribe([(each, 2) for each in self.filters])
            ready.set()
            async for message in client.messages:
                self._hear(message)

    def _hear(self, message: Message) -> None:
        place = self.follower.arrived(message.topic.value, body(message))
        if place is not None:
            self.latencies.add(time.monotonic() - self._show.times[message.topic.value][place])


class Show:
    """What has been played so far, for all to see."""

    def __init__(self) -> None:
        self.played: dict[str, list[bytes]] = defaultdict(list)
        """Payloads by topic, in their order."""
        self.times: dict[str, list[float]] = defaultdict(list)
        """When, on the monotonic clock."""
        self.count = 0

    def playing(self, message: Recorded) -> None:
        """A message is handed to its client now."""
        self.played[message.topic].append(message.payload)
        self.times[message.topic].append(time.monotonic())
        self.count += 1


def players(tape: Tape, brokers: Sequence[str], seed: int) -> dict[str, Player]:
    """A player for each broker. A topic has one player, so that its order is kept; `seed` says which."""
    parts: dict[str, list[Recorded]] = {name: [] for name in brokers}
    for message in tape.messages:
        parts[brokers[crc32(message.topic.encode(), seed) % len(brokers)]].append(message)
    run = f"{random.SystemRandom().getrandbits(32):08x}"
    return {name: Player(f"player-{name}-{run}", part) for name, part in parts.items()}


def receivers(parts: Mapping[str, Player], filters: Sequence[str], show: Show) -> dict[str, list[Receiver]]:
    """At each broker one that wants by name what is played at the next one; at the last one another wants all."""
    names, found = list(parts), dict[str, list[Receiver]]()
    for n, name in enumerate(names):
        player = parts[names[(n + 1) % len(names)]]
        topics = sorted({message.topic for message in player.messages})
        found[name] = [Receiver(f"receiver-of-{player.name}", topics, topics, show)] if topics else []
    everything = sorted({message.topic for player in parts.values() for message in player.messages})
    found[names[-1]].append(Receiver(f"receiver-of-all-{player.name}", filters, everything, show))
    return found
