"""How many calls of project functions a publication takes: ``python -m benchmarks.calls``.

Two simulated brokers with the frontend of the product: a publisher at one, a subscriber at one or the other. What is
counted is all between the read that brings the publication and the last write, at both brokers, acknowledgements
included; not the simulator, nor what comes now and then (heartbeats, timers). A count does not depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from types import FrameType
from typing import NamedTuple

import saps
from saps.runtime.compiled import use_sources

use_sources()  # a compiled function is not seen

from saps.frontend.mqtt.codec.encode import encode  # noqa: E402
from saps.frontend.mqtt.codec.packets import V5, Ack, Connect, PacketType, Publish, Subscribe, SubscribeEntry  # noqa: E402
from saps.frontend.mqtt.codec.properties import Property, PropertyMap  # noqa: E402
from saps.frontend.mqtt.connection.connection import Connection  # noqa: E402
from saps.frontend.mqtt.connection.held import HeldOutput  # noqa: E402
from saps.frontend.mqtt.frontend import Frontend  # noqa: E402
from saps.frontend.mqtt.limits import Limits  # noqa: E402
from saps.mesh import Local  # noqa: E402
from saps.overlay.frames.base import Frame  # noqa: E402
from saps.overlay.ring.keys import BrokerRef  # noqa: E402
from saps.routing.hub import Hub  # noqa: E402
from saps.simulator import SimBroker, Simulation  # noqa: E402
from saps.storage.commits import Commits  # noqa: E402
from saps.storage.driver.mesh import HeldFrames  # noqa: E402
from saps.storage.driver.writer import NoFile  # noqa: E402
from saps.storage.journal import Journal  # noqa: E402

FOLDER = saps.__path__[0]
SIMULATOR = f"{FOLDER}/simulator/"
REST = 60.0
"""Virtual seconds after which the overlay has nothing left to put in order."""
WAY = 0.02
"""Virtual seconds in which a publication arrives."""
BATCH, TOPICS = 50, 7
"""Publications in the read of a batch, and topics in turn."""


class Row(NamedTuple):
    """What is counted."""

    name: str
    qos: int
    publications: int
    """In the read."""
    property: bool
    """Each has a content type."""
    remote: bool
    """The subscriber is at the other broker."""
    stored: bool = False
    """The subscriber's session outlives its connection: the other broker keeps a copy."""


ROWS = [
    Row(
        f"{'single' if count == 1 else 'batch'}{', a property' * given}{', remote' * remote}", qos, count, given, remote
    )
    for remote in (False, True)
    for count in (1, BATCH)
    for given in (False, True)
    for qos in (0, 1)
] + [Row(f"single, stored session{', remote' * remote}", 1, 1, False, remote, True) for remote in (False, True)]


class End:
    """One client's connection, as the server has it."""

    def __init__(self, scene: Scene, broker: SimBroker, name: str, expiry: int = 0) -> None:
        self.broker = broker
        self.frontend = scene.frontends[broker]
        self.connection = Connection(self.frontend, self, name)
        properties: PropertyMap = {Property.SESSION_EXPIRY: expiry} if expiry else {}
        self.receive(encode(Connect(name, version=V5, properties=properties), V5))

    @property
    def delivered(self) -> int:
        """Publications its session has delivered."""
        session = self.connection.session
        assert session is not None
        return session.delivered

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def taken(self) -> int:
        return 0

    def flush(self) -> None:
        """Write what waits."""
        if self.connection.output.out:
            self.connection.output.take()

    def receive(self, data: bytes) -> None:
        """One read."""

        def read() -> None:
            self.connection.receive(data)
            self.frontend.turn.has_read()

        self.broker.act(read)


