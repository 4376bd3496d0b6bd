"""Packs rows for Spark's shuffle: the rows of a part of the topics go as one binary value, not each by itself.

Spark writes, sorts and reads each row of a shuffle. Packed, ten million rows take 1.5 GiB less memory, and less
time (docs/monitoring.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monitoring.counts.sums import NEEDED, ROWS

PACKED = pa.schema([("part", pa.int64()), ("rows", pa.binary())])
"""A part of the topics, and rows of it: a stream of Arrow's IPC format with the columns `NEEDED`."""
_ROWS = pa.schema([ROWS.field(name) for name in NEEDED])
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a batch of `PACKED` for each batch of rows, which have the columns ``part`` and `NEEDED`."""
    for batch in batches:
        order = pc.sort_indices(batch["part"])
        rows = batch.select(list(NEEDED)).cast(_ROWS).take(order)
        parts, first = np.unique(batch["part"].take(order).to_numpy(), return_index=True)
        ends = [*first[1:].tolist(), len(rows)]
        values = [_written(rows.slice(begin, end - begin)) for begin, end in zip(first.tolist(), ends, strict=True)]
        yield pa.RecordBatch.from_arrays([pa.array(parts), pa.array(values, pa.binary())], schema=PACKED)


def _written(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _ROWS, options=_OPTIONS) as out:
        out.write_batch(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def unpacked(packed: pa.Table) -> pa.Table:
    """Return the rows of a table of `PACKED`."""
    streams = (pa.ipc.open_stream(value.as_buffer()) for value in packed["rows"])
    return pa.Table.from_batches([batch for stream in streams for batch in stream], _ROWS)
