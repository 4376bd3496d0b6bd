"""One process of a broker with several.

A line of JSON on standard input brings its settings, each further one an order; a line of JSON on standard output tells
how the start went, each further one hands an order up that is for all workers. The end of standard input is how it
learns that the supervisor is gone: then it ends in order, as at SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

import msgspec

from saps import process
from saps.broker import Broker, serve
from saps.broker_drain import BrokerDrain
from saps.config import BrokerSettings, SettingError
from saps.drain.values import Order
from saps.logs import configure_logging
from saps.workers import Asked, Ready, Refused


def run() -> int:
    """Run one worker. Exit status as of `saps broker`."""
    orders = sys.stdin.buffer.readline()
    if not orders:
        return 0
    settings = msgspec.json.decode(orders, type=BrokerSettings)
    configure_logging(settings.log_level)
    try:
        return process.run(lambda stop: _serve(settings, stop))
    except SettingError as error:
        _report(Refused(setting=error.setting, message=error.message))
        return 2


async def _serve(settings: BrokerSettings, stop: asyncio.Event) -> int:
    serving: list[BrokerDrain] = []

    def obey(order: Order) -> None:
        for drain in serving:
            drain.obey(order)

    def ready(broker: Broker) -> None:
        assert broker.drain is not None
        broker.drain.hand_up = lambda order: _report(Asked(order=order))
        serving.append(broker.drain)
        _report(Ready(overlay=broker.ref.address))

    _attend_supervisor(obey, stop)
    return await serve(settings, stop, ready)


def _attend_supervisor(obey: Callable[[Order], None], stop: asyncio.Event) -> None:
    """Follow its orders, a line each, and end with it."""
    loop, supervisor = asyncio.get_running_loop(), sys.stdin.fileno()
    said = bytearray()

    def look() -> None:
        data = os.read(supervisor, 4096)
        if not data:
            loop.remove_reader(supervisor)
            stop.set()
        said.extend(data)
        while b"\n" in said:
            line, _, rest = bytes(said).partition(b"\n")
            said[:] = rest
            obey(msgspec.json.decode(line, type=Order))

    loop.add_reader(supervisor, look)


def _report(report: Ready | Refused | Asked) -> None:
    print(msgspec.json.encode(report).decode(), flush=True)
