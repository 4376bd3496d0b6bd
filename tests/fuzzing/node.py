"""A small mesh with a hostile broker in it (target ``node``): well-formed frames that mean anything.

Three honest brokers, with MQTT clients that have subscriptions, wills and sessions, an OFGate, and retained messages.
The foe sends each of them frames that a decoder lets pass, lets time go by, ends its link and begins anew; then it is
gone. Nobody else may fall over it, then or later, and what an attack leaves behind is bounded.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Callable
from functools import partial

from research.simulated_ofm import OfmNetwork, SimulatedController
from saps.agents.switchover import Mode, Modes
from saps.frontend.mqtt.codec.packets import Will
from saps.frontend.mqtt.limits import Limits
from saps.messages import Message
from saps.overlay.frames.base import Frame, ProtocolError
from saps.overlay.frames.calls import AgentCall, Broadcast
from saps.overlay.frames.framing import FrameReader, WireError, hello
from saps.overlay.ring.keys import BrokerRef, broker_key
from saps.overlay.validation.senders import check_sender
from saps.routing.batch import Batch
from saps.simulator import SimBroker
from tests.fuzzing.frames import FOE, ORDER, encoded, frame_of
from tests.fuzzing.supply import Builder, Supply
from tests.fuzzing.target import Target
from tests.overlay.roams import Nomad, Roams

LIMITS = Limits(maximum_sessions=50, maximum_queued=50, maximum_queued_bytes=1 << 20)
MOST_FRAMES = 60
"""Of one input."""
CALM = "calm/topic"
"""A topic that the foe never speaks of."""
AFTERWARDS = 40.0
"""Virtual seconds after which an attack is forgotten."""
A_FRAME = 400
"""Objects that one frame may leave behind, on average."""


class Besieged(Roams):
    """Honest brokers, and one that is not of the simulation."""

    def __init__(self) -> None:
        super().__init__(1, LIMITS, order=ORDER, check=False)
        self.ofm = OfmNetwork(self, Modes(Mode.EITHER))
        self.unreachable: set[tuple[str, BrokerRef]] = set()
        self.overheard: Callable[[SimBroker, Frame], None] = lambda source, frame: None
        """Told of what is sent to the foe."""
        brokers = self.build(3, 2)
        self.gate = self.ofm.ofgate(brokers[0], SimulatedController(self.ofm))
        self.nomads = [Nomad(self, f"client{i}", will=Will("a/will", b"gone", 1)) for i in range(3)]
        for nomad, broker in zip(self.nomads, brokers, strict=True):
            nomad.arrive(broker)
            nomad.subscribe(["a/#", "a/b", CALM][brokers.index(broker)], qos=1)
        self.tell_hub(brokers[1], Message("a/b", b"kept", 1, True))
        self.run(1.0)
        for broker in brokers:
            self.hear(broker, lambda broker=broker: broker.node.session_started(FOE))  # type: ignore[misc]

    def tell_hub(self, broker: SimBroker, message: Message) -> None:
        broker.act(lambda: self.hubs[broker].publish(Batch.of(message)))

    def hear(self, broker: SimBroker, action: Callable[[], None]) -> None:
        """As the driver hands in what comes over a link."""
        try:
            broker.act(action)
        finally:
            self.benches[broker].flush()

    def _send(self, source: SimBroker, to: BrokerRef, frame: Frame) -> None:
        assert encoded(frame) is not None, f"{source.name} wants to send what nobody can write: {frame}"
        known = self.brokers.get(to.name)
        if known is not None and known.ref == to:
            super()._send(source, to, frame)
        elif to == FOE:
            self.at(self.now, partial(self.overheard, source, frame))
        elif (source.name, to) not in self.unreachable:
            self.unreachable.add((source.name, to))
            self.at(self.now + 0.05, partial(self._nobody_there, source, to))

    def _nobody_there(self, source: SimBroker, to: BrokerRef) -> None:
        self.unreachable.discard((source.name, to))
        source.act(lambda: source.node.link_down(to))

    def attack(self, broker: SimBroker, frame: Frame) -> bool:
        """The frame as it comes out of a link; one that is no good ends it: then False."""
        sent, reader = encoded(frame), FrameReader()
        if sent is None:
            return False
        reader.feed(hello(FOE, ORDER))

        def come() -> None:
            for heard in reader.feed(sent):
                check_sender(FOE, [heard], ORDER)
                broker.node.receive(FOE, [heard])

        try:
            self.hear(broker, come)
        except (WireError, ProtocolError):
            self.hear(broker, lambda: broker.node.session_started(FOE))
            return False
        return True

    def gone(self) -> None:
        """The foe's links break, and nobody answers there any more."""
        for broker in self.alive():
            broker.act(lambda broker=broker: broker.node.link_down(FOE))  # type: ignore[misc]

    def size(self) -> int:
        """Objects that the brokers keep."""
        return objects([self.brokers, self.hubs, self.benches, self.gate])


