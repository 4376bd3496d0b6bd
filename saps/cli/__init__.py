"""The entry point of the command `saps`: the commands themselves are in `saps.cli.commands`.

It is small, so that Ctrl-C ends the program quietly from its first moment on.
"""

from __future__ import annotations

import sys

from saps.runtime.loading import INTERRUPTED, Loading


def main() -> None:
    """Run the command that the arguments name. Exit status: of the command; 130 if it was interrupted."""
    try:
        with Loading():
            from saps.cli.commands import app
        app(prog_name="saps")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
