"""One topic over two OpenFlow domains on Open vSwitch: ``python -m benchmarks.domains``. Needs root.

Two labs with switches, a controller and an OFGate each, joined by an IP way between two routers (`lab.domains`);
two brokers in each, one mesh. A client of the first domain publishes; every other broker has a subscriber. Counted are
the messages that cross the way, the datagrams of each domain's tree, and what each subscriber got: how often, in which
order.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import msgspec

from benchmarks import packets
from benchmarks.client import connected, subscribed
from benchmarks.section import update_page
from lab import DIRECTORY, LabError, Traffic
from lab.domains import TwoDomains
from lab.programs import CALM, MQTT
from lab.traffic import alm_packet, data_packets

PAGE = Path("docs/ofm.md")
TOPIC = "alert/fire"
PAYLOAD = 1200
"""Bytes: one packet, larger than anything else that crosses the way."""
TIMEOUT = 120.0
"""Seconds a message may take, and a tree until it is used."""


class Row(msgspec.Struct, frozen=True):
    """What became of a run's publications."""

    trees: str
    """The domains in which the topic uses OFM."""
    published: int
    over_the_way: float
    """Messages that crossed the way, for each publication."""
    datagrams: dict[str, float]
    """Sent along the domain's tree, for each publication."""
    messages: float
    """Sent by ALM from broker to broker, for each publication."""
    lost: int
    doubled: int
    disordered: int


class Subscriber:
    """One broker's subscriber: the numbers it got, in their order."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setblocking(False)
        self._size = len(message(0))
        self._rest = b""
        self.got: list[int] = []

    def read(self) -> None:
        """Take in what has come."""
        with contextlib.suppress(BlockingIOError):
            while data := self._sock.recv(1 << 16):
                self._rest += data
        whole = len(self._rest) // self._size * self._size
        stamp = self._size - PAYLOAD
        for start in range(0, whole, self._size):
            self.got.append(int.from_bytes(self._rest[start + stamp : start + stamp + 8], "big"))
        self._rest = self._rest[whole:]


def message(number: int) -> bytes:
    """The PUBLISH of that number."""
    return packets.publish(TOPIC, number.to_bytes(8, "big").ljust(PAYLOAD, b"."), 0, 0)


class Scene:
    """Clients on both sides. `publish` sends numbered messages; `row` is what they came to."""

    def __init__(self, domains: TwoDomains, stack: contextlib.ExitStack) -> None:
        self.domains = domains
        home, *others = domains.brokers()
        self.subscribers = {
            f"{place}-{host}": Subscriber(stack.enter_context(self._attached(place, host))) for place, host in others
        }
        with domains.labs[home[0]].host(home[1]).inside():
            self._publisher = stack.enter_context(connected(MQTT))
        self._publisher.settimeout(TIMEOUT)
        self._number = 0

    def _attached(self, place: str, host: str) -> socket.socket:
        with self.domains.labs[place].host(host).inside():
            return subscribed(MQTT, TOPIC, 0)

    def publish(self, count: int, rate: float) -> range:
        """So many messages, so many a second. Returns when all subscribers have the last one: their numbers. Raises
        `LabError`."""
        first = self._number
        for number in range(first, first + count):
            self._publisher.sendall(message(number))
            time.sleep(1 / rate)
            for each in self.subscribers.values():
                each.read()
        self._number += count
        deadline = time.monotonic() + TIMEOUT
        while any(not each.got or each.got[-1] < self._number - 1 for each in self.subscribers.values()):
            if time.monotonic() > deadline:
                raise LabError("a message has not arrived")
            self.domains.check()
            time.sleep(0.01)
            for each in self.subscribers.values():
                each.read()
        return range(first, self._number)

    def along_trees(self, wanted: dict[str, bool]) -> None:
        """Publishes until it is as wanted, by domain: along a tree, or not. Raises `LabError`."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            before = self._datagrams()
            self.publish(5, 50)
            after = self._datagrams()
            if all(after[place] - before[place] == (5 if tree else 0) for place, tree in wanted.items()):
                return
            if time.monotonic() > deadline:
                raise LabError(f"the topic does not go as it should: {self.domains.counts()}")

    def _datagrams(self) -> dict[str, int]:
        """Publications that left along each domain's tree."""
        found = dict.fromkeys(self.domains.names, 0)
        for name, counts in self.domains.counts().items():
            found[name.partition("-")[0]] += counts["carried"] + counts["relayed"]
        return found

    def _messages(self) -> int:
        return sum(int(counts["alm_messages"]) for counts in self.domains.counts().values())

    def row(self, trees: Sequence[str], count: int, rate: float) -> Row:
        """Publish, and count what it came to."""
        before, messages, crossed = self._datagrams(), self._messages(), self.domains.way.across()
        numbers = self.publish(count, rate)
        there, back = (
            Traffic(late.packets - early.packets, late.bytes - early.bytes)
            for late, early in zip(self.domains.way.across(), crossed, strict=True)
        )
        after = self._datagrams()
        size = alm_packet(TOPIC, PAYLOAD)
        return Row(
            " and ".join(trees) or "none",
            count,
            round(sum(max(0.0, data_packets(part, size)) for part in (there, back)) / count, 1),
            {place: (after[place] - before[place]) / count for place in after},
            round((self._messages() - messages) / count, 2),
            *judged([each.got for each in self.subscribers.values()], numbers),
        )


