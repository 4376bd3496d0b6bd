"""Compiles the loops of planners and overlay designs to machine code before they are first used (numba).

    python scripts/compile_kernels.py

Else each program that comes first compiles those it needs, for 10 s and more. Without numba it does nothing.
"""

from __future__ import annotations

import subprocess
import sys

from research.published import Setting
from research.sdnps import study as planners
from research.tdcdoda import study as designs
from saps.ofm.planner.fitted import CHOICES, NetworkPlanner
from saps.overlay.design.compiled import COMPILED


def compile_designs() -> None:
    """Design one small overlay by each algorithm."""
    designs.measure(designs.Instance(Setting(20, 10, 3), 0), 1)


def compile_planners() -> None:
    """Plan one small network by each planner, and warm the controller's."""
    planners.measure(planners.Instance(3, 0), 1)
    for choice in CHOICES:
        NetworkPlanner(
            choice, capacity=lambda link: 1.0, rate=lambda topic: 1.0, version=lambda: 0, spread=False
        ).warm()


PARTS = {"designs": compile_designs, "planners": compile_planners}


def main() -> None:
    """Compile both parts beside each other, each in a process."""
    if not COMPILED:
        return
    if len(sys.argv) > 1:
        PARTS[sys.argv[1]]()
        return
    print("planners and designs: compiling their loops, which takes half a minute", file=sys.stderr)
    processes = [subprocess.Popen([sys.executable, __file__, part]) for part in PARTS]
    sys.exit(max(process.wait() for process in processes))


if __name__ == "__main__":
    main()
