"""Draws a plan: the network, the load of each link by colour and width, and one topic's tree."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import networkx as nx
import numpy as np

from saps.ofm.planner.command.files import Plan, loaded
from saps.ofm.planner.trees import loads


def draw(plan: Plan, file: Path, topic: str | None = None, *, seed: int = 1) -> None:
    """Write SVG or PNG, by the file's name. The same plan gives the same picture; `seed` determines the layout. Raises
    `KeyError` for a topic that the plan does not have."""
    graph, demands, ordered, trees = loaded(plan)
    topics = [demand.topic for demand in ordered]
    if topic is not None and topic not in topics:
        raise KeyError(topic)
    chosen = None if topic is None else topics.index(topic)
    used = loads(graph, demands, trees) / graph.capacity
    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "saps plan"
    from matplotlib import pyplot

    net: nx.Graph[int] = nx.Graph(graph.ends.tolist())
    net.add_nodes_from(range(graph.nodes))
    places = nx.spring_layout(net, seed=seed, iterations=200)
    figure, axis = pyplot.subplots(figsize=(10, 8), layout="constrained")
    top = max(float(used.max(initial=0.0)), 1e-9)
    pairs = [(int(a), int(b)) for a, b in graph.ends]
    colour_of = mpl.colormaps["YlOrRd"]
    scale = mpl.cm.ScalarMappable(mpl.colors.Normalize(0.0, top), colour_of)
    if chosen is not None:
        tree = [pairs[edge] for edge in trees.edges_of(chosen)]
        nx.draw_networkx_edges(net, places, edgelist=tree, ax=axis, edge_color="#7fb3ff", width=13.0)
    nx.draw_networkx_edges(
        net,
        places,
        edgelist=pairs,
        ax=axis,
        edge_color=[mpl.colors.to_hex(colour_of(float(value) / top)) for value in used],
        width=[1 + 4 * float(value) / top for value in used],
    )
    figure.colorbar(scale, ax=axis, label="load by capacity", shrink=0.7)
    colours = ["#d0d0d0"] * graph.nodes
    if chosen is not None:
        for node in demands.nodes_of(chosen):
            colours[node] = "#7fb3ff"
        for node in demands.nodes_of(chosen)[: demands.senders[chosen]]:
            colours[node] = "#1f4e9c"
    small = graph.nodes > 60
    nx.draw_networkx_nodes(net, places, range(graph.nodes), ax=axis, node_color=colours, node_size=60 if small else 300)
    if not small:
        labels = dict(enumerate(plan.network.nodes))
        nx.draw_networkx_labels(net, places, labels, ax=axis, font_size=7)
    about = f", tree of {topic} (blue; dark: publish)" if topic is not None else ""
    axis.set_title(
        f"{len(ordered)} topics, {plan.planner}: busiest link {100 * float(np.max(used, initial=0)):.1f} %{about}"
    )
    axis.set_axis_off()
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    pyplot.close(figure)
