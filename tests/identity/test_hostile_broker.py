"""A broker of the mesh that is hostile: what it cannot do, and what it can. docs/security.md says the same in words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from saps.agents.user import SubscriberAgent
from saps.broker.broker import Broker
from saps.config import Address
from saps.messages import Message, Subscription
from saps.overlay.frames.base import Frame, ProtocolError
from saps.overlay.frames.calls import Announce, Announced, Collect, Locate
from saps.overlay.frames.delivery import DefineBroker, Publish
from saps.overlay.frames.ring import Check, Find, Found, Insert, Inserted
from saps.overlay.node import OverlayNode
from saps.overlay.ring.keys import BrokerRef, Key, KeyOrder, Ref, broker_key, filter_key, publishers
from saps.overlay.validation.senders import check_sender
from saps.routing.batch import Batch
from tests.batches import frame as publication
from tests.identity.authorities import Town
from tests.identity.sealed import Clock, identity
from tests.links.test_links import TIMEOUT, End
from tests.network.meshes import settings
from tests.overlay.delivery.test_guarantees import churn, crash, partition, reset

pytestmark = pytest.mark.slow

ORDER = KeyOrder.ALM_LA
MALLORY = BrokerRef("mallory", 1, "127.0.0.1:9", "c1")
ALICE = BrokerRef("alice", 1, "127.0.0.1:8", "c0")
FAR = (1 << 50) - 1
"""An incarnation of the far future."""


def at(broker: BrokerRef, key: Key) -> Ref:
    return Ref(key, broker, 1)


OWN = at(MALLORY, filter_key("a/b", MALLORY, ORDER))
HERS = at(ALICE, filter_key("a/b", ALICE, ORDER))
LIES: dict[str, Frame] = {
    "a key of another broker at one's own address": Insert(1, None, at(MALLORY, HERS.key)),
    "one's own key in the place of another cluster": Insert(
        1, None, at(MALLORY, OWN.key._replace(place=HERS.key.place))
    ),
    "one's own key in no place": Insert(1, None, at(MALLORY, OWN.key._replace(place=b""))),
    "the name of another broker as one's own": Insert(1, None, at(MALLORY, broker_key("alice"))),
    "an answer in another's name": Inserted(OWN, HERS, None, 1, 0.0),
    "a find in another's name": Found(1, HERS, None, 1),
    "a key of another that is said to be alive": Check(OWN.key, HERS),
    "a search in another's name": Find(0, None, OWN.key, ALICE, 1),
    "a call in another's name": Locate(
        1, None, ALICE, 1, *publishers("a/b"), Announce([Announced("a/b", 9)], ALICE, False)
    ),
}
TRUE: list[Frame] = [
    Insert(0, None, OWN),
    Insert(1, None, OWN),
    Insert(3, None, HERS),
    Insert(0, None, at(MALLORY, broker_key("mallory"))),
    Inserted(HERS, OWN, HERS, 1, 0.0),
    Found(1, OWN, HERS, 1),
    Check(HERS.key, OWN),
    Find(0, None, HERS.key, MALLORY, 1),
    Find(1, None, HERS.key, ALICE, 1),
    Locate(1, None, MALLORY, 1, *publishers("a/b"), Collect("mallory", 1, 0)),
    Locate(2, None, ALICE, 1, *publishers("a/b"), Collect("alice", 1, 0)),
]


# --- by itself ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_frame_that_says_what_its_sender_cannot_say_is_refused(lie: Frame) -> None:
    check_sender(MALLORY, TRUE, ORDER)
    with pytest.raises(ProtocolError, match="from mallory: "):
        check_sender(MALLORY, [*TRUE, lie], ORDER)


@pytest.mark.parametrize(
    "scene", [crash, partition, *(pytest.param(scene, marks=pytest.mark.soak) for scene in (churn, reset))]
)
def test_the_honest_are_never_accused(scene: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever happens on the simulator: each frame of each broker there is looked at as on a link."""
    heard = 0
    receive = OverlayNode.receive

    def judged(node: OverlayNode, sender: BrokerRef, frames: list[Frame]) -> None:
        nonlocal heard
        heard += len(frames)
        check_sender(sender, frames, node.port.order)
        receive(node, sender, frames)

    monkeypatch.setattr(OverlayNode, "receive", judged)
    for seed in range(2):
        scene(seed)
    assert heard > 500


# --- in a mesh ----------------------------------------------------------------------------------------------------


class Mallory(End):
    """A broker with a good certificate of its own that says what it likes."""

    def __init__(self, town: Town) -> None:
        super().__init__("mallory")
        self.links.side.identity = identity(town, "mallory", clock=Clock())


