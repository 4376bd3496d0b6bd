"""``python -m saps.worker``: the entry point of one process of a broker with several (`saps.worker_process`).

`saps.workers` starts it, and nobody else. It is small for the same reason as `saps.cli`.
"""

from __future__ import annotations

import sys

from saps.loading import INTERRUPTED, Loading


def main() -> int:
    """Run one worker. Exit status as of `saps broker`."""
    try:
        with Loading():
            from saps.worker_process import run
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
