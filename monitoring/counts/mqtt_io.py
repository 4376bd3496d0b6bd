"""Counts straight from the mesh: a shared subscription to `$SYS/saps/counts` at any of its brokers.

A message is acknowledged when its rows are in the job's inbox; the session outlives the job for a day, so what comes
meanwhile waits at the broker. Jobs that run at the same time would each get a part of the counts: run one.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from monitoring.counts.sources import Access, Found
from saps.local.reserved import COUNTS

FILTER = f"$share/saps-monitor/{COUNTS}"
EXPIRY = 86_400
"""Seconds for which the broker keeps messages while the job is away."""
UNTAKEN = 1000
"""Messages that are not acknowledged, at most: some 100 KiB each at the most."""
QUIET = 2.0
"""Seconds without a message after which `--once` ends."""


class Mqtt:
    """A `monitoring.counts.sources.Source`."""

    def __init__(self, host: str, port: int, access: Access, sealed: bool, state: str) -> None:
        """`state`: where the job keeps its state, which names the session. Raises OSError for a certificate that cannot
        be read."""
        self._name = f"mqtt{'s' * sealed}://{host}:{port}"
        self._come: deque[Found] = deque()
        self._fault: str | None = "not connected yet"
        self._connection = 0
        """Counts connections: a message is acknowledged on that which brought it."""
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
        """The messages that have come. Raises OSError while there is no connection."""
        found = [self._come.popleft() for _ in range(len(self._come))]
        if self._fault is not None and not found:
            raise OSError(self._fault)
        return found

    def content(self, found: Found) -> bytes:
        """The message."""
        _, message = found.key
        payload: bytes = message.payload
        return payload

    def local(self, found: Found) -> Path | None:
        """It is no file."""
        return None

    def taken(self, found: Sequence[Found]) -> None:
        """Acknowledge them; those of a connection that is no more come again."""
        for file in found:
            connection, message = file.key
            if connection == self._connection:
                self._client.ack(message.mid, message.qos)

    def drained(self) -> bool:
        """Nothing has come for a while."""
        return self._fault is None and not self._come and time.monotonic() - self._last > QUIET

    def close(self) -> None:
        """Disconnect; the session stays."""
        self._client.disconnect()
        self._client.loop_stop()

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
        self._come.clear()  # they come again
        self._failed(str(reason))

    def _got(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        self._last = time.monotonic()
        digest = hashlib.sha256(message.payload).hexdigest()[:16]
        self._come.append(Found(f"mqtt-{digest}.parquet", f"{self._name} {message.topic}", (self._connection, message)))

    def _failed(self, reason: str) -> None:
        self._fault = reason
