"""A binary heap of nodes in arrays: each node once, moved up when its key falls (for compiled loops).

`heapq` is no choice here: it has no decrease-key, so a node would stand in it once for each edge, as a tuple that
compiled code would have to make.

``heap[:size]`` are the nodes, ``place[v]`` is where node v is, -1 if it is not there; the least ``key`` is on top.
"""

from __future__ import annotations

from saps.ofm.planner.graph import Floats, Ints
from saps.overlay.design.compiled import compiled


@compiled
def push(heap: Ints, place: Ints, key: Floats, size: int, node: int) -> int:
    """Node `node` is in the heap, by its key, which may only have fallen. Gives the size."""
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
    """Take out the top, which is given. There is one node less then."""
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
