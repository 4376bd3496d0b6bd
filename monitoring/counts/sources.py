"""The interface of the intake's sources, and the choice of a source by its URI."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from monitoring.decisions.store import Store


class Found(NamedTuple):
    """A file of counts, or a message that holds one."""

    name: str
    """File name for the inbox and the quarantine."""
    where: str
    """Place for log lines: a path, or topic and offset."""
    key: Any
    """The source's own reference to the file or message."""


class Source(Protocol):
    """A source of new files of counts. Files not confirmed by `taken` come again, at the latest to the next process."""

    def __str__(self) -> str: ...

    def look(self) -> list[Found]:
        """Return the new files in the order to take them. Raises OSError if the source cannot be read."""

    def content(self, found: Found) -> bytes:
        """Return the content of a file. Raises `FileNotFoundError` if it was deleted, or another OSError."""

    def local(self, found: Found) -> Path | None:
        """Return the file's path if it is on this machine, else None."""

    def taken(self, found: Sequence[Found]) -> None:
        """Confirm these files: their rows are in the inbox, or the files in quarantine."""

    def drained(self) -> bool:
        """Return whether the source has nothing more to give, so that `--once` may end."""

    def close(self) -> None:
        """Close the source's connections."""


class Access(NamedTuple):
    """Credentials and options for sources that are streams."""

    options: Path | None = None
    """File with librdkafka's settings, ``name=value`` on each line."""
    user: str = ""
    password: str = ""
    certificate: Path | None = None
    """File with the client's certificate and key, for ``mqtts``."""
    authority: Path | None = None
    """File with the trusted authorities, for ``mqtts``; None: those of the system."""


def source_of(place: str | Path, store: Store, access: Access = Access()) -> Source:  # noqa: B008
    """Return the source that a path or URI names.

    Accepts a directory (`monitoring.files.folder_of`), ``kafka://HOST:PORT[,HOST:PORT]/TOPIC`` and
    ``mqtt[s]://[USER@]HOST[:PORT]``. `store` keeps the ledger of a directory and names the session of MQTT. Raises
    ValueError for a malformed URI, OSError if the source cannot be opened, and ImportError without its library."""
    parts = urlsplit(str(place))
    if parts.scheme == "kafka":
        from monitoring.counts.kafka_io import Kafka

        topic = parts.path.strip("/")
        if not parts.netloc or not topic or "/" in topic:
            raise ValueError(f"{place} is not kafka://HOST:PORT/TOPIC")
        return Kafka(parts.netloc, topic, access)
    if parts.scheme in ("mqtt", "mqtts"):
        from monitoring.counts.mqtt_io import Mqtt

        if not parts.hostname or parts.password:
            raise ValueError(f"{parts.scheme}://{parts.hostname or ''} is not {parts.scheme}://[USER@]HOST[:PORT]")
        sealed = parts.scheme == "mqtts"
        access = access._replace(user=unquote(parts.username or "") or access.user)
        return Mqtt(parts.hostname, parts.port or (8883 if sealed else 1883), access, sealed, str(store.folder))
    from monitoring.counts.directory import Directory

    return Directory(place, store)
