"""A switch in this process, which copies UDP datagrams along trees and is its own controller; brokers that use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from saps.agents.ofgate.program.gateway import Gateway
from saps.broker.broker import Broker
from saps.config import Address, BrokerSettings
from saps.config.ofm import OfmSettings
from saps.config.settings import OverlaySettings
from saps.ofm.northbound.schema import OfmRequest, OfmState, Status

ANY = Address("127.0.0.1", 0)
TIMEOUT = 30.0
"""Seconds a test waits for what must come."""


class Switch(asyncio.DatagramProtocol):
    """One switch with one tree for each address, and a controller (`put`, `delete`, `list` of a `Northbound`). As every
    switch of the product it takes packets only from the brokers of the tree, and returns each to its sender."""

    def __init__(self) -> None:
        self.ofms: dict[str, OfmState] = {}
        self.trees: dict[tuple[str, int], OfmRequest] = {}
        self.ports: dict[str, asyncio.DatagramTransport] = {}
        self.copied = 0
        self.news = asyncio.Event()
        """Something has been copied."""

    async def put(self, request: OfmRequest, wait: float = 0.0) -> OfmState:
        if request.topic not in self.ports:
            port = _Port(self)
            loop = asyncio.get_running_loop()
            self.ports[request.topic], _ = await loop.create_datagram_endpoint(lambda: port, local_addr=ANY)
            port.address = self.ports[request.topic].get_extra_info("sockname")
        address = self.ports[request.topic].get_extra_info("sockname")
        self.trees[address] = request
        state = OfmState(
            topic=request.topic,
            status=Status.CONSTRUCTED,
            address=str(Address(*address)),
            brokers=sorted({*request.brokers, *request.senders}),
        )
        self.ofms[request.topic] = state
        return state

    async def delete(self, topic: str, wait: float = 0.0) -> OfmState:
        self.ofms.pop(topic, None)
        port = self.ports.pop(topic, None)
        if port is not None:
            self.trees.pop(port.get_extra_info("sockname"), None)
            port.close()
        return OfmState(topic=topic, status=Status.NONE)

    async def list(self) -> list[OfmState]:
        return [*self.ofms.values()]

    async def watch(self) -> AsyncIterator[OfmState]:
        for state in await self.list():
            yield state
        await asyncio.Event().wait()

    async def close(self) -> None:
        for port in self.ports.values():
            port.close()


class _Port(asyncio.DatagramProtocol):
    """Where the datagrams to one OFM address arrive."""

    def __init__(self, switch: Switch) -> None:
        self.switch = switch
        self.address: tuple[str, int] = ("", 0)
        self.transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        tree = self.switch.trees.get(self.address)
        if tree is None or self.transport is None:
            return
        brokers = {(broker.ip, broker.port) for broker in tree.brokers}
        if addr[:2] in brokers | {(sender.ip, sender.port) for sender in tree.senders}:
            self.switch.copied += 1
            self.switch.news.set()
            for target in brokers | {addr[:2]}:
                self.transport.sendto(data, target)


def settings(name: str, mode: str, join: Address | None, listen: str = "127.0.0.1:0") -> BrokerSettings:
    ofm = msgspec.convert({"listen": listen, "mac": "02:00:00:00:00:01", "mode": mode}, OfmSettings)
    joins = () if join is None else (join,)
    return BrokerSettings(name=name, mqtt=ANY, join=joins, overlay=OverlaySettings(listen=ANY), ofm=ofm)


class City:
    """Brokers b0 to b3 and an OFGate."""

    def __init__(self, brokers: list[Broker], gateway: Gateway, switch: Switch) -> None:
        self.brokers = brokers
        self.gateway = gateway
        self.switch = switch

    async def status(self, topic: str, wanted: Status) -> None:
        """Wait until OFGate has brought the topic there."""
        async with asyncio.timeout(TIMEOUT):
            while self._status(topic) != wanted.value:  # noqa: ASYNC110 - OFGate has nobody to tell in a test
                await asyncio.sleep(0.01)

    def _status(self, topic: str) -> str:
        described = self.gateway.gate.describe()["topics"]
        return next((each["status"] for each in described if each["topic"] == topic), Status.NONE.value)

    async def copied(self, more: int) -> None:
        """Wait until the switch has copied so many more datagrams."""
        enough = self.switch.copied + more
        async with asyncio.timeout(TIMEOUT):
            while self.switch.copied < enough:
                self.switch.news.clear()
                await self.switch.news.wait()
