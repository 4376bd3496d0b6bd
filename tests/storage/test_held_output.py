"""Output that waits for a commit, and what a client is told behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, Connect, Pingreq, Publish, Subscribe, SubscribeEntry
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.connection.connection import Connection
from saps.mesh import Alone, Done, TopicRoute
from saps.messages import Reached
from saps.routing.batch import Batch
from tests.storage.crashes import Life

CONNACK, SUBACK, PINGRESP, DISCONNECT = b"\x20", b"\x90", b"\xd0", b"\xe0"


class End:
    """A client of a broker whose disk writes when it is told to."""

    def __init__(self, life: Life, name: str = "client", expiry: int = 60) -> None:
        self.life = life
        self.writes: list[bytes] = []
        self.connection = Connection(self.life.frontend, self, name)
        self.send(encode(Connect(name, version=V5, properties={Property.SESSION_EXPIRY: expiry}), V5))

    def send(self, packet: bytes) -> None:
        self.connection.receive(packet)
        self.life.flush()

    def subscribe(self, packet_id: int) -> None:
        """Something that is stored."""
        self.send(encode(Subscribe(packet_id, [SubscribeEntry(f"lamp/{packet_id}", 1)]), V5))

    def told(self) -> list[list[bytes]]:
        """The first bytes of the packets of each write since the last look."""
        writes, self.writes = self.writes, []
        found: list[list[bytes]] = []
        for data in writes:
            found.append([])
            while data:
                found[-1].append(data[:1])
                data = data[2 + data[1] :]
        return found

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def taken(self) -> int:
        return 0

    def flush(self) -> None:
        if self.connection.output.out:
            self.writes.append(self.connection.output.take())


@pytest.fixture
def end(tmp_path: Path) -> End:
    return End(Life(tmp_path / "sessions.db", 0.0))


def test_what_promises_nothing_follows_in_the_same_write(end: End) -> None:
    end.send(encode(Pingreq(), V5))
    assert end.told() == []
    end.life.disk.finish()
    assert end.told() == [[CONNACK, PINGRESP]]


def test_what_needs_another_commit_waits_for_it(end: End) -> None:
    end.subscribe(1)
    end.life.disk.finish()
    assert end.told() == [[CONNACK]]
    end.life.disk.finish()
    assert end.told() == [[SUBACK]]


def test_a_client_that_is_sent_away_is_told_all_before(end: End) -> None:
    end.connection.close(Reason.SERVER_SHUTTING_DOWN)
    end.life.flush()
    end.life.disk.finish()
    assert end.told() == [[CONNACK, DISCONNECT]]


def test_the_same_if_it_needs_another_commit(end: End) -> None:
    end.subscribe(1)
    end.connection.close(Reason.SERVER_SHUTTING_DOWN)
    end.life.flush()
    end.life.disk.finish()
    assert end.told() == []
    end.life.disk.finish()
    assert end.told() == [[CONNACK, SUBACK, DISCONNECT]]


class Elsewhere(Alone):
    """A mesh in which each topic has a subscriber elsewhere, whose broker confirms when the test says so."""

    def __init__(self) -> None:
        self.dones: list[Done] = []

    def route(self, topic: str) -> TopicRoute:
        return TopicRoute(topic)

    def publish(self, batch: Batch, done: Done | None = None) -> None:
        assert done is not None
        self.dones.append(done)


@pytest.mark.parametrize("qos", [1, 2])
def test_what_the_mesh_confirms_after_a_failed_write_is_not_acknowledged(end: End, qos: int) -> None:
    end.subscribe(1)
    for _ in range(5):
        end.life.disk.finish()
    end.connection.lost()
    mesh = end.life.hub.mesh = Elsewhere()
    publisher = End(end.life, "publisher", 0)
    for _ in range(5):
        end.life.disk.finish()
    publisher.told()
    publisher.send(encode(Publish("lamp/1", b"on", qos, packet_id=7), V5))
    end.life.disk.finish(good=False)
    for done in mesh.dones:
        done([Reached(1, 1)])
    end.life.flush()
    assert publisher.told() == [[DISCONNECT]]