def judged(got: Sequence[Sequence[int]], numbers: range) -> tuple[int, int, int]:
    """Of messages with these numbers, each owed once to everyone: how many were lost, doubled, out of order."""
    lost = doubled = disordered = 0
    for each in got:
        own = [number for number in each if number in numbers]
        lost += len(set(numbers) - set(own))
        doubled += len(own) - len(set(own))
        disordered += sum(later < earlier for earlier, later in pairwise(own))
    return lost, doubled, disordered


@contextmanager
def scene(name: str | None = None, directory: Path = DIRECTORY) -> Iterator[Scene]:
    """Both domains with brokers and clients in them."""
    with TwoDomains(name=name, settings=CALM, directory=directory) as domains, contextlib.ExitStack() as stack:
        made = Scene(domains, stack)
        made.publish(1, 100)
        yield made


def measure(made: Scene, count: int, rate: float) -> list[Row]:
    """By ALM, by a tree in one domain, by trees in both."""
    one, other = made.domains.names
    rows = [made.row([], count, rate)]
    for place in (one, other):
        made.domains.meshes[place].exploit([TOPIC])
        chosen = [one] if place == one else [one, other]
        made.along_trees({each: each in chosen for each in made.domains.names})
        rows.append(made.row(chosen, count, rate))
    return rows


def markdown(rows: Sequence[Row], rate: float) -> str:
    """As a table."""
    names = list(rows[0].datagrams)
    lines = [
        f"`python -m benchmarks.domains --messages {rows[0].published}`: two brokers in each domain; one of {names[0]} "
        f"publishes {rate:g} messages a second of {PAYLOAD} bytes, the three others have a subscriber each. For each "
        "publication:",
        "",
        f"| trees in | published | messages over the way | datagrams in {names[0]} | datagrams in {names[1]} "
        "| messages by ALM in all | lost | duplicated | out of order |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        sent = " | ".join(f"{row.datagrams[name]:g}" for name in names)
        lines.append(
            f"| {row.trees} | {row.published:,} | {row.over_the_way:g} | {sent} | {row.messages:g} "
            f"| {row.lost} | {row.doubled} | {row.disordered} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.domains", description=__doc__)
    parser.add_argument("--messages", type=int, default=1000, help="published in each state (default: 1000)")
    parser.add_argument("--rate", type=float, default=200.0, help="messages a second (default: 200)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--markdown", action="store_true", help=f"write them into {PAGE}")
    chosen = parser.parse_args(arguments)
    try:
        with scene() as made:
            rows = measure(made, chosen.messages, chosen.rate)
    except LabError as error:
        print(f"domains: {error}", file=sys.stderr)
        return 2
    text = markdown(rows, chosen.rate)
    print(text)
    if chosen.json is not None:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows)) + b"\n")
    if chosen.markdown:
        update_page(PAGE, "domains", text)
    return 1 if any(row.lost or row.doubled or row.disordered for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
