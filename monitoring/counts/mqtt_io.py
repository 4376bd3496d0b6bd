"""Receives counts from the mesh by a shared subscription to `$SYS/saps/counts` at any broker.

The source acknowledges a message when its rows are in the job's inbox. The session outlives the job for a day, and the
broker queues messages meanwhile. Run only one job: several at a time would each get a part of the counts.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from monitoring.counts.sources import Access, Found
from saps.routing.reserved import COUNTS

FILTER = f"$share/saps-monitor/{COUNTS}"
EXPIRY = 86_400
"""Seconds for which the broker keeps messages while the job is away."""
UNTAKEN = 1000
"""Most unacknowledged messages. A message has about 100 KiB at most."""
QUIET = 2.0
"""Seconds without a message after which the source counts as drained and `--once` ends."""


def disconnect(client: Client) -> None:
    """Disconnect the client, and wait until its thread has ended."""
    client.disconnect()
    with suppress(AttributeError):  # Paho 2.1 joins `_thread`, which the ending thread itself may have set to None
        client.loop_stop()


class Mqtt:
    """A `monitoring.counts.sources.Source` that subscribes at a broker."""

    def __init__(self, host: str, port: int, access: Access, sealed: bool, state: str) -> None:
        """Connect to the broker in the background.

        `sealed` selects TLS. `state` is the path or URI of the job's state; the client identifier, and so the session,
        derives from it. Raises OSError for an unreadable certificate."""
        self._name = f"mqtt{'s' * sealed}://{host}:{port}"
        self._come: deque[Found] = deque()
        self._fault: str | None = "not connected yet"
        self._connection = 0
        """Number of connections so far. A message is acknowledged only on the connection that brought it."""
        self._last = time.monotonic()
        name = f"saps-monitor-{hashlib.sha256(state.encode()).hexdigest()[:12]}"
        self._client = client = Client(CallbackAPIVersion.VERSION2, name, protocol=MQTTv5, manual_ack=True)
        if access.user:
            client.username_pw_set(access.user, access.password)
        if sealed:
            authority, own = access.authority, access.certificate
            client.tls_set(str(authority) if authority else None, str(own) if own else None)
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        client.on_connect_fail = lambda *_: self._failed("no connection")
        client.on_message = self._got
        client.reconnect_delay_set(1, 30)
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = EXPIRY
        properties.ReceiveMaximum = UNTAKEN
        client.connect_async(host, port, 30, clean_start=False, properties=properties)
        client.loop_start()

    def __str__(self) -> str:
        return self._name

    def look(self) -> list[Found]:
        """Return the messages that have come. Raises OSError without messages while there is no connection."""
        found = [self._come.popleft() for _ in range(len(self._come))]
        if self._fault is not None and not found:
            raise OSError(self._fault)
        return found

    def content(self, found: Found) -> bytes:
        """Return the message's payload."""
        _, message = found.key
        payload: bytes = message.payload
        return payload

    def local(self, found: Found) -> Path | None:
        """Return None: a message is no file."""
        return None

    def taken(self, found: Sequence[Found]) -> None:
        """Acknowledge the messages. The broker resends those of an earlier connection."""
        for file in found:
            connection, message = file.key
            if connection == self._connection:
                self._client.ack(message.mid, message.qos)

    def drained(self) -> bool:
        """Return whether the client is connected and nothing has come for `QUIET` seconds."""
        return self._fault is None and not self._come and time.monotonic() - self._last > QUIET

    def close(self) -> None:
        """Disconnect. The session stays at the broker for `EXPIRY` seconds."""
        disconnect(self._client)

    # --- on paho's thread ---------------------------------------------------------------------------------------------

    def _connected(self, client: Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._failed(str(reason))
            return
        self._connection += 1
        self._last, self._fault = time.monotonic(), None
        client.on_subscribe = self._subscribed
        client.subscribe(FILTER, 1)

    def _subscribed(self, _client: Client, _data: Any, _mid: int, reasons: Sequence[Any], _properties: Any) -> None:
        if any(reason.is_failure for reason in reasons):
            self._failed(f"may not subscribe to {FILTER}: {reasons[0]}")

    def _disconnected(self, _client: Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        self._come.clear()  # the broker resends them
        self._failed(str(reason))

    def _got(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        self._last = time.monotonic()
        digest = hashlib.sha256(message.payload).hexdigest()[:16]
        self._come.append(Found(f"mqtt-{digest}.parquet", f"{self._name} {message.topic}", (self._connection, message)))

    def _failed(self, reason: str) -> None:
        self._fault = reason
