"""The commands ``saps reproduce ...``, one for each paper."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn

from research.engine import Engine, Sweep, sweep
from saps.cli.apps import command_group

DOCS = Path("docs/reproduction")
QUICK = Path("build/reproduction")

Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Seed of the random numbers.")]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help=f"Where the results go.  [default: {DOCS}, with --quick {QUICK}]"),
]
Where = Annotated[Engine, typer.Option("--engine", help="What computes: this machine's cores, or Spark.")]
Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Spark's master.  [default: local[*]]", show_default=False)
]

app = command_group("reproduce", "Compute the papers' evaluations anew, paper and ours.")


@contextmanager
def _libraries(console: Console) -> Iterator[None]:
    """Report a missing library and exit with status 2. It wraps the imports of one command, which others do without."""
    try:
        yield
    except ModuleNotFoundError as missing:
        console.print(f"{missing.name} is not installed (pip install 'saps\\[research]')")
        raise typer.Exit(2) from None


def _say_if_slow(console: Console) -> None:
    from saps.overlay.design.compiled import COMPILED

    if not COMPILED:
        console.print("numba is not installed: this takes 10 to 50 times longer (pip install 'saps\\[research]')")


def _write(out: Path | None, quick: bool, page: str, text: str, data: dict[str, object]) -> Path:
    """Write the page and the JSON files, and return their directory. `data` has the files' contents by name."""
    directory = out or (QUICK if quick else DOCS)
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in data.items():
        (directory / name).write_text(json.dumps(content, indent=1) + "\n")
    (directory / page).write_text(text)
    return directory


@contextmanager
def _computing(engine: Engine, master: str | None, console: Console) -> Iterator[tuple[Sweep, Progress]]:
    """Yield the sweep of an engine, and the progress display. Exits with status 2 if Spark is not installed."""
    try:
        with (
            sweep(engine, master) as computes,
            Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=console) as progress,
        ):
            yield computes, progress
    except ModuleNotFoundError as missing:
        if missing.name != "pyspark":
            raise
        console.print("pyspark is not installed (pip install 'saps\\[spark]')")
        raise typer.Exit(2) from None


def _shown(progress: Progress, what: str) -> Callable[[int, int], None]:
    """Add a line to the progress display. Returns a function to call with the number done and the total."""
    task = progress.add_task(what, total=None)
    return lambda done, total: progress.update(task, completed=done, total=total)


@app.command()
def tdcdoda(
    quick: Annotated[
        bool, typer.Option("--quick", help="Two instances, ends of the tables only: some seconds.")
    ] = False,
    seed: Seed = 1,
    out: Out = None,
    engine: Where = Engine.LOCAL,
    master: Master = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=2, metavar="N", help="Instances of each setting.  [default: 20, with --quick 2]"),
    ] = None,
) -> None:
    """Tables I to VI of TD-CD-ODA (2017): overlay designs compared, and our own beside them.

    Writes tdcdoda.json (cells), tdcdoda-readings.json (other readings of the text), tdcdoda.md and plots.
    """
    console = Console(stderr=True)
    with _libraries(console):
        from research.published import Setting
        from research.tdcdoda import report, study
    _say_if_slow(console)
    lines = study.rows(quick=quick)
    repetitions = seeds or (study.QUICK_REPETITIONS if quick else study.REPETITIONS)
    study.measure(study.Instance(Setting(8, 4, 2), 0), seed)  # compiles once, before there are several processes
    with _computing(engine, master, console) as (computes, progress):
        measured = study.run(lines, repetitions, seed, computes, _shown(progress, "instances"))
    cells, others = study.records(lines, measured), study.readings(lines, measured)
    data: dict[str, object] = {
        "tdcdoda.json": [cell._asdict() for cell in cells],
        "tdcdoda-readings.json": [other._asdict() for other in others],
    }
    text = report.markdown(cells, repetitions, seed)
    directory = _write(out, quick, "tdcdoda.md", text, data)
    report.plot(cells, directory)
    report.show(cells, Console())
    console.print(f"written to {directory}")


@app.command()
def saps(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer points, 10 overlays each: some seconds.")] = False,
    seed: Seed = 1,
    out: Out = None,
    engine: Where = Engine.LOCAL,
    master: Master = None,
    overlays: Annotated[
        int | None,
        typer.Option(min=2, metavar="N", help="Overlays of each point.  [default: 100, with --quick 10]"),
    ] = None,
) -> None:
    """Figures 8 to 13 of SAPS (2016): ALM, ALM-LA, OFM and our cluster-aware ALM.

    Writes saps.json (points), saps-readings.json (other readings of the text), saps-growth.json, saps.md and plots.
    """
    console = Console(stderr=True)
    with _libraries(console):
        from research.saps_paper import counted as saps_counted
        from research.saps_paper import plots as saps_plots
        from research.saps_paper import queries as saps_queries
        from research.saps_paper import records as saps_records
        from research.saps_paper import report as saps_report
        from research.saps_paper import splits as saps_splits
        from research.saps_paper import study
        from research.saps_paper import switches as saps_switches
    count = overlays or (saps_records.QUICK_OVERLAYS if quick else saps_records.OVERLAYS)
    with _computing(engine, master, console) as (computes, progress):
        measured, series = study.run(
            study.settings(quick=quick), count, seed, computes, _shown(progress, "overlays"), more=study.SERIES
        )
        counted = None if quick else saps_counted.run(seed, computes, _shown(progress, "queries"))
    saps_splits.growth([2], seed)  # compiles, so that the first time counted is that of the multicast
    results = saps_report.Results(
        count,
        seed,
        study.records(measured),
        series,
        saps_switches.examples(count, seed),
        saps_switches.resources(count, seed),
        saps_queries.queries(counted),
        study.readings(count, seed),
        saps_splits.growth(saps_splits.QUICK_GROWTH if quick else saps_splits.GROWTH, seed),
    )
    data: dict[str, object] = {
        "saps.json": results.cells(),
        "saps-readings.json": [reading._asdict() for reading in results.readings],
        "saps-growth.json": [point._asdict() for point in results.growth],
    }
    directory = _write(out, quick, "saps.md", saps_report.markdown(results), data)
    saps_plots.plot(results, directory)
    saps_report.show(results, Console())
    console.print(f"written to {directory}")


