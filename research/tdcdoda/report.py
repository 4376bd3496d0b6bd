"""Writes the output of ``saps reproduce tdcdoda``: Markdown, plots, and the terminal's table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib as mpl
from rich.console import Console
from rich.table import Table as Grid

from research.overlay_designs.registry import ALGORITHMS
from research.published import COLUMNS, TABLES
from research.tdcdoda.study import TEXT_NOTE, Record

PARAMETER = {table.number: table.parameter for table in TABLES}
MAXIMUM = {table.number: table.maximum for table in TABLES}


def title(shown: str) -> str:
    """Return the title of a table."""
    number = shown.removesuffix(TEXT_NOTE)
    return f"Table {shown}: {'maximum' if MAXIMUM[number] else 'average'} degree by number of {PARAMETER[number]}"


def difference(record: Record) -> str:
    """Return our value's difference from the paper's in per cent; empty without a value of the paper."""
    return "" if record.paper is None else f"{100 * (record.mean / record.paper - 1):+.1f} %"


def markdown(cells: Sequence[Record], repetitions: int, seed: int) -> str:
    """Return the page docs/reproduction/tdcdoda.md."""
    parts = [
        "# TD-CD-ODA (2017): Tables I to VI",
        f"Computed by `saps reproduce tdcdoda --seed {seed} --seeds {repetitions}`: {repetitions} random instances "
        "of each setting, the same for all\nalgorithms. "
        "A cell reads paper (our mean). `tdcdoda.json` also has standard deviations, topic diameters, CD-ODA\nand "
        "CD-ODA-I, and Tables V and VI with 250 nodes and 100 topics. "
        "Our own designs are in bold; their topic diameters are\n2, 3 and 4.\n"
        "[Decision 030](../decisions/030-td-cd-oda-readings-and-own-overlay-designs.md) explains the readings.",
        "![Average degree](tdcdoda-average.svg)",
        "![Maximum degree](tdcdoda-maximum.svg)",
        "## Distance from the paper",
        _summary(cells),
    ]
    for shown in dict.fromkeys(cell.table for cell in cells if cell.table in PARAMETER):
        parts += [f"## {title(shown)}", _table([cell for cell in cells if cell.table == shown and _on_page(cell)])]
    parts += ["`tdcdoda-readings.json` has the same cells by other readings of the text."]
    return "\n\n".join(parts) + "\n"


def _summary(cells: Iterable[Record]) -> str:
    """Return the mean and the greatest difference for each algorithm of the paper, averages and maxima apart."""
    lines = ["| | mean difference | greatest | in |", "|---|---:|---:|---|"]
    for maximum in (False, True):
        for name in COLUMNS:
            found = [
                (cell.mean / cell.paper - 1, cell)
                for cell in cells
                if cell.algorithm == name and cell.paper and MAXIMUM[cell.table] == maximum
            ]
            if found:
                worst, cell = max(found, key=lambda pair: abs(pair[0]))
                mean = sum(d for d, _ in found) / len(found)
                what = "maximum" if maximum else "average"
                lines.append(
                    f"| {name}, {what} | {100 * mean:+.1f} % | {100 * worst:+.1f} % | {cell.table}, {cell.x} |"
                )
    return "\n".join(lines)


def _table(cells: Sequence[Record]) -> str:
    names = list(dict.fromkeys(cell.algorithm for cell in cells))
    heads = [f"**{name}**" if ALGORITHMS[name].ours else name for name in names]
    lines = [f"| {PARAMETER[cells[0].table]} | " + " | ".join(heads) + " |"]
    lines.append("|" + "---:|" * (len(names) + 1))
    xs = dict.fromkeys(cell.x for cell in cells)
    lines += [f"| {x} | " + " | ".join(_cell(cell) for cell in cells if cell.x == x) + " |" for x in xs]
    return "\n".join(lines)


def _on_page(cell: Record) -> bool:
    """Return whether the page has a cell: those that the paper prints, and those of our own designs."""
    return cell.paper is not None or (cell.algorithm in ALGORITHMS and ALGORITHMS[cell.algorithm].ours)


def _cell(cell: Record) -> str:
    return f"{cell.mean:.2f}" if cell.paper is None else f"{cell.paper:g} ({cell.mean:.2f})"


def show(cells: Sequence[Record], console: Console) -> None:
    """Print all cells on the terminal."""
    for shown in dict.fromkeys(cell.table for cell in cells):
        grid = Grid("algorithm", "x", "paper", "mean", "sd", "difference", "diameter", title=title(shown))
        for cell in cells:
            if cell.table == shown:
                paper = "" if cell.paper is None else f"{cell.paper:g}"
                figures = f"{cell.mean:.2f}", f"{cell.sd:.2f}", difference(cell), str(cell.diameter)
                grid.add_row(cell.algorithm, str(cell.x), paper, *figures)
        console.print(grid)


def plot(cells: Sequence[Record], directory: Path) -> None:
    """Write tdcdoda-average.svg and tdcdoda-maximum.svg: our means as lines, the paper's cells as crosses."""
    from matplotlib import pyplot  # takes half a second

    pyplot.switch_backend("svg")
    mpl.rcParams["svg.hashsalt"] = "tdcdoda"  # the same figures give the same file
    for maximum in (False, True):
        numbers = [table.number for table in TABLES if table.maximum == maximum]
        figure, axes = pyplot.subplots(1, len(numbers), figsize=(13, 4.6), layout="constrained")
        for panel, number in zip(axes, numbers, strict=True):
            for colour, name in enumerate(ALGORITHMS):
                found = [cell for cell in cells if cell.table == number and cell.algorithm == name]
                xs, style = [cell.x for cell in found], "o-" if ALGORITHMS[name].ours else ".--"
                means, sds = [cell.mean for cell in found], [cell.sd for cell in found]
                panel.errorbar(xs, means, sds, fmt=style, color=f"C{colour}", label=name, capsize=2, linewidth=1)
                panel.plot(xs, [cell.paper or float("nan") for cell in found], "x", color=f"C{colour}", markersize=8)
            panel.set(title=f"Table {number}", xlabel=PARAMETER[number], xticks=xs)
            if maximum:
                panel.set(yscale="log")
                panel.yaxis.set_major_formatter("{x:g}")
                panel.yaxis.set_minor_formatter("{x:g}")
            else:
                panel.set_ylim(bottom=0)
            panel.grid(alpha=0.3, which="both")
        axes[0].set_ylabel(f"{'maximum' if maximum else 'average'} degree (crosses: the paper)")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
        name = "tdcdoda-maximum.svg" if maximum else "tdcdoda-average.svg"
        figure.savefig(directory / name, metadata={"Date": None})
        pyplot.close(figure)