@asynccontextmanager
async def under_attack(directory: Path) -> AsyncIterator[tuple[list[Broker], Mallory]]:
    """Three brokers b0, b1, b2 of cluster c, and mallory, of the same mesh."""
    town = Town(directory / "ca")
    brokers: list[Broker] = []
    mallory = Mallory(town)
    try:
        for number in range(3):
            join = [Address.parse(brokers[0].ref.address)] if brokers else []
            links = town.links(f"b{number}")
            brokers.append(Broker(msgspec.structs.replace(settings(f"b{number}", "c", join), links=links)))
            await brokers[-1].start()
        await mallory.listen()
        yield brokers, mallory
    finally:
        await mallory.links.close()
        for broker in brokers:
            await broker.stop()


class Ear:
    """Subscribes at a broker and keeps what it gets."""

    def __init__(self, broker: Broker) -> None:
        self.got: list[bytes] = []
        self._changed = asyncio.Event()
        self._agent = SubscriberAgent(broker.hub, "ear", self._take)

    async def subscribe(self, topic_filter: str) -> None:
        ready = asyncio.Event()
        self._agent.subscribe(Subscription(topic_filter, 1), ready.set)
        await ready.wait()

    async def hears(self, payload: bytes) -> None:
        while payload not in self.got:
            self._changed.clear()
            await self._changed.wait()

    def _take(self, message: Message) -> None:
        self.got.append(message.payload)
        self._changed.set()


async def publish(broker: Broker, payload: bytes) -> None:
    """With QoS 1, to a/b; returns when all have it."""
    done = asyncio.Event()
    broker.hub.publish(Batch.of(Message("a/b", payload, 1)), None, lambda reached: done.set())
    await done.wait()


async def holder(broker: Broker, name: str) -> BrokerRef | None:
    """Whom a broker finds under a name."""
    found: asyncio.Future[BrokerRef | None] = asyncio.get_running_loop().create_future()

    def tell(ref: BrokerRef | None) -> None:
        if not found.done():
            found.set_result(ref)

    broker.mesh.act(lambda: broker.mesh.node.whois(name, tell))
    done, _ = await asyncio.wait({found}, timeout=0.2)
    return found.result() if done else None


async def test_nobody_takes_anothers_place_by_a_later_life_of_it(tmp_path: Path) -> None:
    """Mallory has all brokers told that b1 has started anew, at mallory's address. What is meant for b1 never comes
    there, and b1 has its place again."""
    async with asyncio.timeout(3 * TIMEOUT), under_attack(tmp_path) as (brokers, mallory):
        b0, b1, b2 = brokers
        ear = Ear(b1)
        await ear.subscribe("a/#")
        await publish(b0, b"before")
        false = BrokerRef("b1", FAR, mallory.ref.address, "c")
        keys = [broker_key("b1"), filter_key("a/#", false, ORDER)]
        for victim in (b0, b2):
            for key in keys:
                mallory.send(victim.ref, Insert(1, None, Ref(key, false, FAR)))
        sent = [b"before"]
        while not all(victim.mesh.node.port.lost(false) for victim in (b0, b2)):
            for publisher in (b0, b2):
                sent.append(b"%s %d" % (publisher.ref.name.encode(), len(sent)))
                await publish(publisher, sent[-1])
            await asyncio.sleep(0.01)
        for publisher in (b0, b2):
            sent.append(b"%s at last" % publisher.ref.name.encode())
            await publish(publisher, sent[-1])
        for payload in sent:
            await ear.hears(payload)
        assert len(ear.got) == len(sent)
        told = [frame for _, frame in mallory.frames if isinstance(frame, Publish)]
        assert told == []
        while await holder(b2, "b1") != b1.ref:
            pass


async def test_a_lie_ends_its_own_link_and_no_other(tmp_path: Path) -> None:
    async with asyncio.timeout(3 * TIMEOUT), under_attack(tmp_path) as (brokers, mallory):
        b0, b1, b2 = brokers
        ear = Ear(b1)
        await ear.subscribe("a/#")
        mallory.send(b0.ref, Find(0, None, broker_key("b1"), b2.ref, 1))
        await mallory.until(lambda: b0.ref in mallory.down)
        await publish(b0, b"x")
        await ear.hears(b"x")
        assert b0.mesh.node.port.detector.suspects == []


async def test_it_can_publish_in_the_name_of_another(tmp_path: Path) -> None:
    """A limit, not a promise: who passes a publication on says whose it is."""
    async with asyncio.timeout(3 * TIMEOUT), under_attack(tmp_path) as (brokers, mallory):
        b0, b1, _ = brokers
        ear = Ear(b1)
        await ear.subscribe("a/#")
        await publish(b0, b"true")
        mallory.send(b1.ref, DefineBroker(1, b0.ref))
        mallory.send(b1.ref, publication("a/b", 1_000_000, 0, b"false", 1, origin=1))
        await ear.hears(b"false")
