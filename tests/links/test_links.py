"""Links between brokers on loopback sockets, on both event loops: what arrives, what breaks, and who is told."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
import uvloop

from saps import links as module
from saps.agents.user import SubscriberAgent
from saps.links import GUEST, HIGH_WATER, LinkError, Links, dialling, inbound
from saps.links.outbound import Outbound
from saps.links.user import Answer, Nobody
from saps.messages import Message, Subscription
from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import Broadcast, Unsettled
from saps.overlay.frames.delivery import DefineBroker, DefineSlice, Part, Publish
from saps.overlay.frames.framing import MAX_FRAME, VERSION, FrameReader, Hello, encode_into, hello
from saps.overlay.frames.ring import Found, Ping, Pong
from saps.overlay.frames.versions import SINCE, unanswered
from saps.overlay.ring.keys import BrokerRef, broker_key
from saps.routing.batch import Batch
from tests.batches import frame as publication
from tests.network.meshes import data_messages, mesh

ORDER = "alm-la"
TIMEOUT = 20.0

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def on_both_loops(test: Callable[[], Awaitable[None]]) -> Callable[[str], None]:
    """Runs an asynchronous test on asyncio's own loop and on uvloop, at most `TIMEOUT` seconds."""

    @functools.wraps(test)
    def run(loop: str) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(_limited(test))

    del run.__wrapped__  # pytest reads the signature from it
    return pytest.mark.parametrize("loop", LOOPS)(run)


