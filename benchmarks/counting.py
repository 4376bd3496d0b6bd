"""What counting costs on the hot path: ``python -m benchmarks.counting``.

Publications go through a broker's MQTT machine and hub to a subscriber, over socket pairs, with one read and one write
for each read as in the server, by turns with and without counting, in slices of some milliseconds. Compared is the
processor time of the broker's side, so that other work on the machine does not matter much. Without the event loop and
the other half of the TCP stack the share is larger than in life.
"""

from __future__ import annotations

import argparse
import gc
import random
import socket
import statistics
import time

from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import Connect, Publish, Subscribe, SubscribeEntry
from saps.frontend.mqtt.connection.connection import Connection
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.limits import Limits
from saps.routing.hub import Hub

V311 = 4
PAYLOAD = bytes(64)
READS = {"one by one": 1, "reads of 20": 20}


class End:
    """One client: a socket pair, and a connection as the server has it."""

    def __init__(self, frontend: Frontend, client_id: str) -> None:
        self._frontend = frontend
        self.client, self.server = socket.socketpair()
        self.connection = Connection(frontend, self, client_id)
        self.turn(encode(Connect(client_id, version=V311), V311))

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def taken(self) -> int:
        return 0

    def flush(self) -> None:
        """Write what waits."""
        if self.connection.output.out:
            self.server.sendall(self.connection.output.take())

    def turn(self, data: bytes) -> None:
        """The client sends, the broker handles it."""
        self.client.sendall(data)
        self.handle()

    def handle(self) -> None:
        """What the server does when a socket is readable."""
        self.connection.receive(self.server.recv(1 << 18))
        self._frontend.turn.flush()


class Scene:
    """A broker with a publisher and a subscriber."""

    def __init__(self, counting: bool, topics: int, each: int) -> None:
        hub = Hub()
        if counting:
            hub.count(10_000)
        frontend = Frontend(hub, Limits(), time.monotonic, random.Random(1))
        self.publisher, self.subscriber = End(frontend, "p"), End(frontend, "s")
        self.subscriber.turn(encode(Subscribe(1, [SubscribeEntry("#", 0)]), V311))
        names = [f"city/{number % 17}/sensor/{number}" for number in range(topics)]
        self.packets = [encode(Publish(name, PAYLOAD, 0), V311) * each for name in names]
        self.slice(len(self.packets))

    def slice(self, reads: int) -> float:
        """Publish so many reads; the processor seconds they took."""
        publisher, subscriber, spent = self.publisher, self.subscriber, 0.0
        for number in range(reads):
            packet = self.packets[number % len(self.packets)]
            publisher.client.sendall(packet)
            begun = time.process_time_ns()
            publisher.handle()
            spent += time.process_time_ns() - begun
            subscriber.client.recv(1 << 18)
        return spent / 1e9


def compare(each: int, topics: int, rounds: int, reads: int) -> tuple[float, float]:
    """Microseconds a message without counting, and the median of what counting adds, as a share."""
    off, on = Scene(False, topics, each), Scene(True, topics, each)
    shares, base = [], []
    gc.disable()
    for number in range(rounds):
        order = (off, on) if number % 2 else (on, off)
        took = {scene: scene.slice(reads) for scene in order}
        base.append(took[off])
        shares.append(took[on] / took[off] - 1)
    gc.enable()
    return statistics.median(base) / reads / each * 1e6, statistics.median(shares)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.counting", description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    chosen = parser.parse_args()
    for name, each in READS.items():
        for topics in (1, 500):
            base, share = compare(each, topics, chosen.rounds, 400 if each == 1 else 60)
            print(
                f"{name:14} {topics:4} topics  {base:6.2f} us a message without, counting adds {share:+.1%}", flush=True
            )


if __name__ == "__main__":
    main()
