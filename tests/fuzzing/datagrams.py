"""A broker by way of its socket for OFM, and of the keys it is told (target ``datagrams``).

The bytes are a list of datagrams: as they are, or sealed by a member that has the key and says anything inside, or
well-formed ones with a byte changed on the way; or frames about keys from that member.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import msgspec

from research.simulated_ofm import OfmNetwork
from saps.agents.switchover import Mode, Modes
from saps.ofm.datapath.datagram import parse, publications
from saps.ofm.keys.epochs import Keyring
from saps.ofm.keys.hierarchy import Hierarchy
from saps.overlay.delivery.ofm_members import Tree
from saps.overlay.frames.base import Frame, ProtocolError
from saps.overlay.frames.delivery import GroupKeys, HighWater, OfmAck, Tell, Told
from saps.overlay.frames.framing import FrameReader, WireError, hello
from saps.overlay.ring.keys import BrokerRef
from saps.simulator import SimBroker, Simulation
from tests.batches import frame as publication
from tests.fuzzing.frames import encoded
from tests.fuzzing.supply import Builder, Supply
from tests.fuzzing.target import Target

TOPIC = "a/b"
OTHERS = ["a/c", "a", "#", ""]
"""Topics that frames about keys speak of."""
TREE = Tree("239.77.0.1:5000", 7)
FRIEND, FOE = BrokerRef("friend", 7, "friend:1", "c"), BrokerRef("foe", 8, "foe:1", "c")
REFUSED = ("malformed", "unknown_key", "replayed", "forged")
RAW, INSIDE, CHANGED, KEYS = range(4)
_SAYS = msgspec.inspect.type_info(Tell | Told | OfmAck | HighWater)


class Alone(Simulation):
    """Of one broker: what it sends to brokers that a datagram has named goes nowhere."""

    def _send(self, source: SimBroker, to: BrokerRef, frame: Frame) -> None:
        assert encoded(frame) is not None, frame


class Besieged:
    """A broker that wants every topic, and shares the key of one with a friend and a foe."""

    def __init__(self) -> None:
        simulation = Alone(1, check=False)
        network = OfmNetwork(simulation, Modes(Mode.EITHER))
        self.broker = simulation.add("b0")
        self.broker.subscribe("#")
        self.counts = network.datapaths["b0"].counts
        self.friend, self.foe = Keyring(FRIEND), Keyring(FOE)
        hierarchy: Hierarchy[BrokerRef] = Hierarchy(b"group001", Random(1).randbytes)
        hierarchy.change([self.broker.ref, FRIEND, FOE])
        root = hierarchy.root
        assert root is not None
        rings = {self.broker.ref: network.keyrings["b0"], FRIEND: self.friend, FOE: self.foe}
        for ref, ring in rings.items():
            leaf = hierarchy.leaf(ref)
            assert ring.take(GroupKeys(TOPIC, b"group001", root.id, [*hierarchy.path(ref)], 6.0, leaf), 0.0)

    def receive(self, raw: bytes) -> dict[str, int]:
        """What the broker has counted for a datagram."""
        before = dict(self.counts)
        self.broker.act(lambda: self.broker.node.receive_datagrams([bytes(raw)]))
        return {name: count - before[name] for name, count in self.counts.items() if count != before[name]}

    def sent_by_friend(self, seq: int) -> bytes:
        """A sealed publication."""
        data = publication(TOPIC, seq, 0, b"payload", 1)
        return _sealed(self.friend, publications(TREE, FRIEND, seq, data))

    def told(self, frame: Frame) -> None:
        """A frame about keys or trees, as it comes over a link."""
        sent, reader = encoded(frame), FrameReader()
        reader.feed(hello(FOE, "cluster"))
        try:
            for heard in reader.feed(sent or b""):
                self.broker.act(lambda heard=heard: self.broker.node.receive(FOE, [heard]))  # type: ignore[misc]
        except (WireError, ProtocolError):
            pass


def fuzz_datagrams(data: bytes) -> None:
    """Raises `AssertionError` if a datagram does what it must not, and whatever the broker raises."""
    target, supply = Besieged(), Supply(data)
    for seq, (kind, chunk) in enumerate(_datagrams(supply), 2):
        if kind == KEYS:
            pools = {BrokerRef: [FRIEND, FOE, target.broker.ref, BrokerRef("x", 1, "x:1", "c")]}
            said = Builder(supply, OTHERS, [b"group001", b"group002", bytes(32)], pools).build(_SAYS)
            if not isinstance(said, Tell) or said.body.topic != TOPIC:  # who says to be OFGate can end that
                target.told(said)
            continue
        inner = parse(chunk)
        assert inner is None or inner.frame().qos <= 2
        if kind == INSIDE:
            target.receive(_sealed(target.foe, chunk))
            continue
        true = target.sent_by_friend(seq)
        raw = chunk if kind == RAW else _changed(true, chunk)
        counted = target.receive(raw)
        if raw != true:  # nobody without the key gets anything done
            assert sum(counted.values()) == 1, counted
            assert set(counted) <= set(REFUSED), counted
    target.broker.simulation.run(1.0)
    assert target.receive(target.sent_by_friend(1 << 20))["received"] == 1


def _sealed(ring: Keyring, plain: bytes) -> bytes:
    raw = ring.seal(TOPIC, plain, 0.0)
    assert raw is not None
    return raw


def _changed(raw: bytes, chunk: bytes) -> bytes:
    if len(chunk) < 2:
        return raw
    turned = bytearray(raw)
    turned[chunk[0] % len(raw)] ^= chunk[1]
    return bytes(turned)


def _datagrams(supply: Supply) -> Iterator[tuple[int, bytes]]:
    """What kind, and its bytes."""
    while supply:
        kind = supply.byte() % 4
        yield kind, b"" if kind == KEYS else supply.chunk()


def seeds() -> list[bytes]:
    """Inputs to begin with."""
    data = [publication(TOPIC, seq, seq - 1, b"payload", 1) for seq in (1, 2, 2**40)]
    chunks = [(INSIDE, publications(TREE, FOE, 1, one)) for one in data]
    chunks += [(RAW, b"\xa2" + bytes(40)), (CHANGED, b"\x09\x01"), (CHANGED, b"")]
    whole = [bytes((kind, len(chunk))) + chunk for kind, chunk in chunks]
    keys = [bytes((KEYS, kind, 1, 3, 1)) + bytes(range(kind, kind + 30)) for kind in range(16)]
    return [*whole, b"".join(whole), *keys]


TARGETS = [Target("datagrams", "anybody on the network, or a member, as OFM datagrams and keys", fuzz_datagrams, seeds)]
