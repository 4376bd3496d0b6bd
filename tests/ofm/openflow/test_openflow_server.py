"""The server on real sockets: bad peers are sent away with one clear log line, and harm nobody else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from saps.ofm.flows.tables import Barrier, Change, DropGroup
from saps.ofm.openflow.driver.server import OpenFlowServer, ServerSettings
from saps.ofm.openflow.errors import ChannelError, NoAnswerError, SwitchGoneError
from saps.ofm.openflow.events import Limits
from tests.ofm.openflow import messages as m
from tests.ofm.openflow.recorder import TIMEOUT, RecordedServer, Recorder


class Peer:
    """A connection to the server that behaves as a test wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def message(self) -> tuple[int, bytes, bytes]:
        """The next message: type, transaction id, all of it."""
        async with asyncio.timeout(TIMEOUT):
            head = await self._reader.readexactly(8)
            body = await self._reader.readexactly(int.from_bytes(head[2:4], "big") - 8)
        return head[1], head[4:8], head + body

    async def play(self, dpid: int, ports: int = 0) -> None:
        """A switch with so many ports that does what it is told, until it is up."""
        self.writer.write(m.hello(4))
        while True:
            kind, xid, asked = await self.message()
            number = int.from_bytes(xid, "big")
            if kind == m.FEATURES_REPLY - 1:
                self.writer.write(m.features(dpid, number))
            elif kind == m.MULTIPART_REQUEST:
                what = int.from_bytes(asked[8:10], "big")
                told = {
                    m.DESC: m.maker("a model"),
                    m.PORT_DESC: b"".join(m.port(n, f"p{n}") for n in range(1, ports + 1)),
                }
                self.writer.write(m.part(what, told.get(what, b""), number))
            elif kind == m.BARRIER_REQUEST:
                self.writer.write(m.message(m.BARRIER_REPLY, xid=number))
                return

    async def ask_for_ever(self) -> None:
        """Send echo requests and read nothing. Raises `ConnectionError` when the server has had enough."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                self.writer.write(m.message(m.ECHO_REQUEST, bytes(60_000)))
                await self.writer.drain()

    async def closed(self) -> bytes:
        """What still comes until the server closes the connection."""
        async with asyncio.timeout(TIMEOUT):
            return await self._reader.read()


@asynccontextmanager
async def server(settings: ServerSettings | None = None) -> AsyncIterator[tuple[OpenFlowServer, int, Recorder]]:
    heard = Recorder()
    running = RecordedServer("127.0.0.1", 0, heard, settings)
    port = await running.start()
    try:
        yield running, port, heard
    finally:
        await running.close()


@asynccontextmanager
async def peer(port: int) -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "impossible message length"),
        (m.hello(1, highest=1), "no common version: the switch offers [1], we speak 4"),
        (m.hello(4) + m.message(m.PACKET_IN, b"abc"), "malformed message"),
        (m.hello(4) + m.message(m.ECHO_REQUEST, version=1), "message of another version: version 1"),
        (m.message(m.ECHO_REQUEST), "first message is no hello"),
    ],
)
async def test_bad_input_closes_that_connection_with_one_log_line(
    data: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with server() as (_, port, heard), peer(port) as good, peer(port) as bad:
        await good.play(1)
        switch = await heard.connected(1)
        bad.writer.write(data)
        await bad.closed()
        assert [record.getMessage() for record in caplog.records if reason in record.getMessage()] != []
        assert len(caplog.records) == 1
        good.writer.write(m.message(m.ECHO_REQUEST, b"still here", xid=5))
        while (await good.message())[0] != m.ECHO_REPLY:
            pass
        assert heard.switches == {1: switch}


async def test_a_connection_that_ends_within_a_message_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with server() as (_, port, _), peer(port) as bad:
        bad.writer.write(m.hello(4) + m.message(m.ECHO_REQUEST)[:5])
        bad.writer.write_eof()
        await bad.closed()
    assert [record.getMessage().partition("closed: ")[2] for record in caplog.records] == [
        "ended within a message: 5 bytes of it came"
    ]


async def test_a_peer_that_asks_and_does_not_listen_is_given_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saps.ofm.openflow.driver.session.MOST_UNSENT", 1 << 20)
    async with server() as (_, port, _), peer(port) as deaf:
        deaf.writer.write(m.hello(4))
        with pytest.raises(ConnectionError):
            await deaf.ask_for_ever()
    assert [record.getMessage().partition("closed: ")[2] for record in caplog.records] == [
        "it does not take what it is sent"
    ]


async def test_a_switch_has_a_bounded_number_of_ports(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it tells of them at once, or of one after the other."""
    monkeypatch.setattr("saps.ofm.openflow.driver.server.MOST_PORTS", 3)
    caplog.set_level(logging.INFO)
    async with server() as (_, port, heard), peer(port) as broad, peer(port) as growing:
        with pytest.raises(asyncio.IncompleteReadError):
            await broad.play(1, ports=4)
        await growing.play(2, ports=3)
        await heard.connected(2)
        growing.writer.write(m.message(m.PORT_STATUS, bytes(8) + m.port(4, "p4")))
        await growing.closed()
    assert caplog.text.count("it has more than 3 ports") == 2