async def _limited(test: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.timeout(TIMEOUT):
        await test()


class End(Nobody):
    """One broker's links, and what they reported."""

    def __init__(self, name: str, incarnation: int = 1, order: str = ORDER) -> None:
        self.frames: list[tuple[BrokerRef, Frame]] = []
        self.found: list[BrokerRef] = []
        self.sessions: list[BrokerRef] = []
        self.down: list[BrokerRef] = []
        self.congestion: list[bool] = []
        self._changed = asyncio.Event()
        self.ref = BrokerRef(name, incarnation, "", "c")
        self.links = Links(
            self.ref,
            order,
            self,
            on_congestion=lambda congested: self._note(self.congestion, congested),
        )

    async def listen(self, port: int = 0) -> int:
        port = await self.links.listen("127.0.0.1", port)
        self.ref = self.links.side.me = BrokerRef(self.ref.name, self.ref.incarnation, f"127.0.0.1:{port}", "c")
        return port

    def send(self, to: BrokerRef, frame: Frame) -> None:
        """Send a frame, now."""
        self.links.send(to, frame)
        self.links.flush()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something reported makes `condition` hold."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def session_started(self, sender: BrokerRef) -> None:
        self._note(self.sessions, sender)

    def link_down(self, peer: BrokerRef) -> None:
        self._note(self.down, peer)

    def met(self, broker: BrokerRef) -> None:
        self._note(self.found, broker)

    def whois(self, name: str, answer: Answer) -> None:
        answer(self.ref if name == self.ref.name else None)

    def answered_for(self, peer: BrokerRef, frame: Frame) -> None:
        self.receive(peer, [frame])

    def receive(self, sender: BrokerRef, frames: list[Frame]) -> None:
        self.frames += [(sender, frame) for frame in frames]
        self._changed.set()

    def _note(self, where: list[Any], what: Any) -> None:
        where.append(what)
        self._changed.set()


@asynccontextmanager
async def ends(*names: str) -> AsyncIterator[list[End]]:
    """Links that listen; closed at the end."""
    listening = [End(name) for name in names]
    try:
        for end in listening:
            await end.listen()
        yield listening
    finally:
        for end in listening:
            await end.links.close()


def data(number: int, payload: bytes = b"x") -> Publish:
    return publication("a/b", number + 1, number, payload, 0, origin=1)


@on_both_loops
async def test_two_brokers_exchange_frames_in_order() -> None:
    async with ends("a", "b") as (a, b):
        for number in range(500):
            a.send(b.ref, data(number))
            b.send(a.ref, data(number))
        for here, there in ((a, b), (b, a)):
            await here.until(lambda here=here: len(here.frames) == 500)  # type: ignore[misc]
            assert here.frames == [(there.ref, data(number)) for number in range(500)]
            assert here.sessions == [there.ref]
        assert a.down == b.down == []


@on_both_loops
async def test_a_large_frame_goes_through() -> None:
    async with ends("a", "b") as (a, b):
        large = data(1, bytes(range(256)) * (1 << 15))
        a.send(b.ref, large)
        await b.until(lambda: bool(b.frames))
        assert b.frames == [(a.ref, large)]


@on_both_loops
async def test_an_answer_in_the_place_of_a_broker_that_does_not_know_the_question_is_not_taken_for_its_own() -> None:
    with patch.dict(SINCE, {Unsettled: VERSION + 1}):
        async with ends("a") as (a,), silent() as (port, accepted):
            answers: list[tuple[BrokerRef, Frame]] = []
            told = asyncio.Event()

            def answered(peer: BrokerRef, frame: Frame) -> None:
                answers.append((peer, frame))
                told.set()

            a.answered_for = answered  # type: ignore[method-assign]
            old = BrokerRef("old", 1, f"127.0.0.1:{port}", "c")
            key = broker_key("x")
            question = Broadcast(a.ref, 7, [(key, key)], Unsettled(["a/b"]), 0)
            a.send(old, question)
            _, writer = await accepted.get()
            body = msgspec.msgpack.encode(Hello("SAPS", VERSION, VERSION, ORDER, old))
            writer.write(len(body).to_bytes(4) + body)
            await told.wait()
            assert answers == [(old, unanswered(question))]
            assert a.frames == []


@on_both_loops
async def test_meeting_tells_who_listens() -> None:
    async with ends("a", "b") as (a, b):
        assert await a.links.meet(*address(b.ref)) == b.ref
        assert b.sessions == []  # a question begins no session


@on_both_loops
async def test_a_guest_is_told_who_has_a_name_and_passes_unnoticed() -> None:
    async with ends("a", "b") as (a, b):
        assert await a.links.whois(*address(b.ref), "b") == b.ref
        assert await a.links.whois(*address(b.ref), "c") is None
        assert b.sessions == []


async def test_a_guest_may_only_ask() -> None:
    async with ends("a") as (a,):
        reader, writer = await asyncio.open_connection(*address(a.ref))
        frames = bytearray(hello(GUEST, ORDER))
        encode_into(frames, data(1))
        writer.write(frames)
        assert await everything(reader) == hello(a.ref, ORDER)
        assert (a.sessions, a.frames) == ([], [])
        writer.close()


@on_both_loops
async def test_meeting_says_why_nobody_can_be_met() -> None:
    async with ends("a", "b") as (a, b):
        gone = address(b.ref)
        await b.links.close()
        with pytest.raises(LinkError, match=r"refused|Connect call failed"):
            await a.links.meet(*gone)
        other = End("c", order="alm")
        port = await other.listen()
        with pytest.raises(LinkError, match="orders its keys by 'alm'"):
            await a.links.meet("127.0.0.1", port)
        await other.links.close()


@on_both_loops
async def test_meeting_someone_silent_ends_after_the_handshake_time() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "HANDSHAKE", 0.05)
        async with ends("a") as (a,), silent() as (port, _):
            with pytest.raises(LinkError, match="no answer"):
                await a.links.meet("127.0.0.1", port)


@on_both_loops
async def test_a_connection_without_hello_is_closed_after_the_handshake_time() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inbound, "HANDSHAKE", 0.05)
        async with ends("a") as (a,):
            reader, writer = await asyncio.open_connection(*address(a.ref))
            assert await everything(reader) == hello(a.ref, ORDER)
            writer.close()


@on_both_loops
async def test_the_death_of_a_peer_is_told_once() -> None:
    async with ends("a", "b") as (a, b):
        a.send(b.ref, Ping())
        await b.until(lambda: bool(b.frames))
        await b.links.close()
        await a.until(lambda: bool(a.down))
        assert a.down == [b.ref]


