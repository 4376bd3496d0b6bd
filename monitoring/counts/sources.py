"""Where counts come from: what a source of the intake is, and which one a URI names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from monitoring.decisions.store import Store


class Found(NamedTuple):
    """A file of counts, or a message with one."""

    name: str
    """As a file."""
    where: str
    """For people: path, or topic and offset."""
    key: Any
    """The source's own."""


class Source(Protocol):
    """Files of counts that are new. What is not confirmed by `taken` comes again, to the next process at least."""

    def __str__(self) -> str: ...

    def look(self) -> list[Found]:
        """What is new, in the order in which it is to be taken. Raises OSError if the source cannot be read."""

    def content(self, found: Found) -> bytes:
        """What is in it. Raises `FileNotFoundError` if it is no more, or another OSError."""

    def local(self, found: Found) -> Path | None:
        """Its path, if it is a file of this machine."""

    def taken(self, found: Sequence[Found]) -> None:
        """The rows of these are kept, or the files put into quarantine."""

    def drained(self) -> bool:
        """Nothing was there at the last look that is still to be found: time for `--once` to end."""

    def close(self) -> None:
        """Let go of connections."""


class Access(NamedTuple):
    """What a stream asks for."""

    options: Path | None = None
    """File with librdkafka's settings, a line ``name=value`` each."""
    user: str = ""
    password: str = ""
    certificate: Path | None = None
    """Own certificate with its key, for ``mqtts``."""
    authority: Path | None = None
    """Whose certificates are trusted, for ``mqtts``; None: those that the system trusts."""


def source_of(place: str | Path, store: Store, access: Access = Access()) -> Source:  # noqa: B008
    """The source that a path or URI names: a directory (`monitoring.files.folder_of`),
    ``kafka://HOST:PORT[,HOST:PORT]/TOPIC``, ``mqtt[s]://[USER@]HOST[:PORT]``. Raises ValueError for what is none,
    OSError if it cannot be had, ImportError without its library."""
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