class Scene(Simulation):
    """Brokers with frontends."""

    def __init__(self) -> None:
        super().__init__(1, check=False, session_copies=3)
        self.frontends: dict[SimBroker, Frontend] = {}
        self.first, self.second = self.build(2)

    def local(self, broker: SimBroker) -> Local:
        hub = Hub(clock=lambda: self.now)
        frontend = Frontend(hub, Limits(), lambda: self.now, random.Random(1), lambda when: None)
        frontend.turn.call_soon = lambda end: self.at(self.now, end)
        self.frontends[broker] = frontend
        return hub

    def attach(self, broker: SimBroker) -> None:
        frontend, node = self.frontends[broker], broker.node
        frontend.hub.mesh = node.mesh
        no_file = NoFile(lambda delay, action: self.at(self.now + delay, lambda: broker.act(action)))
        journal = frontend.storage.journal = Journal()
        journal.disk, journal.incarnation = False, (broker.name, 1)
        journal.place = node.rendezvous.publishers.take_place
        node.delivery.on_numbered.append(journal.numbered)
        commits = Commits(journal, no_file)
        commits.copier, node.replicas.source.shown = node.replicas.source, journal.show
        held = HeldOutput(commits)
        commits.held.append(held)
        take = node.take

        def send(frames: list[tuple[BrokerRef, Frame]]) -> None:
            for to, frame in frames:
                self._send(broker, to, frame)

        gate = HeldFrames(commits, send)

        def pending(changed: bool) -> None:
            frontend.turn.held = held if changed else None
            node.take = (lambda: [each for each in take() if not gate.holds(*each)]) if changed else take  # type: ignore[method-assign]

        commits.watch(pending)


def calls(row: Row) -> Counter[str]:
    """Calls by function, of one read: the least of a few, as the overlay may do something for itself meanwhile."""
    scene = Scene()
    publisher = End(scene, scene.first, "publisher")
    subscriber = End(scene, scene.second if row.remote else scene.first, "subscriber", 60 * row.stored)
    subscriber.receive(encode(Subscribe(1, [SubscribeEntry("#", row.qos)]), V5))
    scene.run(REST)
    found: Counter[str] = Counter()
    least: Counter[str] | None = None

    def entered(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        path = code.co_filename
        ours = path.startswith(FOLDER) and not path.startswith(SIMULATOR)
        if event == "call" and ours and not code.co_name.startswith("<"):
            found[f"{path.removeprefix(FOLDER)[1:]}:{code.co_qualname}"] += 1

    for turn in range(5):
        ids = [1 + number + turn * row.publications for number in range(row.publications)]
        sent = b"".join(_publication(row, packet_id, number % TOPICS) for number, packet_id in enumerate(ids))
        acks = b"".join(encode(Ack(PacketType.PUBACK, packet_id), V5) for packet_id in ids) if row.qos else b""
        before = subscriber.delivered
        found.clear()
        sys.setprofile(entered)
        try:
            publisher.receive(sent)
            scene.run(WAY)
            if acks:
                subscriber.receive(acks)
            scene.run(2 * WAY)
        finally:
            sys.setprofile(None)
        assert subscriber.delivered == before + row.publications
        if least is None or found.total() < least.total():
            least = found.copy()
    assert least is not None
    return least


def _publication(row: Row, packet_id: int, topic: int) -> bytes:
    properties: PropertyMap = {Property.CONTENT_TYPE: "text/plain"} if row.property else {}
    identifier = packet_id if row.qos else 0
    return encode(Publish(f"lamp/{topic}", bytes(64), row.qos, packet_id=identifier, properties=properties), V5)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--functions", action="store_true", help="say which functions, too")
    parser.add_argument("--json", action="store_true", help="only the figures, as [name, QoS, calls]")
    chosen = parser.parse_args()
    if chosen.json:
        print(json.dumps([[row.name, row.qos, calls(row).total() / row.publications] for row in ROWS]))
        return
    print(f"calls of project functions for a publication (a batch: {BATCH} in one read, {TOPICS} topics)\n")
    for row in ROWS:
        found = calls(row)
        print(f"{row.name:28} QoS {row.qos}  {found.total() / row.publications:7.1f}")
        if chosen.functions:
            for name, times in found.most_common():
                print(f"    {times / row.publications:7.2f}  {name}")


if __name__ == "__main__":
    main()
