"""QoS 1 throughput with storage, beside Mosquitto: ``python -m benchmarks.durable_throughput``.

One publisher with a window of messages, one subscriber whose session lasts, on loopback, one after the other, in
rounds that alternate. What an acknowledgement is worth differs; the table says it.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.durable_clients import DurableClient, Publisher, Subscriber
from benchmarks.processes import Place, free_port

SAPS = Path(sys.executable).parent / "saps"


class Load(Publisher):
    """QoS 1 alone: every number is odd."""

    def _fill(self) -> None:
        while len(self._unfinished) < self._window:
            self._number = (self._number + 2) | 1
            self._packet_id = self._packet_id % (2 * self._window) + 1
            self._unfinished[self._packet_id] = self._number, False
            self.write(self._publish(self._packet_id, self._number, 0))

    def _publish(self, packet_id: int, number: int, duplicate: int) -> bytes:
        topic = b"durable/load/qos1"
        body = len(topic).to_bytes(2) + topic + packet_id.to_bytes(2) + b"%0200d" % number
        return bytes((0x32 | duplicate, len(body) & 0x7F | 0x80, len(body) >> 7)) + body

    def _acknowledged(self, number: int) -> None:
        self.acknowledged.add(number)


def contenders(folder: Path, port: int) -> dict[str, tuple[str, list[str]]]:
    """By name: what an acknowledged message outlives, and the command."""
    saps = [str(SAPS), "broker", "--name", "b", "--mqtt", f"127.0.0.1:{port}"]
    saps += ["--overlay", f"127.0.0.1:{free_port()}", "--log-level", "error"]
    found = {"SAPS, memory": ("nothing", saps)}
    outlives = {"full": "loss of power", "normal": "kill -9", "off": "kill -9"}
    for sync, worth in outlives.items():
        storage = ["--set", f"storage.file={folder}/saps-{sync}.db", "--set", f"storage.sync={sync}"]
        found[f"SAPS, sync {sync}"] = (worth, [*saps, *storage])
    mosquitto = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    for name, lines in {
        "Mosquitto, memory": ["persistence false"],
        "Mosquitto, persistence": ["persistence true", "autosave_interval 1800"],
        "Mosquitto, autosave each second": ["persistence true", "autosave_interval 1"],
        "Mosquitto, autosave each change": ["persistence true", "autosave_on_changes true", "autosave_interval 1"],
    }.items():
        file = folder / f"{len(found)}.conf"
        data = folder / f"{len(found)}"
        data.mkdir(exist_ok=True)
        always = [f"listener {port} 127.0.0.1", "allow_anonymous true", f"persistence_location {data}/", "user root"]
        file.write_text("\n".join([*always, "max_queued_messages 0", "log_type error", *lines, ""]))
        worth = {
            "Mosquitto, memory": "nothing",
            "Mosquitto, autosave each change": "kill -9, but for the last changes",
        }.get(name, "up to its age")
        if mosquitto is not None:
            found[name] = (worth, [mosquitto, "-c", str(file)])
    return found


async def measure(port: int, seconds: float, window: int) -> float:
    """Messages a second, acknowledged to the publisher and delivered."""
    subscriber, publisher = Subscriber(port, "s"), Load(port, "load", window)
    clients: list[DurableClient] = [subscriber, publisher]
    tasks = [asyncio.create_task(subscriber.run())]
    try:
        await asyncio.wait_for(subscriber.subscribed.wait(), 30)
        tasks.append(asyncio.create_task(publisher.run()))
        await asyncio.sleep(0.5)
        before, begun = len(publisher.acknowledged), time.monotonic()
        await asyncio.sleep(seconds)
        done = len(publisher.acknowledged) - before
        return done / (time.monotonic() - begun)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(client.connections for client in clients)


def one(name: str, folder: Path, seconds: float, window: int) -> float:
    """One broker, from its start to its end."""
    port = free_port()
    with Place(None) as place:
        place.start(contenders(folder, port)[name][1])
        place.wait_until(lambda: _listens(port))
        return asyncio.run(measure(port, seconds, window))


def _listens(port: int) -> bool:
    import socket

    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.durable_throughput", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--window", type=int, default=100)
    parser.add_argument("--folder", type=Path, help="where the files are to be; a temporary folder by default")
    chosen = parser.parse_args(argv)
    rates: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="saps-durable-", dir=chosen.folder) as base:
        known = contenders(Path(base), 1)
        for turn in range(chosen.rounds):
            for name in known:
                folder = Path(base) / f"{turn}"
                folder.mkdir(exist_ok=True)
                rates.setdefault(name, []).append(one(name, folder, chosen.seconds, chosen.window))
    print("| broker | messages/s, median (least - most) | an acknowledged message outlives |")
    print("| --- | --- | --- |")
    for name, (worth, _) in known.items():
        found = rates[name]
        print(f"| {name} | {statistics.median(found):,.0f} ({min(found):,.0f} - {max(found):,.0f}) | {worth} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
