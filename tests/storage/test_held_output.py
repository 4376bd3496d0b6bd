"""Output that waits for a commit, and what a client is told behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, Connect, Pingreq, Subscribe, SubscribeEntry
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.connection.connection import Connection
from tests.storage.crashes import Life

CONNACK, SUBACK, PINGRESP, DISCONNECT = b"\x20", b"\x90", b"\xd0", b"\xe0"


class End:
    """A client of a broker whose disk writes when it is told to."""

    def __init__(self, path: Path) -> None:
        self.life = Life(path, 0.0)
        self.writes: list[bytes] = []
        self.connection = Connection(self.life.frontend, self, "client")
        self.send(encode(Connect("client", version=V5, properties={Property.SESSION_EXPIRY: 60}), V5))

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

    def flush(self) -> None:
        if self.connection.output.out:
            self.writes.append(self.connection.output.take())


@pytest.fixture
def end(tmp_path: Path) -> End:
    return End(tmp_path / "sessions.db")


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
