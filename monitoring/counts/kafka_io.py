"""Reads counts from a Kafka topic: each message is a file of counts as brokers publish them under `$SYS/saps/counts`.

The source commits offsets after the rows are in the job's inbox. Uncommitted messages come again; a repeated row counts
once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from monitoring.counts.sources import Access, Found

logger = logging.getLogger(__name__)

GROUP = "saps-monitor"
"""The consumer group, unless the options name another."""
AT_ONCE = 500
"""Most messages in one look."""
WAIT = 0.5
"""Most seconds that a look waits for messages."""
DAY = 86_400_000


class Kafka:
    """A `monitoring.counts.sources.Source` that consumes one Kafka topic."""

    def __init__(self, servers: str, topic: str, access: Access) -> None:
        """Subscribe to `topic` at `servers`, a list of ``HOST:PORT`` separated by commas.

        Raises OSError if the options file cannot be read, and ValueError for an option that librdkafka does not
        know."""
        self._name = f"kafka://{servers}/{topic}"
        self._topic = topic
        self._ended: set[int] = set()
        """Numbers of the partitions that were read to their ends."""
        self._fault = ""
        options = {"group.id": GROUP, "auto.offset.reset": "earliest", "max.poll.interval.ms": DAY}
        options |= _options(access.options) if access.options is not None else {}
        options |= {"bootstrap.servers": servers, "enable.auto.commit": False, "enable.partition.eof": True}
        try:
            self._consumer = Consumer({**options, "error_cb": self._failed}, logger=logger)
            self._consumer.subscribe([topic])
        except KafkaException as error:
            raise ValueError(f"{self._name}: {error.args[0].str()}") from None

    def __str__(self) -> str:
        return self._name

    def look(self) -> list[Found]:
        """Return the messages that have come. Raises OSError if no server answers or the topic does not exist."""
        found = []
        for message in self._consumer.consume(AT_ONCE, WAIT):
            error, partition = message.error(), message.partition()
            if error is None:
                self._ended.discard(partition)
                name = f"{self._topic}-{partition}-{message.offset()}.parquet"
                found.append(Found(name, f"{self._name}[{partition}]@{message.offset()}", message))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(partition)
            else:
                self._failed(error)
        fault, self._fault = self._fault, ""
        if fault and not found:
            raise OSError(fault)
        return found

    def content(self, found: Found) -> bytes:
        """Return the message's value."""
        return found.key.value() or b""

    def local(self, found: Found) -> Path | None:
        """Return None: a message is no file."""
        return None

    def taken(self, found: Sequence[Found]) -> None:
        """Commit the offsets after these messages. A failed commit is logged; its messages come again."""
        behind = {file.key.partition(): file.key.offset() + 1 for file in found}
        try:
            offsets = [TopicPartition(self._topic, partition, offset) for partition, offset in behind.items()]
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:  # the messages come again; their rows count once
            logger.warning("%s: offsets are not committed: %s", self._name, error.args[0].str())

    def drained(self) -> bool:
        """Return whether all assigned partitions were read to their ends."""
        assigned = {part.partition for part in self._consumer.assignment()}
        return bool(assigned) and assigned <= self._ended

    def close(self) -> None:
        """Leave the consumer group."""
        self._consumer.close()

    def _failed(self, error: KafkaError) -> None:
        self._fault = error.str()


def _options(file: Path) -> dict[str, str]:
    """Read the options file: ``name=value`` on each line. Raises OSError, and ValueError for another line."""
    found = {}
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            name, equals, value = line.partition("=")
            if not equals:
                raise ValueError(f"{file}, line {number}: not name=value")
            found[name.strip()] = value.strip()
    return found
