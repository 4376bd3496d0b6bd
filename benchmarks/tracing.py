"""What a traced message costs: ``python -m benchmarks.tracing``.

Two brokers in this process, a subscriber at the one, a publisher at the other, QoS 1, one message after the other; the
collector is another process. Processor time of this process, threads that send spans included, for each message and
broker: without tracing, with a small share, with all messages traced. By turns; median, least and greatest.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any

import uvloop

import saps
from benchmarks.city.collector import Sink

BROKERS = 2
TOPIC = "air/ward1/pm25"
WARM_UP = 200
"""Messages before those that are measured."""


def collector(told: Connection) -> None:
    """Tells its port, takes spans until it is terminated, and tells after each batch how many there are."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    one_at_a_time = Lock()

    class Counting(Sink):
        def take(self, body: bytes) -> None:
            batch = ExportTraceServiceRequest.FromString(body)
            with one_at_a_time:
                told.send(sum(len(scope.spans) for each in batch.resource_spans for scope in each.scope_spans))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Counting)
    told.send(server.server_port)
    server.serve_forever()


@contextmanager
def collecting() -> Iterator[tuple[str, Connection]]:
    """A collector: where it is, and where it tells of batches."""
    own, other = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=collector, args=(other,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{own.recv()}", own
    finally:
        process.terminate()
        process.join()


async def cost(messages: int, tracing: dict[str, Any]) -> float:
    """Microseconds of the processor for each message and broker."""
    async with (
        saps.Broker("b1", cluster="ward1", settings=tracing) as b1,
        saps.Broker("b2", cluster="ward2", join=b1.overlay, settings=tracing) as b2,
        b2.subscribe(TOPIC, qos=1) as subscribed,
    ):
        arriving, begin = aiter(subscribed), 0.0
        for number in range(WARM_UP + messages):
            if number == WARM_UP:
                begin = time.process_time()
            await b1.publish(TOPIC, b"21.5", qos=1)
            await anext(arriving)
    return (time.process_time() - begin) / messages / BROKERS * 1e6  # what is left was sent as the brokers ended


def spans(told: Connection) -> int:
    """How many have come since the last call."""
    found = 0
    while told.poll():
        found += told.recv()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=2000, help="in each round (default: 2000)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    parser.add_argument("--share", type=float, default=0.01, help="the small share (default: 0.01)")
    given = parser.parse_args()
    os.environ.setdefault("OTEL_BSP_MAX_QUEUE_SIZE", "1000000")  # none is dropped: all are paid for
    with collecting() as (endpoint, told):
        kinds: dict[str, dict[str, Any]] = {"none": {}}
        for share in (given.share, 1.0):
            kinds[f"{share:g}"] = {"tracing.endpoint": endpoint, "tracing.share": share}
        found: dict[str, list[float]] = {kind: [] for kind in kinds}
        sent = dict.fromkeys(kinds, 0)
        for _ in range(given.rounds):
            for kind, settings in kinds.items():
                found[kind].append(uvloop.run(cost(given.messages, settings)))
                sent[kind] += spans(told)
    print("| traced | processor time for each message and broker | min - max | spans for each message |")
    print("| --- | ---: | ---: | ---: |")
    for kind, times in found.items():
        each = sent[kind] / given.rounds / (given.messages + WARM_UP)
        print(f"| {kind} | {statistics.median(times):.0f} µs | {min(times):.0f} - {max(times):.0f} µs | {each:.2f} |")


if __name__ == "__main__":
    main()
