"""Compiles the loops of the design algorithms with numba if it is installed (extra ``research``).

The kernels are ordinary functions over numpy arrays, so they give the same overlays without numba, but 10 to 50 times
slower. That is fast enough for a mesh (two seconds for 200 brokers and 100 topics), but not for the papers' sweeps.
Machine code is cached beside the source (or in numba's user cache), so only the first run on a machine compiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

try:
    import numba
except ModuleNotFoundError:  # the product needs no compiler
    COMPILED = False
else:
    COMPILED = True
"""Whether kernels run as machine code."""


def compiled(kernel: Kernel) -> Kernel:
    """Return `kernel` compiled to machine code if numba is installed, else `kernel` itself. Use it as a decorator."""
    return cast(Kernel, numba.njit(cache=True, nogil=True)(kernel)) if COMPILED else kernel
