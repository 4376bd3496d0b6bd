"""One process of a broker with several: ``python -m saps.worker``, started by `saps.workers` and by nobody else.

A line of JSON on standard input brings its settings, a line of JSON on standard output tells how the start went. Its
end of standard input is how it learns that the supervisor is gone: then it ends in order, as at SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec

from saps import process
from saps.broker import Broker, serve
from saps.config import BrokerSettings, SettingError
from saps.logs import configure_logging
from saps.workers import Ready, Refused


def main() -> int:
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
    _end_with_supervisor(stop)
    return await serve(settings, stop, _ready)


def _end_with_supervisor(stop: asyncio.Event) -> None:
    loop, supervisor = asyncio.get_running_loop(), sys.stdin.fileno()

    def look() -> None:
        if not os.read(supervisor, 1):
            loop.remove_reader(supervisor)
            stop.set()

    loop.add_reader(supervisor, look)


def _ready(broker: Broker) -> None:
    _report(Ready(overlay=broker.ref.address))


def _report(report: Ready | Refused) -> None:
    print(msgspec.json.encode(report).decode(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
