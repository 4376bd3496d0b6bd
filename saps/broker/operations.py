"""What operators do with clients, joined with the running broker (`saps.operations`)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from saps.operations.clients import CLIENTS, ClientsAgent

if TYPE_CHECKING:
    from saps.broker.broker import Broker

TRANSPORTS = {"mqtt": "TCP", "mqtts": "TLS", "": "Web"}


class Operations:
    """Of one broker, once its MQTT server has been started."""

    def __init__(self, broker: Broker) -> None:
        server = broker.server
        broker.agents.host(
            CLIENTS,
            ClientsAgent(
                broker.ref.name,
                server.frontend,
                time.time,
                lambda connection: TRANSPORTS[server.kind_of(connection)],
            ),
        )
