"""A lone MQTT broker, for measurements: ``python -m saps.frontend.mqtt --port 1883``."""

from __future__ import annotations

import argparse
import asyncio

from saps import process
from saps.frontend.mqtt.server import MqttServer
from saps.hub import Hub


async def _serve(host: str, port: int, stop: asyncio.Event) -> None:
    server = MqttServer(Hub())
    await server.start(host, port)
    print("ready", *server.address, flush=True)
    await stop.wait()
    await server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=1883)
    arguments = parser.parse_args()
    process.run(lambda stop: _serve(arguments.host, arguments.port, stop))


if __name__ == "__main__":
    main()
