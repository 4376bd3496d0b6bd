"""A lone MQTT broker, for measurements: ``python -m saps.frontend.mqtt --port 1883``."""

from __future__ import annotations

import argparse
import asyncio
import signal

from saps.frontend.mqtt.server import MqttServer
from saps.hub import Hub

try:
    from uvloop import new_event_loop
except ImportError:  # no uvloop on this platform
    from asyncio import new_event_loop  # type: ignore[assignment]


async def _serve(host: str, port: int) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = MqttServer(Hub())
    await server.start(host, port)
    print("ready", *server.address, flush=True)
    await stopped.wait()
    await server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=1883)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(arguments.host, arguments.port))


if __name__ == "__main__":
    main()