_CODE = (type, types.ModuleType, types.FunctionType, types.CodeType, types.BuiltinFunctionType, types.FrameType)


def objects(roots: list[object]) -> int:
    """How many containers can be reached, code left out; bounds of lists count by their items."""
    seen: set[int] = set()
    found, count = list(roots), 0
    while found:
        one = found.pop()
        if id(one) in seen or (isinstance(one, _CODE) and not isinstance(one, types.FunctionType)):
            continue
        seen.add(id(one))
        count += len(one) if isinstance(one, list | tuple | dict | set | bytearray) else 1
        if isinstance(one, types.FunctionType):
            found += [cell.cell_contents for cell in one.__closure__ or () if _filled(cell)]
        else:
            found += [each for each in gc.get_referents(one) if gc.is_tracked(each)]
    return count


def _filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def fuzz_node(data: bytes) -> None:
    """No exception, no lasting harm to a topic nobody lied about, nothing that grows without bound."""
    mesh, supply = Besieged(), Supply(data)
    brokers, before, count = mesh.alive(), mesh.size(), 0
    while supply and count < MOST_FRAMES:
        action = supply.byte()
        broker = brokers[action % len(brokers)]
        if action < 200:
            count += 1
            mesh.attack(broker, frame_of(supply))
        elif action < 225:
            count += 1
            mesh.attack(broker, call_of(supply, broker))
        elif action < 245:
            mesh.run((action - 224) / 8)
        elif action < 250:
            mesh.hear(broker, lambda broker=broker: broker.node.session_started(FOE))  # type: ignore[misc]
        else:
            mesh.tell_hub(broker, Message("a/b", b"from %s" % broker.name.encode(), 1))
    mesh.gone()
    mesh.run(AFTERWARDS)
    assert mesh.size() <= 2 * before + A_FRAME * count, (before, mesh.size(), count)
    heard = mesh.nomads[2]
    heard.hear()
    mesh.tell_hub(brokers[0], Message(CALM, b"calm %d" % count, 1))
    heard.until(lambda: b"calm %d" % count in heard.got[1])


def call_of(supply: Supply, broker: SimBroker) -> Frame:
    """A call of one of a broker's agents, with any arguments."""
    from msgspec import inspect

    from tests.fuzzing.frames import _POOLS, BLOBS, TEXTS

    attribute = supply.one(["ofgate", "ofm", f"ofgate@{broker.name}", "client0/sub", "saps"])
    methods = ["joined", "left", "status", "construct", "release", "sends", "left_tree", "hello", "revoke", "report"]
    methods += ["constructed", "admitted", "party", "describe", "_run", "act"]
    method = supply.one(methods)
    builder = Builder(supply, TEXTS, BLOBS, _POOLS)
    args = tuple(builder.build(inspect.AnyType()) for _ in range(supply.byte() % 5))
    key = broker_key(broker.name)
    call = AgentCall(attribute, method, args, supply.number(), FOE)
    return Broadcast(FOE, 1, [(key, key._replace(role=key.role + 1))], call, 1)


def seeds() -> list[bytes]:
    """Each kind of frame, to each broker, with time between."""
    found = []
    for kind in range(52):
        body = bytes((kind,)) + bytes((kind * 7 + i * 13) % 97 for i in range(60))
        found.append(bytes((kind % 3,)) + body + b"\xe8")
    found += [bytes((200 + i, i % 5, i)) + bytes(range(i, i + 20)) + b"\xf0" for i in range(24)]
    return [*found, b"".join(found[::5]), b"".join(found[1::5])]


TARGETS = [Target("node", "a broker of the mesh, as frames", fuzz_node, seeds, 2000, timeout=5.0)]
