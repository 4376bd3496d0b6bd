"""The commands ``saps plan ...``: plan the trees of all topics from files, explain and draw them.

Exit status: 0, 1 if a topic has no tree, 2 for an unusable file or name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from saps.cli.apps import command_group

app = command_group("plan", "Plan the trees of many topics; explain and draw a plan.")

PlanFile = Annotated[Path, typer.Option("--plan", metavar="FILE", help="As `saps plan make` wrote it.")]
PLAN = Path("plan.json")


@app.command()
def make(
    network: Annotated[Path, typer.Argument(help="JSON: nodes and links, or a controller's /v1/topology.")],
    demands: Annotated[Path, typer.Argument(help="JSON: list of topic, members, senders, rate.")],
    planner: Annotated[str, typer.Option(metavar="NAME", help="See `saps plan planners`.")] = "balanced, thorough",
    clusters: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON: cluster by switch (16 hexadecimal digits).")
    ] = None,
    capacity: Annotated[
        float, typer.Option(min=0, help="Of each link of a controller's topology that has none.")
    ] = 1.0,
    forecast: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON: rate by topic, or the decisions of the monitoring job.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the plan goes.")] = PLAN,
) -> None:
    """Plan a tree for each topic."""
    with _Failing():
        from saps.ofm.planner.command import files
        from saps.ofm.planner.command.files import arrays_of, demands_of, graph_of, network_of
        from saps.ofm.planner.registry import ALGORITHMS
        from saps.ofm.planner.trees import figures

        if planner not in ALGORITHMS:
            raise ValueError(f"there is no planner {planner!r}; there are: {'; '.join(ALGORITHMS)}")
        names = None if clusters is None else {int(dpid, 16): str(name) for dpid, name in _read(clusters).items()}
        here = network_of(_read(network), names, capacity)
        graph = graph_of(here)
        wanted = demands_of(_read(demands))
        if forecast is not None:
            wanted = files.forecast(wanted, _read(forecast))
        asked, ordered = arrays_of(wanted, here)
        trees = ALGORITHMS[planner].design(graph, asked)
        made = files.Plan(planner, here, ordered, files.named_trees(trees, ordered, here, graph))
        out.write_text(json.dumps(files.plain(made), indent=1) + "\n")
    result = figures(graph, asked, trees)
    typer.echo(
        f"{asked.topics} topics on {graph.nodes} nodes and {graph.edges} links: busiest link "
        f"{100 * result.busiest:.1f} %, least residual bandwidth {result.residual:g}, {result.tree_cost:.1f} links and "
        f"{result.diameter:.1f} hops across a tree; written to {out}"
    )
    bare = [d.topic for i, d in enumerate(ordered) if len(d.members) > 1 and not len(trees.edges_of(i))]
    if bare:
        typer.echo(f"saps plan: no tree for {', '.join(bare)}", err=True)
        raise typer.Exit(1)


@app.command()
def planners() -> None:
    """List the planners."""
    with _Failing():
        from saps.ofm.planner.registry import ALGORITHMS
    for algorithm in ALGORITHMS.values():
        typer.echo(f"{algorithm.name}{' (by load)' if algorithm.by_load else ''}")


@app.command()
def explain(
    topic: Annotated[str, typer.Argument(help="A topic of the plan.")],
    plan: PlanFile = PLAN,
) -> None:
    """Say why a topic's tree is as it is."""
    with _Failing():
        from saps.ofm.planner.command.explain import explain as words
        from saps.ofm.planner.command.files import plan_of

        text = words(plan_of(_read(plan)), topic)
    typer.echo(text)


@app.command()
def draw(
    out: Annotated[Path, typer.Argument(help="A file .svg or .png.")],
    topic: Annotated[str | None, typer.Option(help="Draw its tree.")] = None,
    plan: PlanFile = PLAN,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the nodes' positions.")] = 1,
) -> None:
    """Draw the network, the load of its links, and a tree."""
    with _Failing():
        from saps.ofm.planner.command.drawing_io import draw as picture
        from saps.ofm.planner.command.files import plan_of

        if out.suffix not in (".svg", ".png"):
            raise ValueError(f"{out}: the name must end in .svg or .png")
        picture(plan_of(_read(plan)), out, topic, seed=seed)
    typer.echo(f"written to {out}")


@app.command()
def network(
    topology: Annotated[Path, typer.Argument(help="JSON of a controller's /v1/topology, or nodes and links.")],
    clusters: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON: cluster by switch (16 hexadecimal digits).")
    ] = None,
    capacity: Annotated[float, typer.Option(min=0, help="Of each link.")] = 1.0,
) -> None:
    """Print the aggregated network: clusters, and trunks with summed capacity."""
    with _Failing():
        from saps.ofm.planner.command.files import network_of, plain

        names = None if clusters is None else {int(dpid, 16): str(name) for dpid, name in _read(clusters).items()}
        text = json.dumps(plain(network_of(_read(topology), names, capacity)), indent=1)
    typer.echo(text)


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


class _Failing:
    """A context that turns expected errors into one line on standard error and exit status 2."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ModuleNotFoundError):
            message = f"{error.name} is not installed (pip install 'saps[research]')"
        elif isinstance(error, KeyError):
            message = f"the plan has no topic {error.args[0]}"
        elif isinstance(error, OSError | ValueError | AttributeError):
            message = str(error)
        else:
            return
        typer.echo(f"saps plan: {message}", err=True)
        raise typer.Exit(2) from None