@on_both_loops
async def test_a_link_that_fails_keeps_no_other_from_being_written() -> None:
    """One that cannot be written, and one with a frame that cannot be encoded: they break, and are made anew."""
    async with ends("a", "b") as (a, b):
        others = [End(name) for name in ("c", "d", "e")]
        everybody = [b, *others]
        for other in others:
            await other.listen()
        for to in everybody:
            a.send(to.ref, Ping())
            await to.until(lambda to=to: bool(to.frames))  # type: ignore[misc]
        whole = Outbound.flush

        def flush(link: Outbound) -> None:
            if link.to == b.ref:
                raise RuntimeError("the handler is closed")
            whole(link)

        for to in everybody:
            a.links.send(to.ref, Pong())
        a.links.send(others[0].ref, Found(1 << 70, None, None, 0))  # type: ignore[arg-type]
        with patch.object(Outbound, "flush", flush):
            a.links.flush()
        for to in others[1:]:
            await to.until(lambda to=to: (a.ref, Pong()) in to.frames)  # type: ignore[misc]
        await a.until(lambda: {b.ref, others[0].ref} <= {*a.down})
        for to in everybody:
            a.send(to.ref, Ping())
            await to.until(lambda to=to: to.frames[-1] == (a.ref, Ping()) and len(to.frames) > 1)  # type: ignore[misc]
        for other in others:
            await other.links.close()


@on_both_loops
async def test_a_peer_that_cannot_be_reached_is_down_and_is_tried_again() -> None:
    async with ends("a", "b") as (a, b):
        port = address(b.ref)[1]
        await b.links.close()
        a.send(b.ref, Ping())
        await a.until(lambda: bool(a.down))
        a.send(b.ref, Pong())  # queued while it waits to dial again
        again = End("b")
        assert await again.listen(port) == port
        await again.until(lambda: bool(again.frames))
        assert again.frames == [(a.ref, Pong())]
        await again.links.close()


@on_both_loops
async def test_a_restarted_peer_is_recognized_and_gets_nothing_meant_for_its_earlier_life() -> None:
    async with ends("a", "b") as (a, b):
        a.send(b.ref, Ping())
        await b.until(lambda: bool(b.frames))
        port = address(b.ref)[1]
        await b.links.close()
        await a.until(lambda: bool(a.down))
        reborn = End("b", incarnation=2)
        await reborn.listen(port)
        a.send(b.ref, Ping())
        await a.until(lambda: bool(a.found))
        assert a.found == [reborn.ref]
        await a.until(lambda: len(a.down) == 2)
        a.send(reborn.ref, Pong())
        await reborn.until(lambda: bool(reborn.frames))
        assert reborn.frames == [(a.ref, Pong())]
        await reborn.links.close()


@on_both_loops
async def test_a_hello_alone_begins_no_session() -> None:
    """It comes also from who looks for another life of this broker: the numbers of the link in use go on."""
    async with ends("a", "b") as (a, b):
        a.send(b.ref, Ping())
        await b.until(lambda: len(b.frames) == 1)
        reader, writer = await asyncio.open_connection(*address(b.ref))
        writer.write(hello(a.ref, ORDER))
        assert await reader.readexactly(len(hello(b.ref, ORDER))) == hello(b.ref, ORDER)
        writer.close()
        a.send(b.ref, Pong())
        await b.until(lambda: len(b.frames) == 2)
        assert b.sessions == [a.ref]
        assert a.down == []


@on_both_loops
async def test_what_an_earlier_connection_still_brings_does_not_count() -> None:
    """Its sender has given it up and begun another; the network had held it back."""
    sender = BrokerRef("sender", 1, "127.0.0.1:1", "c")
    async with ends("b") as (b,):
        connections = [await asyncio.open_connection(*address(b.ref)) for _ in range(2)]
        for number, (_, writer) in enumerate(connections, 1):
            frames = bytearray(hello(sender, ORDER))
            encode_into(frames, data(number))
            writer.write(frames)
            await b.until(lambda number=number: len(b.frames) == number)  # type: ignore[misc]
        assert b.sessions == [sender, sender]
        late = bytearray()
        encode_into(late, data(3))
        connections[0][1].write(late)
        await everything(connections[0][0])  # the other side closes it
        encode_into(late := bytearray(), data(4))
        connections[1][1].write(late)
        await b.until(lambda: len(b.frames) == 3)
        assert [frame for _, frame in b.frames] == [data(1), data(2), data(4)]
        for _, writer in connections:
            writer.close()


