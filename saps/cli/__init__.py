"""The entry point of the command `saps`. The commands themselves are in `saps.cli.commands`.

The module imports little, so that Ctrl-C ends the program quietly from its first moment.
"""

from __future__ import annotations

import sys

from saps.runtime.loading import INTERRUPTED, Loading


def main() -> None:
    """Run the command that the arguments name. The exit status is the command's, or 130 after an interrupt."""
    try:
        with Loading():
            from saps.cli.commands import app
        app(prog_name="saps")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