@app.command()
def sdnps(
    quick: Annotated[bool, typer.Option("--quick", help="Two numbers of topics, 3 networks: some seconds.")] = False,
    seed: Seed = 1,
    out: Out = None,
    engine: Where = Engine.LOCAL,
    master: Master = None,
    graphs: Annotated[
        int | None,
        typer.Option(min=2, metavar="N", help="Networks of each number of topics.  [default: 10, with --quick 3]"),
    ] = None,
) -> None:
    """Figures 6 to 8 of SDNPS (2016): time, diameter and residual bandwidth of all planners.

    Writes sdnps.json (points), sdnps-readings.json (other readings of the text), sdnps-quality.json (our planners
    against bounds), sdnps.md and plots.
    """
    console = Console(stderr=True)
    with _libraries(console):
        from research.sdnps import report, small, study
    _say_if_slow(console)
    count = graphs or (study.QUICK_GRAPHS if quick else study.GRAPHS)
    topics = study.QUICK_TOPICS if quick else study.TOPICS
    study.measure(study.Instance(2, 0), seed)  # compiles once, before there are several processes
    with _computing(engine, master, console) as (computes, progress):
        task = progress.add_task("networks", total=None)
        measured = study.run(
            topics, count, seed, computes, lambda done, total: progress.update(task, completed=done, total=total)
        )
    exact = small.measure(seed, small.QUICK_CASES if quick else small.CASES)
    results = report.Results(count, seed, study.records(measured), study.gaps(measured), exact)
    data: dict[str, object] = {
        "sdnps.json": [record._asdict() for record in results.records if record.reading == study.MAIN],
        "sdnps-readings.json": [record._asdict() for record in results.records if record.reading != study.MAIN],
        "sdnps-quality.json": {
            "bounds": [gap._asdict() for gap in results.gaps],
            "small": [point._asdict() for point in exact],
        },
    }
    directory = _write(out, quick, "sdnps.md", report.markdown(results), data)
    report.plot(results, directory)
    report.show(results, Console())
    console.print(f"written to {directory}")


@app.command()
def stateless(
    quick: Annotated[bool, typer.Option("--quick", help="30 topics: some seconds.")] = False,
    seed: Seed = 1,
    out: Out = None,
) -> None:
    """Stateless delivery: entries of switches and copies on links, beside a tree for each topic.

    Writes stateless.json (rows) and stateless.md.
    """
    console = Console(stderr=True)
    with _libraries(console):
        from research.stateless import report, study
    _say_if_slow(console)
    found = list(study.rows(study.QUICK_TOPICS if quick else study.TOPICS, seed))
    data: dict[str, object] = {"stateless.json": [row._asdict() for row in found]}
    directory = _write(out, quick, "stateless.md", report.markdown(found, seed), data)
    report.show(found, Console())
    console.print(f"written to {directory}")


@app.command("sdnps-lab")
def sdnps_lab(
    quick: Annotated[bool, typer.Option("--quick", help="Small bursts, ten of the cells: some seconds.")] = False,
    seed: Seed = 1,
    out: Out = None,
    runs: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="Of each cell.  [default: 10, with --quick 2]")
    ] = None,
    packets: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Of each publisher and run.  [default: 100000, with --quick 2000]"),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=0, metavar="N", help="Packets a second of each publisher; 0: all it can.  [default: 41000]"),
    ] = None,
) -> None:
    """Tables 1 to 9 of SDNPS (2016), on Open vSwitch: delay, loss, and what flow entries do to them. Needs root.

    Takes about ten minutes, on a machine that should be idle. Writes sdnps-lab.json (all runs) and sdnps-lab.md.
    """
    console = Console(stderr=True)
    with _libraries(console):
        from lab import LabError, obstacle
        from research.sdnps import lab as study
        from research.sdnps import lab_report as report
        from research.sdnps.tables import PACKETS
    if why := obstacle():
        console.print(why, soft_wrap=True, markup=False)
        raise typer.Exit(2)
    chosen = study.Settings(
        runs or (study.QUICK_RUNS if quick else study.RUNS),
        packets or (study.QUICK_PACKETS if quick else PACKETS),
        study.BURST_RATE if rate is None else rate,
        seed,
    )
    cells, before = study.chosen(quick=quick), os.getloadavg()[0]
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("tests", total=None)
        try:
            measured = study.measure(
                cells, chosen, lambda done, total: progress.update(task, completed=done, total=total)
            )
        except LabError as error:
            console.print(str(error), soft_wrap=True, markup=False)
            raise typer.Exit(2) from None
    command = f"saps reproduce sdnps-lab --seed {seed} --runs {chosen.runs} --packets {chosen.packets}"
    command += f" --rate {rate:g}" if rate is not None else ""
    results = report.results(command, chosen, (before, os.getloadavg()[0]), cells, measured)
    directory = _write(
        out, quick, "sdnps-lab.md", report.markdown(results), {"sdnps-lab.json": report.records(results)}
    )
    report.show(results, Console())
    console.print(f"written to {directory}")


if __name__ == "__main__":
    app()