@on_both_loops
async def test_a_peer_that_does_not_read_holds_back_the_publishers() -> None:
    async with ends("a") as (a,), silent() as (port, accepted):
        slow = BrokerRef("slow", 1, f"127.0.0.1:{port}", "c")
        a.send(slow, data(0, bytes(8 * HIGH_WATER)))
        reader, writer = await accepted.get()
        writer.write(hello(slow, ORDER))
        await a.until(lambda: bool(a.congestion))
        assert a.congestion == [True]
        frames = FrameReader()
        while not frames.feed(await reader.read(1 << 20)):
            pass
        await a.until(lambda: len(a.congestion) == 2)
        assert a.congestion == [True, False]
        a.send(slow, data(1, bytes(8 * HIGH_WATER)))
        await a.until(lambda: len(a.congestion) == 3)
        writer.close()  # with unread bytes: the link breaks, and holds nobody back any more
        await a.until(lambda: len(a.congestion) == 4 and bool(a.down))
        assert a.congestion[-1] is False
        assert a.down == [slow]


@on_both_loops
async def test_a_broker_without_an_address_is_down() -> None:
    """Others may name it so: what is to be sent there is given up, as with one that cannot be reached."""
    async with ends("a") as (a,):
        for place in ("", "nowhere", "127.0.0.1:x", "127.0.0.1:99999", ".a:1", f"{'x' * 290}:1"):
            odd = BrokerRef(f"at {place}", 1, place, "c")
            a.send(odd, Ping())
            await a.until(lambda odd=odd: odd in a.down)  # type: ignore[misc]
            a.links.drop(odd)
        assert not a.links._outbound


