"""The command `saps decisions`: shows decisions, their reasons, and the selection under other budgets."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table as Shown

from saps.cli.apps import command_app, refuse

if TYPE_CHECKING:
    from monitoring.decisions.table import Decision, Table

app = command_app("decisions")


@app.command()
def decisions(
    state: Annotated[str, typer.Option("--state", metavar="DIR|URI", help="The directory that `saps monitor` keeps.")],
    epoch: Annotated[int | None, typer.Option("--epoch", help="Of this epoch, not of the last one.")] = None,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="TOPIC", help="The history of this topic: each change and its reason."),
    ] = None,
    changes: Annotated[bool, typer.Option("--changes", help="Only what changed.")] = False,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if", metavar="[SWITCH=]ENTRIES:BUCKETS", help="Select again, under another budget; repeat for more."
        ),
    ] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="What each tree has saved beside what was predicted, and all together.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Greatest number of lines shown.")] = 50,
) -> None:
    """Show the decisions of the job, and the reason of each."""
    try:
        from monitoring.decisions.store import Store
        from monitoring.selection.whatif import again

        store = Store(state)
        epochs = store.epochs()
        if not epochs:
            raise OSError(f"{state} has no decisions")
        console = Console()
        if topic is not None:
            console.print(_history(topic, [store.table(number) for number in epochs]))
            return
        if audit:
            console.print(_audit([store.table(number) for number in epochs], limit))
            return
        table = store.table(epoch if epoch is not None else epochs[-1])
        if what_if:
            outcome = again(store, table.epoch, what_if)
            console.print(_shown(outcome.table.decisions, table.epoch, limit))
            console.print(outcome.words)
            return
        lines = [d for d in table.decisions if not changes or d.action in ("build", "drop", "revoke")]
        console.print(_shown(lines, table.epoch, limit))
        console.print(_summary(table))
    except (OSError, ValueError) as error:
        raise refuse(str(error)) from None


def _when(epoch: int) -> str:
    return datetime.datetime.fromtimestamp(epoch / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")


def _shown(lines: list[Decision], epoch: int, limit: int) -> Shown:
    shown = Shown(title=f"Decisions after {_when(epoch)} UTC", title_justify="left")
    for name in ("topic", "mode", "action", "saving B/s", "cost B/s", "entries", "buckets", "why"):
        shown.add_column(name, justify="right" if name in ("saving B/s", "cost B/s", "entries", "buckets") else "left")
    for d in sorted(lines, key=lambda d: (d.mode != "ofm", -d.saving, d.topic))[:limit]:
        shown.add_row(
            d.topic, d.mode, d.action, f"{d.saving:,.0f}", f"{d.cost:,.0f}", str(d.entries), str(d.buckets), d.reason
        )
    return shown


def _history(topic: str, tables: list[Table]) -> Shown:
    shown = Shown(title=f"History of {topic}", title_justify="left")
    for name in ("after (UTC)", "mode", "action", "why"):
        shown.add_column(name)
    before = ""
    for table in tables:
        for d in table.decisions:
            if d.topic == topic and d.action != before:
                before = d.action
                shown.add_row(_when(table.epoch), d.mode, d.action, d.reason)
    return shown


def _audit(tables: list[Table], limit: int) -> Shown:
    """Return a table of the last account of each tree in the history, with the sums of all as its footer."""
    last: dict[tuple[str, int], Decision] = {}
    begun: dict[str, int] = {}
    for table in tables:
        for d in table.decisions:
            if d.mode == "ofm":
                begun[d.topic] = d.since
            if d.mode == "ofm" or (d.action in ("drop", "revoke") and d.topic in begun):
                last[d.topic, begun[d.topic]] = d
    shown = Shown(title="Bytes saved between clusters, and predicted", title_justify="left", show_footer=True)
    lines = sorted(last.items(), key=lambda item: (-item[1].saved, item[0]))
    saved, predicted = sum(d.saved for d in last.values()), sum(d.predicted for d in last.values())
    for name, footer in (
        ("topic", f"{len(last)} trees"),
        ("built (UTC)", ""),
        ("now", ""),
        ("saved B", f"{saved:,.0f}"),
        ("predicted B", f"{predicted:,.0f}"),
        ("kept", _share(saved, predicted)),
    ):
        shown.add_column(name, footer=footer, justify="left" if name in ("topic", "built (UTC)", "now") else "right")
    for (topic, since), d in lines[:limit]:
        shown.add_row(
            topic, _when(since), d.action, f"{d.saved:,.0f}", f"{d.predicted:,.0f}", _share(d.saved, d.predicted)
        )
    return shown


def _share(saved: float, predicted: float) -> str:
    return f"{saved / predicted:.0%}" if predicted > 0 else "-"


def _summary(table: Table) -> str:
    trees = [d for d in table.decisions if d.mode == "ofm"]
    waiting = len(table.decisions) - len(trees)
    saved = sum(d.inter for d in trees)
    return (
        f"{len(trees)} trees, {saved:,.0f} B/s less between clusters expected; {waiting} topics by ALM that are "
        f"listed; the selection is within {table.gap:.2%} of the best there can be"
    )
