"""Exports the content of a storage as JSON objects, one for each record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from saps.messages import Message
from saps.overlay.frames.calls import Record
from saps.storage.driver.copying import Examined
from saps.storage.saved import SavedSession


def records(found: Examined) -> Iterator[dict[str, Any]]:
    """Yield all intact records, then those that earlier starts set aside. The caller must encode bytes (payloads,
    correlation data). Times are in seconds since the epoch."""
    saved = found.reader.saved
    for session in saved.sessions:
        yield _session(session)
        whose = {"client": session.client_id}
        for subscription in session.subscriptions:
            yield {"record": "subscription", **whose, **msgspec.structs.asdict(subscription)}
        for copy in session.copies:
            kept, form = saved.messages[copy.message], copy.form
            how = {"qos": form.qos, "retain": form.retain, "identifiers": form.identifiers}
            numbers = {"serial": copy.serial, "packet": copy.packet_id or None, "expires": kept.expires}
            yield {"record": "message", **whose, **_message(kept.message), **how, **numbers}
        for serial, packet_id in session.releases:
            yield {"record": "release", **whose, "packet": packet_id, "serial": serial}
        for packet_id, reached in session.incoming.items():
            yield {"record": "incoming", **whose, "packet": packet_id, "reached": reached}
    for encoded in saved.retained.values():
        record = msgspec.msgpack.decode(encoded, type=Record)
        yield {"record": "retained", **_message(record.message), "expires": record.expires / 1000 or None}
    for owner, rows in saved.held.items():
        yield {"record": "copies", "owner": owner, "records": len(rows)}
    for table, reason, content in found.reader.quarantine:
        yield {"record": "set aside", "table": table, "reason": reason, "content": content}


def _session(session: SavedSession) -> dict[str, Any]:
    will = None if session.will is None else _message(session.will)
    times = {"expiry": session.expiry, "ends": session.ends, "will_delay": session.will_delay}
    whose = {"client": session.client_id, "user": session.user}
    return {"record": "session", **whose, **times, "will_due": session.will_due, "will": will}


def _message(message: Message) -> dict[str, Any]:
    fields = msgspec.structs.asdict(message)
    if message.properties is not None:
        fields["properties"] = msgspec.structs.asdict(message.properties)
    return fields
