"""Runs the job under ``spark-submit``: ``spark-submit --master ... .../monitoring/__main__.py --source DIR ...``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run `saps monitor` with the master of ``spark-submit`` unless the arguments give `--master`."""
    from typer.main import get_command

    from monitoring.cli import app

    arguments = sys.argv[1:]
    if not any(argument.partition("=")[0] == "--master" for argument in arguments):
        arguments = ["--master", "", *arguments]
    get_command(app)(arguments, prog_name="saps monitor")


if __name__ == "__main__":
    main()