async def test_a_peer_that_says_nothing_is_sent_away(caplog: pytest.LogCaptureFixture) -> None:
    async with server(ServerSettings(Limits(handshake=0.1))) as (_, port, _), peer(port) as silent:
        await silent.closed()
    assert "handshake not finished in time" in caplog.text


async def test_more_connections_than_allowed_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with server(ServerSettings(most=1)) as (_, port, heard), peer(port) as first:
        await first.play(1)
        await heard.connected(1)
        async with peer(port) as second:
            await second.closed()
        assert 1 in heard.switches
    assert "there are 1 connections" in caplog.text


async def test_a_switch_that_connects_anew_replaces_its_old_connection() -> None:
    async with server() as (running, port, heard), peer(port) as old, peer(port) as new:
        await old.play(7)
        before = await heard.connected(7)
        await new.play(7)
        after = await heard.connected(7, after=before)
        assert [what for what in heard.heard if what[0] != "packet_in"] == [
            ("switch_up", 7), ("switch_down", 7), ("switch_up", 7),
        ]  # fmt: skip
        assert running.switches == {7: after}
        with pytest.raises(SwitchGoneError):
            await before.barrier()


async def test_whoever_waits_for_a_switch_that_goes_is_told() -> None:
    async with server() as (_, port, heard):
        async with peer(port) as gone:
            await gone.play(7)
            switch = await heard.connected(7)
            changes: list[Change] = [DropGroup(1), Barrier(), DropGroup(2)]
            waiting = [asyncio.ensure_future(ask) for ask in (switch.barrier(), switch.tables(), switch.apply(changes))]
            while (await gone.message())[0] != m.GROUP_MOD:
                pass
        async with asyncio.timeout(TIMEOUT):
            results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [SwitchGoneError] * 3
        assert heard.heard[-1] == ("switch_down", 7)


async def test_a_switch_that_does_not_answer_is_told_from_one_that_is_gone() -> None:
    async with server(ServerSettings(Limits(answer=0.1))) as (_, port, heard), peer(port) as dull:
        await dull.play(7)
        switch = await heard.connected(7)
        with pytest.raises(NoAnswerError):
            await switch.barrier()
        assert heard.switches == {7: switch}


async def test_a_switch_that_does_not_come_back_is_gone() -> None:
    async with server(ServerSettings(grace=0.1)) as (_, port, heard):
        async with peer(port) as gone:
            await gone.play(7)
            await heard.connected(7)
        await heard.until(lambda: ("switch_gone", 7) in heard.heard)
        assert heard.heard == [("switch_up", 7), ("switch_down", 7), ("switch_gone", 7)]


async def test_a_fault_of_the_listener_harms_no_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with server() as (_, port, heard), peer(port) as switched:

        def fail(dpid: int, status: object) -> None:
            raise ZeroDivisionError

        heard.port_status = fail  # type: ignore[method-assign]
        await switched.play(7)
        switch = await heard.connected(7)
        switched.writer.write(m.message(m.PORT_STATUS, bytes(8) + m.port(3, "three")))
        switched.writer.write(m.packet_in(3, bytes(60)))
        await heard.until(lambda: len(heard.packets) == 1)
        assert heard.switches == {7: switch}
    assert "the listener failed in fail" in caplog.text


async def test_closing_the_server_ends_all_that_waits() -> None:
    async with server() as (running, port, heard), peer(port) as switched:
        await switched.play(7)
        switch = await heard.connected(7)
        waiting = asyncio.ensure_future(switch.barrier())
        await running.close()
        with pytest.raises(ChannelError):
            await waiting
        await switched.closed()
