"""A binary heap of nodes in arrays for compiled loops: each node occurs once, and moves up when its key falls.

`heapq` does not fit: it has no decrease-key, so a node would occur once for each edge, as a tuple that compiled code
would have to make.

``heap[:size]`` are the nodes. ``place[v]`` is the position of node v, -1 if it is not in the heap. The node with the
least ``key`` is on top.
"""

from __future__ import annotations

from saps.ofm.planner.graph import Floats, Ints
from saps.overlay.design.compiled import compiled


@compiled
def push(heap: Ints, place: Ints, key: Floats, size: int, node: int) -> int:
    """Insert `node` by its key, or move it up after its key has fallen. Return the size."""
    i = place[node]
    if i < 0:
        i = size
        size += 1
    mine = key[node]
    while i > 0:
        above = (i - 1) >> 1
        other = heap[above]
        if key[other] <= mine:
            break
        heap[i] = other
        place[other] = i
        i = above
    heap[i] = node
    place[node] = i
    return size


@compiled
def pop(heap: Ints, place: Ints, key: Floats, size: int) -> int:
    """Remove and return the top node. The size is one less afterwards; the caller counts it."""
    top = heap[0]
    place[top] = -1
    size -= 1
    if size:
        last = heap[size]
        mine = key[last]
        i = 0
        while True:
            below = 2 * i + 1
            if below >= size:
                break
            if below + 1 < size and key[heap[below + 1]] < key[heap[below]]:
                below += 1
            other = heap[below]
            if mine <= key[other]:
                break
            heap[i] = other
            place[other] = i
            i = below
        heap[i] = last
        place[last] = i
    return int(top)
