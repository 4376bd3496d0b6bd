"""The compiler of the design algorithms' loops: numba if it is installed (extra ``research``), else none.

The kernels are ordinary functions over numpy arrays, so they give the same overlays without numba, 10 to 50 times
slower: fast enough for a mesh (two seconds for 200 brokers and 100 topics), not for the papers' sweeps. Machine code is
kept beside the source (or in numba's user cache), so only the first run on a machine compiles.
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
    """Decorator: `kernel` as machine code if numba is installed, else as it is."""
    return cast(Kernel, numba.njit(cache=True, nogil=True)(kernel)) if COMPILED else kernel
