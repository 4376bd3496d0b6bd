"""The command `saps top`: shows the mesh repeatedly, as a live screen on a terminal and as plain tables elsewhere."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, NamedTuple

import msgspec
import typer
from rich.console import Group
from rich.live import Live

from saps.cli.apps import command_app
from saps.cli.look.brokers import broker_table
from saps.cli.look.brokers import headline as of_brokers
from saps.cli.look.http_client import AskError, WebPort
from saps.cli.look.options import Json, asks
from saps.cli.look.tables import console, emit, safe
from saps.cli.look.topics import Sort, chosen, topic_table
from saps.cli.look.topics import headline as of_topics
from saps.frontend.web.mesh.report import Brokers, TopicList

app = command_app("top")

AROUND = 10
"""Lines of a screen besides the rows: titles, heads, and the first line."""


class Glance(NamedTuple):
    """The brokers and topics of the mesh at one time."""

    brokers: Brokers
    topics: TopicList

    def shown(self, width: int, height: int) -> Group:
        """Return tables for a screen of `width` columns and `height` lines, the busiest rows first."""
        rows = sorted(
            self.brokers.brokers, key=lambda b: (-b.published_rate - b.received_rate - b.delivered_rate, b.name)
        )
        rows = rows[: max(3, (height - AROUND) // 2)]
        left = max(3, height - AROUND - len(rows))
        return Group(
            broker_table(rows, of_brokers(self.brokers), width),
            topic_table(self.topics.topics[:left], of_topics(self.topics), width),
        )


@app.command()
@asks
def top(
    port: WebPort,
    interval: Annotated[float, typer.Option("--interval", "-i", min=0.2, help="Seconds between refreshes.")] = 2.0,
    sort: Sort = "rate",
    rounds: Annotated[int, typer.Option("--rounds", "-n", min=0, help="Number of refreshes; 0: until Ctrl-C.")] = 0,
    as_json: Json = False,
) -> None:
    """Watch the mesh: the busiest brokers and topics. Ctrl-C ends it."""
    out = console()

    def look() -> Glance:
        return Glance(port.get("/v1/brokers", Brokers), chosen(port, None, None, sort, 500))

    with _until_interrupted():
        if as_json:
            for glance in _looks(look, interval, rounds):
                emit({"at": glance.brokers.at} | _bare(glance))
        elif not out.is_terminal:
            for glance in _looks(look, interval, rounds):
                out.print(glance.shown(out.width, 10_000))
        else:
            glance = look()  # before the screen is taken, so that an error stays readable
            with Live(console=out, screen=True, auto_refresh=False) as live:
                for number in _numbers(rounds):
                    note = f"every {interval:g} s; Ctrl-C ends"
                    if number:
                        time.sleep(interval)
                        try:
                            glance = look()
                        except AskError as error:
                            note = f"as it was: {error}"
                    live.update(Group(safe(note, "dim"), glance.shown(*out.size)), refresh=True)


def _looks(look: Callable[[], Glance], interval: float, rounds: int) -> Iterator[Glance]:
    for number in _numbers(rounds):
        if number:
            time.sleep(interval)
        yield look()


def _numbers(rounds: int) -> Iterator[int]:
    number = 0
    while not rounds or number < rounds:
        yield number
        number += 1


def _bare(glance: Glance) -> dict[str, object]:
    return {
        "seen_from": glance.brokers.seen_from,
        "complete": glance.brokers.complete and glance.topics.complete,
        "brokers": msgspec.to_builtins(glance.brokers.brokers),
        "topics_total": glance.topics.total,
        "topics": msgspec.to_builtins(glance.topics.topics),
    }


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """Let SIGINT and SIGTERM end the block without an error. The live screen can thus restore the terminal."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
