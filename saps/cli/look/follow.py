"""The command `saps follow`: shows a client's packets, or the ways of messages and why one is not delivered, live."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.text import Text

from saps.cli.apps import command_app
from saps.cli.look.clients import clock
from saps.cli.look.http_client import AskError, WebPort
from saps.cli.look.options import Json, asks
from saps.cli.look.tables import console, emit, safe, size
from saps.operations.following import LONGEST, Event
from saps.topics import filter_fault

app = command_app("follow")

STYLES = {"lost": "red", "refused": "red", "not delivered": "red", "left out": "yellow"}


@app.command()
@asks
def follow(
    port: WebPort,
    client: Annotated[str | None, typer.Option("--client", metavar="ID", help="A client's packets, both ways.")] = None,
    topic_filter: Annotated[
        str | None, typer.Option("--filter", metavar="FILTER", help="Messages to these topics, at all brokers.")
    ] = None,
    seconds: Annotated[int, typer.Option("--seconds", min=1, max=int(LONGEST), help="How long.")] = 60,
    as_json: Json = False,
) -> None:
    """Follow a client or a topic live, at whatever broker; with both, whether those messages reach that client.

    For operators. Ctrl-C ends it.
    """
    if client is None and topic_filter is None:
        raise AskError("give --client, --filter or both")
    if topic_filter is not None and (fault := filter_fault(topic_filter)) is not None:
        raise AskError(f"{topic_filter!r} is not a topic filter: {fault}")
    out = console()
    try:
        for line in port.lines("/v1/follow", client=client, filter=topic_filter, seconds=seconds):
            if line.startswith(b"data:"):
                event = msgspec.json.decode(line[5:], type=Event)
                if as_json:
                    emit(event)
                else:
                    out.print(shown(event))
    except KeyboardInterrupt:
        return


def shown(event: Event) -> Text:
    """Return an event as a line such as ``18:04:11 b1 in sensor-7 PUBLISH air/x QoS 1 4 B '21.5': number 3``."""
    parts = [clock(event.at)[11:19], event.broker, event.what, event.client, event.packet, event.topic]
    if event.topic:
        parts += [] if event.what == "refused" else [f"QoS {event.qos}", size(event.size)]
    line = " ".join(part for part in parts if part) + (f" {event.text!r}" if event.text else "")
    return safe(line + (f": {event.why}" if event.why else ""), STYLES.get(event.what, ""))
