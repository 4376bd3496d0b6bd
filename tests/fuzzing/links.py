"""Connections between brokers (target ``links``): greetings, versions, lanes, ends, guests; of both sides.

A broker that listens is called by several others at once; one that calls, and one that only asks, are answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from saps.links import Links
from saps.links.inbound import Inbound
from saps.links.outbound import Outbound
from saps.links.questions import GUEST, Admit, LinkError, Meeting, NameInquiry, Question, StartInquiry
from saps.links.user import Answer, Nobody
from saps.overlay.delivery.express import by_express
from saps.overlay.frames.base import Frame
from saps.overlay.frames.delivery import Part, Publish
from saps.overlay.frames.framing import encode_into, hello
from saps.overlay.frames.ring import Leave, LeaveAck, Ping, StartProbe, Whois
from saps.overlay.ring.keys import BrokerRef
from tests.fuzzing.frames import FOE, FRIENDS, ORDER, STRANGERS, encoded, frame_of
from tests.fuzzing.pipes import Pipe, play, settle
from tests.fuzzing.supply import Supply
from tests.fuzzing.target import Target

ME = BrokerRef("me", 5, "127.0.0.1:1", "c0")
CALLERS = [FOE, *FRIENDS, *STRANGERS, GUEST, ME]
QUESTIONS: list[Callable[[asyncio.Future[Any], Admit], Question[Any]]] = [
    lambda asked, admit: Meeting(ORDER, asked, admit),
    lambda asked, admit: NameInquiry(ORDER, "b0", asked, admit),
    lambda asked, admit: StartInquiry(ORDER, StartProbe(ME, 0, 0.0), asked, admit),
]
CONNECTIONS = 6
"""At once at most."""


class Told(Nobody):
    """Keeps the frames, and knows itself."""

    def __init__(self, frames: list[tuple[BrokerRef, Frame]]) -> None:
        self._frames = frames

    def receive(self, sender: BrokerRef, frames: list[Frame]) -> None:
        self._frames.extend((sender, frame) for frame in frames)

    def whois(self, name: str, answer: Answer) -> None:
        answer(ME)


class Called(Links):
    """A broker's links, and what they have told."""

    def __init__(self) -> None:
        self.frames: list[tuple[BrokerRef, Frame]] = []
        super().__init__(
            ME,
            ORDER,
            Told(self.frames),
            on_congestion=lambda congested: None,
            express=partial(by_express, urgent=lambda topic: topic.startswith("a")),
        )


def undialled(links: Called, express: bool) -> Outbound:
    """A connection that is not dialled."""
    link = Outbound(links, FOE, express=express)
    link._dialler.stop()
    return link


def greeting(supply: Supply) -> bytes:
    """The first words: sound ones, or nearly."""
    kind, caller = supply.byte(), supply.one(CALLERS)
    whole = hello(caller, "alm" if kind % 16 == 15 else ORDER, express=bool(kind & 1), highest=supply.byte() % 4)
    if kind % 16 == 14:
        place = supply.byte() % len(whole)
        return whole[:place] + bytes((supply.byte(),)) + whole[place + 1 :]
    return supply.chunk() if kind % 16 == 13 else whole


def said(supply: Supply) -> bytes:
    """A piece of what follows."""
    match supply.byte() % 6:
        case 0:
            return supply.chunk()
        case 1:
            return encoded(supply.one([Whois(supply.text(["b0", ""])), StartProbe(supply.one(CALLERS), 0, 0.0)])) or b""
        case 2:
            return encoded(supply.one([Leave(), LeaveAck(), Ping()])) or b""
        case 3:
            body = supply.chunk()
            return len(body).to_bytes(4) + body
        case _:
            return encoded(frame_of(supply)) or b""


async def _answering(supply: Supply) -> None:
    links = Called()
    pipes: list[Pipe] = []
    while supply:
        action = supply.byte()
        if action % 4 == 0 or not pipes:
            if len(pipes) < CONNECTIONS:
                pipes.append(Pipe(Inbound(links.side, links.receiver)))
                pipes[-1].feed(greeting(supply))
        elif action % 4 == 1 and action > 128:
            pipes.pop(supply.byte() % len(pipes)).close()
        else:
            pipes[supply.byte() % len(pipes)].feed(said(supply))
        await settle(1)
    honest = Pipe(Inbound(links.side, links.receiver))
    honest.feed(hello(FRIENDS[1], ORDER) + (encoded(Ping()) or b""))
    assert links.frames[-1:] == [(FRIENDS[1], Ping())]
    for pipe in (*pipes, honest):
        pipe.close()
    await settle(2)
    assert not links.receiver.connections
    assert not links.receiver._endings._lanes


async def _calling(supply: Supply) -> None:
    links = Called()
    express = bool(supply.byte() & 1)
    lanes = links._expresses if express else links._outbound
    link = lanes[FOE] = undialled(links, express)
    link.send(Publish(1, 0, 0, 0, False, [Part("a", 0)], [0, 0], [1, 2], [b"x", b"y"]))
    pipe = Pipe(link)
    pipe.feed(greeting(supply))
    while supply:
        pipe.feed(said(supply))
        link.send(Ping())
        link.flush()
        await settle(1)
    pipe.close()
    await settle(2)
    assert not lanes


async def _asking(supply: Supply) -> None:
    asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    kind = supply.byte()
    admit = Called().side.admit
    pipe = Pipe(QUESTIONS[kind % 3](asked, admit))
    pipe.feed(greeting(supply))
    while supply:
        pipe.feed(said(supply))
    pipe.close()
    await settle(2)
    assert asked.done()
    assert asked.exception() is None or isinstance(asked.exception(), LinkError)


def fuzz_links(data: bytes) -> None:
    """Nothing escapes, the next caller is heard, and of closed connections nothing is left."""
    supply = Supply(data)
    play(supply.one((_answering, _answering, _calling, _asking))(supply))


def seeds() -> list[bytes]:
    """Each of the three, with some of what can be said."""
    whois = bytearray()
    encode_into(whois, Whois("b0"))
    found = [bytes((which, 0, 0, 2, 1, caller)) for which in range(4) for caller in range(len(CALLERS))]
    return [
        *found,
        *(head + bytes((2, 0, kind % 6, len(whois))) + bytes(whois) for kind, head in enumerate(found)),
        *(head + bytes((2, 0, 4, kind)) + bytes(range(1, 60)) for kind, head in enumerate(found)),
    ]


TARGETS = [Target("links", "whoever connects, or is connected to", fuzz_links, seeds)]
