"""The entry point of the command `saps`. The commands themselves are in `saps.cli.commands`.

The module imports little, so that Ctrl-C ends the program quietly from its first moment.
"""

from __future__ import annotations

import os
import sys

from saps.runtime.loading import INTERRUPTED, Loading

TYPE_CHECKING = False  # typing is imported within `Loading`, too
if TYPE_CHECKING:
    from saps.config import BrokerSettings


def main() -> None:
    """Run the command that the arguments name. The exit status is the command's, or 130 after an interrupt."""
    try:
        if sys.argv[1:2] == ["broker"]:
            _broker(sys.argv[2:])
        with Loading():
            from saps.cli.commands import app
        app(prog_name="saps")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _broker(arguments: list[str]) -> None:
    """Run a broker, and exit with its status, if its flags can be read without typer."""
    with Loading():
        from saps.cli.flags import read, serve
        from saps.config.sources_io import BROKER
    if (flags := read(BROKER, arguments, os.environ)) is not None:
        sys.exit(serve(BROKER, flags, os.environ, run_broker))


def run_broker(settings: BrokerSettings) -> int:
    """Run a broker. Return the exit status. Raises `SettingError` if it cannot start."""
    with Loading():  # here, so that --help and a fault of the settings do not pay for the broker's imports
        from saps.broker.broker import run

    return run(settings)
