"""Sums the rows of many brokers by window and topic, on Arrow tables: `features.windows` for Spark.

Spark hands over all rows of a part of the topics. One sort then makes the rows of each group adjacent. Hash aggregation
in Spark itself (once each for repeated rows, brokers, clusters and topics) took three times the processor time.
"""

from __future__ import annotations

from typing import Any, get_type_hints

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from monitoring.counts.features import SITES, Window
from saps.statistics import REST, Row

NEEDED = (
    "broker", "incarnation", "cluster", "start", "seconds", "topic", "messages", "bytes", "subscribers", "brokers",
    "priority", "copies", "by_tree", "joins", "leaves",
)  # fmt: skip
"""The columns of the brokers' rows that make the windows."""
_KINDS = {str: pa.string(), int: pa.int64(), float: pa.float64(), list[int]: pa.list_(pa.int64())}
ROWS = pa.schema([(name, _KINDS[kind]) for name, kind in get_type_hints(Row).items()])
"""Schema of the brokers' rows (`saps.statistics.Row`)."""
WINDOWS = pa.schema([(name, _KINDS[kind]) for name, kind in get_type_hints(Window).items()])

Ints = npt.NDArray[np.int64]


def windows(rows: pa.Table, length: int) -> pa.Table:
    """Return the windows of `length` ms with published messages, as columns of `features.Window`.

    `rows` has the columns `NEEDED` at least. A row that is given twice counts once. The result equals that of
    `features.windows` but for the order."""
    rows = rows.filter(pc.not_equal(rows["topic"], REST))
    topics, topic = _coded(rows["topic"])
    clusters, cluster = _coded(rows["cluster"], by_name=True)
    _, broker = _coded(rows["broker"])
    number = {name: rows[name].to_numpy() for name in NEEDED if name not in ("topic", "cluster", "broker")}
    middle = number["start"] + (number["seconds"] * 500).astype(np.int64)
    window = middle // length * length
    order = np.lexsort((number["start"], number["incarnation"], broker, cluster, window, topic))
    keys = [key[order] for key in (topic, window, cluster, broker, number["incarnation"], number["start"])]
    first = _changes(keys)
    once, keys = order[first], [key[first] for key in keys[:4]]
    values = {name: column[once] for name, column in number.items()}
    values["reach"] = values["messages"] * values["brokers"]

    at = np.flatnonzero(_changes(keys))  # of each broker's rows in a cluster, window and topic
    member = np.maximum.reduceat(values["subscribers"], at) > 0 if len(at) else np.zeros(0, bool)
    sender = np.maximum.reduceat(values["messages"], at) > 0 if len(at) else np.zeros(0, bool)
    keys = [key[at] for key in keys[:3]]
    of_cluster = np.flatnonzero(_changes(keys))  # of each cluster, among the brokers
    members, senders, only = (_sums(each, of_cluster) for each in (member, sender, sender & ~member))
    messages = _sums(values["messages"], at[of_cluster])
    keys = [key[of_cluster] for key in keys]
    of_topic = np.flatnonzero(_changes(keys[:2]))  # of each topic and window, among the clusters
    begins = at[of_cluster][of_topic]

    total = {
        name: _sums(values[name], begins) for name in ("messages", "bytes", "copies", "by_tree", "joins", "leaves")
    }
    wanting, inside = _sums(members > 0, of_topic), _sums(np.where(members > 0, messages, 0), of_topic)
    far = wanting * total["messages"] - inside
    found: dict[str, Any] = total | {
        "topic": topics.take(pa.array(keys[0][of_topic])),
        "start": keys[1][of_topic],
        "copies": np.where(far > 0, total["copies"], 0),
        "up": np.select([wanting == 0, wanting == 1], [0, total["messages"] - inside], total["messages"]),
        "far": far,
        "reach": _sums(values["reach"], begins),
        "senders": _sums(senders, of_topic),
        "members": _sums(members, of_topic),
        "priority": np.maximum.reduceat(values["priority"], begins) if len(begins) else begins,
        "sites": _sites(clusters, keys[2], members, only, (members > 0) | (senders > 0), of_topic),
    }
    table = pa.Table.from_arrays(
        [pa.array(found[name], WINDOWS.field(name).type) for name in WINDOWS.names], schema=WINDOWS
    )
    return table.filter(pa.array(total["messages"] > 0))


def _coded(column: pa.ChunkedArray, by_name: bool = False) -> tuple[pa.Array, Ints]:
    """Return the distinct texts of a column, and for each row the number of its text.

    With `by_name`, numbers ascend in the order of the sites' texts, in which a colon follows the name."""
    coded = column.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = (
            coded.unify_dictionaries().combine_chunks()
            if coded.num_chunks
            else pa.array([], column.type).dictionary_encode()
        )
    names, numbers = coded.dictionary, coded.indices.to_numpy().astype(np.int64)
    if by_name:
        order = sorted(range(len(names)), key=lambda number: f"{names[number]}:")
        rank = np.empty(len(names), np.int64)
        rank[order] = np.arange(len(names))
        names, numbers = names.take(pa.array(order, pa.int64())), rank[numbers]
    return names, numbers


def _changes(keys: list[Ints]) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows at which any key differs from the row before. The first row counts as different."""
    found = np.ones(len(keys[0]), dtype=bool)
    if len(found):
        found[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    return found


def _sums(values: npt.NDArray[Any], begins: Ints) -> Ints:
    """Return the sum of each stretch of values; stretches begin at the ascending indices `begins`."""
    return np.add.reduceat(values, begins, dtype=np.int64) if len(begins) else np.zeros(0, dtype=np.int64)


def _sites(
    clusters: pa.Array, cluster: Ints, members: Ints, only: Ints, known: npt.NDArray[np.bool_], of_topic: Ints
) -> pa.Array:
    """Return `features.Window.sites` of each topic and window; their clusters begin at the indices `of_topic`."""
    count = _sums(known, of_topic)
    offsets = np.concatenate([[0], np.cumsum(count)]).astype(np.int32)
    each = np.stack([cluster[known], members[known], only[known]], axis=1)
    width = int(each[:, 1:].max(initial=0)) + 1
    kinds, which = np.unique((each[:, 0] * width + each[:, 1]) * width + each[:, 2], return_inverse=True)
    names = clusters.to_pylist()
    texts = [f"{names[kind // width // width]}:{kind // width % width}:{kind % width}" for kind in kinds.tolist()]
    sites = pa.array(texts, pa.string()).take(pa.array(which.reshape(-1)))
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), sites), SITES)
