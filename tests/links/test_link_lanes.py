"""Two lanes between brokers on loopback sockets: what has priority does not wait behind what has not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from saps.links import Links
from saps.links.inbound import Inbound
from saps.links.user import Nobody
from saps.overlay.delivery.express import FIRST, by_express
from saps.overlay.frames.base import Frame
from saps.overlay.frames.delivery import DefineBroker, Publish
from saps.overlay.frames.ring import Leave
from saps.overlay.ring.keys import BrokerRef
from tests.batches import frame as publication

TIMEOUT = 30.0
CS5 = 40
BULK = bytes(1 << 16)


class End(Nobody):
    """One broker's links, and what has come, by the topic or the kind of frame."""

    def __init__(self, name: str, priority: str) -> None:
        self.came: list[str] = []
        self.sessions: list[str] = []
        self.down: list[BrokerRef] = []
        self.news = asyncio.Event()
        self.ref = BrokerRef(name, 1, "", "c")
        self.links = Links(
            self.ref,
            "alm",
            self,
            on_congestion=lambda congested: None,
            express=partial(by_express, urgent=lambda topic: topic == priority),
            dscp=CS5,
        )

    async def listen(self) -> None:
        port = await self.links.listen("127.0.0.1", 0)
        self.ref = self.links.side.me = BrokerRef(self.ref.name, 1, f"127.0.0.1:{port}", "c")

    def send(self, to: BrokerRef, *frames: Frame) -> None:
        for frame in frames:
            self.links.send(to, frame)
        self.links.flush()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not true():
                self.news.clear()
                await self.news.wait()

    def link_down(self, peer: BrokerRef) -> None:
        self.down.append(peer)
        self.news.set()

    def session_started(self, sender: BrokerRef) -> None:
        self.sessions.append("common")

    def express_started(self, sender: BrokerRef) -> None:
        self.sessions.append("express")

    def receive(self, sender: BrokerRef, frames: list[Frame]) -> None:
        self.came += [frame.parts[0].topic if isinstance(frame, Publish) else type(frame).__name__ for frame in frames]
        self.news.set()


@asynccontextmanager
async def ends(priority: str) -> AsyncIterator[tuple[End, End]]:
    """A sender, and a receiver that does not read what comes in bulk until it is told to."""
    sender, receiver = End("sender", priority), End("receiver", priority)
    await sender.listen()
    await receiver.listen()
    try:
        yield sender, receiver
    finally:
        await sender.links.close()
        await receiver.links.close()


def is_express(inbound: Inbound) -> bool:
    assert inbound._reader.peer is not None
    return inbound._reader.peer.express


def data(topic: str, payload: bytes = b"", number: int = 1) -> Publish:
    return publication(topic, 1, 0, payload, 0, origin=number)


async def test_an_alert_passes_bulk_that_fills_the_link() -> None:
    """An alert arrives while the receiver does not read the common connection: it would wait there."""
    async with ends("alert") as (sender, receiver):
        sender.send(receiver.ref, data("bulk"))
        await receiver.until(lambda: "bulk" in receiver.came)
        [common] = receiver.links.receiver.connections
        assert common._transport is not None
        common._transport.pause_reading()  # a stalled connection, as a narrow link makes it for a while
        sender.send(receiver.ref, *(data("bulk", BULK) for _ in range(64)))
        sender.send(receiver.ref, data("alert", number=FIRST + 1))
        await receiver.until(lambda: "alert" in receiver.came)
        assert receiver.came.count("bulk") == 1
        assert receiver.sessions == ["common", "express"]
        common._transport.resume_reading()
        await receiver.until(lambda: receiver.came.count("bulk") == 65)


async def test_the_end_waits_for_what_was_sent_on_the_other_lane() -> None:
    """Here the express lane is the one that is held up."""
    async with ends("alert") as (sender, receiver):
        sender.send(receiver.ref, data("bulk"), data("alert"))
        await receiver.until(lambda: {"bulk", "alert"} <= set(receiver.came))
        [express] = [inbound for inbound in receiver.links.receiver.connections if is_express(inbound)]
        assert express._transport is not None
        express._transport.pause_reading()
        sender.send(receiver.ref, data("alert"), Leave(), data("bulk"))
        await receiver.until(lambda: receiver.came.count("bulk") == 2)
        assert "Leave" not in receiver.came
        express._transport.resume_reading()
        await receiver.until(lambda: "Leave" in receiver.came)
        assert receiver.came.count("alert") == 2
        assert receiver.came.count("Leave") == 1


@pytest.mark.parametrize("broken", ["express", "common"])
async def test_when_one_lane_breaks_the_other_goes_too_and_that_is_told_once(broken: str) -> None:
    async with ends("alert") as (sender, receiver):
        sender.send(receiver.ref, data("bulk"), DefineBroker(FIRST + 1, sender.ref), data("alert"))
        await receiver.until(lambda: {"bulk", "alert"} <= set(receiver.came))
        for inbound in receiver.links.receiver.connections:
            if is_express(inbound) == (broken == "express"):
                assert inbound._transport is not None
                inbound._transport.abort()
        await sender.until(lambda: bool(sender.down))
        assert sender.down == [receiver.ref]
        sender.send(receiver.ref, data("bulk"), data("alert"))
        await receiver.until(lambda: receiver.came.count("alert") == 2 and receiver.came.count("bulk") == 2)
        assert sorted(receiver.sessions) == ["common", "common", "express", "express"]


async def test_packets_of_the_express_lane_carry_the_code_point_both_ways() -> None:
    async with ends("alert") as (sender, receiver):
        sender.send(receiver.ref, data("bulk"), data("alert"))
        await receiver.until(lambda: {"bulk", "alert"} <= set(receiver.came))
        links = [*sender.links._outbound.values(), *sender.links._expresses.values()]
        outgoing = [(link.express, link._transport) for link in links]
        incoming = [(is_express(inbound), inbound._transport) for inbound in receiver.links.receiver.connections]
        for express, transport in outgoing + incoming:
            assert transport is not None
            made = transport.get_extra_info("socket")
            assert made.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == (CS5 << 2 if express else 0)