@on_both_loops
async def test_brokers_that_cannot_be_reached_cost_a_bounded_number_of_links() -> None:
    """Whoever names them: beyond the bound they are down at once. Others can be reached afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dialling, "UNMADE", 20)
        async with ends("a", "b") as (a, b):
            for number in range(100):
                a.send(BrokerRef(f"nobody{number}", 1, "127.0.0.1:1", "c"), Ping())
            assert len(a.links._outbound) == 20
            await a.until(lambda: len(set(a.down)) == 100)
            for nobody in list(a.links._outbound):
                a.links.drop(nobody)
            a.send(b.ref, Ping())
            await b.until(lambda: bool(b.frames))


@on_both_loops
async def test_nothing_is_left_of_links_that_were_being_made_when_they_are_closed() -> None:
    """At any stage: not begun, waiting for the next attempt, given up."""
    alone = asyncio.all_tasks()
    async with ends("a") as (a,):
        nobody = [BrokerRef(f"nobody{number}", 1, "127.0.0.1:1", "c") for number in range(3)]
        a.send(nobody[0], Ping())
        await a.until(lambda: nobody[0] in a.down)
        for each in nobody[1:]:
            a.send(each, Ping())
        a.links.drop(nobody[1])
        await a.links.close()
        assert asyncio.all_tasks() == alone
        a.send(nobody[0], Ping())
        assert asyncio.all_tasks() == alone


@on_both_loops
async def test_a_link_too_far_behind_is_broken() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_QUEUED", 4 * HIGH_WATER)
        async with ends("a") as (a,), silent() as (port, accepted):
            slow = BrokerRef("slow", 1, f"127.0.0.1:{port}", "c")
            a.send(slow, Ping())
            _, writer = await accepted.get()
            writer.write(hello(slow, ORDER))
            number = 0
            while not a.down:
                number += 1
                a.send(slow, data(number, bytes(HIGH_WATER)))
                await asyncio.sleep(0)
            assert a.down == [slow]
            assert number < 1000
            writer.close()


RUBBISH = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "too long a hello": (5000).to_bytes(4),
    "a hello that is none": b"\0\0\0\2\x91\xc0",
    "another key order": hello(BrokerRef("x", 1, "127.0.0.1:1", "c"), "alm"),
    "too long a frame": hello(BrokerRef("x", 1, "127.0.0.1:1", "c"), ORDER) + (MAX_FRAME + 1).to_bytes(4),
    "a frame that is none": hello(BrokerRef("x", 1, "127.0.0.1:1", "c"), ORDER) + b"\0\0\0\3\xff\xff\xff",
    "text that is none": hello(BrokerRef("x", 1, "127.0.0.1:1", "c"), ORDER) + b"\0\0\0\5\x93\x16\xa1\xff\x01",
}


@pytest.mark.parametrize("rubbish", RUBBISH.values(), ids=RUBBISH)
@pytest.mark.parametrize("loop", LOOPS)
def test_rubbish_closes_only_its_own_connection(loop: str, rubbish: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with ends("a", "b") as (a, b):
            a.send(b.ref, Ping())
            await b.until(lambda: bool(b.frames))
            with caplog.at_level(logging.WARNING, "saps.links"):
                reader, writer = await asyncio.open_connection(*address(b.ref))
                writer.write(rubbish)
                await everything(reader)  # the other side closes
                writer.close()
            (record,) = [record for record in caplog.records if record.name == "saps.links"]
            assert record.getMessage().startswith("link from ")
            a.send(b.ref, Pong())
            await b.until(lambda: len(b.frames) == 2)
            assert a.down == []

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(_limited(scene))


STRANGER = BrokerRef("stranger", 1, "127.0.0.1:1", "c")
BAD_NUMBERS: dict[str, list[Frame]] = {
    "data of a broker never defined": [data(1)],
    "data for a slice never defined": [DefineBroker(1, STRANGER), publication("a", 1, 0, b"", 0, origin=1, slice=7)],
    "more publications than numbers": [
        DefineBroker(1, STRANGER),
        Publish(1, 0, 0, 0, False, [Part("a", 0)], [0, 0], [1], [b"", b""]),
    ],
    "a slice of brokers never defined": [DefineSlice(1, [1, 2])],
}


@pytest.mark.network
@pytest.mark.parametrize("frames", BAD_NUMBERS.values(), ids=BAD_NUMBERS)
async def test_frames_that_make_no_sense_close_only_their_connection(
    frames: list[Frame], caplog: pytest.LogCaptureFixture
) -> None:
    """Well-formed, but about numbers this link has not defined: a broker goes on carrying messages."""
    async with asyncio.timeout(TIMEOUT), mesh(2, 2) as brokers:
        got: asyncio.Queue[bytes] = asyncio.Queue()
        ready = asyncio.Event()
        agent = SubscriberAgent(brokers[1].hub, "c", lambda message: got.put_nowait(message.payload))
        agent.subscribe(Subscription("a/b", 1), ready.set)
        await ready.wait()
        buffer = bytearray(hello(STRANGER, ORDER))
        for frame in frames:
            encode_into(buffer, frame)
        reader, writer = await asyncio.open_connection(*address(brokers[1].ref))
        writer.write(buffer)
        await everything(reader)
        writer.close()
        assert [r for r in caplog.records if r.name == "saps.links" and "stranger" in r.getMessage()]
        brokers[0].hub.publish(Batch.of(Message("a/b", b"x", 1)))
        assert await got.get() == b"x"
        assert data_messages(brokers) == 1


def address(ref: BrokerRef) -> tuple[str, int]:
    host, port = ref.address.rsplit(":", 1)
    return host, int(port)


async def everything(reader: asyncio.StreamReader) -> bytes:
    """What comes until the other side closes or breaks the connection."""
    got = bytearray()
    try:
        while chunk := await reader.read(1 << 16):
            got += chunk
    except ConnectionError:
        pass
    return bytes(got)


@asynccontextmanager
async def silent() -> AsyncIterator[tuple[int, asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]]:
    """Someone who accepts connections and says nothing by itself: the port, and the connections."""
    accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    kept = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept.append(writer)
        accepted.put_nowait((reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1 << 16)
    try:
        yield server.sockets[0].getsockname()[1], accepted
    finally:
        server.close()
        for writer in kept:
            writer.close()
