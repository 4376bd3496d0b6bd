"""What a module with one command of `saps` declares it in. Light: a broker is started by such a module, too."""

from __future__ import annotations

import typer


def command_app(name: str) -> typer.Typer:
    """What a module with one command of `saps` declares it in."""
    return typer.Typer(
        name=name,
        add_completion=False,
        rich_markup_mode="markdown",
        pretty_exceptions_show_locals=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
