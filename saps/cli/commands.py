"""The table of the commands of `saps`. Each is in a module of its own, loaded on demand: `saps --help` loads none."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from saps.runtime.loading import Loading
from saps.version import __version__


class Entry(NamedTuple):
    """A command of `saps`."""

    module: str
    """Name of the module, whose `app` is the command."""
    says: str
    """Purpose of the command in one line."""


GROUPS = {
    "Run": {
        "broker": Entry("saps.cli.broker", "one broker of the mesh"),
        "check-config": Entry("saps.cli.check_config", "what is wrong with a configuration, and where"),
        "storage": Entry("saps.cli.storage", "verify, export, repair and back up what is stored"),
        "drain": Entry("saps.cli.drain", "send clients and sessions elsewhere, then end a broker"),
    },
    "Look": {
        "brokers": Entry("saps.cli.look.brokers", "all brokers: load, publishers held back, who is away"),
        "topics": Entry("saps.cli.look.topics", "topics: how they travel, rates, subscribers, latency"),
        "clients": Entry("saps.cli.look.clients", "clients of all brokers: which floods, waits, is away"),
        "client": Entry("saps.cli.look.client", "one client: session, queue, last will; disconnect it"),
        "follow": Entry("saps.cli.look.follow", "a client or a topic live, and what is not delivered"),
        "audit": Entry("saps.cli.look.audit", "who changed what, who logged in, who was refused"),
        "trace": Entry("saps.cli.look.trace", "where a message to a topic or address would go, and why"),
        "top": Entry("saps.cli.look.top", "the busiest brokers and topics, live"),
        "doctor": Entry("saps.cli.doctor.command", "what is wrong with this node, and how to fix it"),
    },
    "Secure": {
        "ban": Entry("saps.cli.look.ban", "ban clients, users and addresses in the whole mesh"),
        "passwd": Entry("saps.cli.passwd", "a user's password in a password file"),
        "ca": Entry("saps.cli.ca", "certificates: make, revoke and list them"),
    },
    "OpenFlow": {
        "controller": Entry("saps.cli.controller", "the OpenFlow controller"),
        "ofgate": Entry("saps.cli.ofgate", "the gateway between the mesh and a controller"),
        "switches": Entry("saps.cli.switches", "switches in software, without root"),
        "monitor": Entry("monitoring.cli", "decide which topics get trees"),
        "decisions": Entry("monitoring.decisions_cli", "what was decided, and why"),
    },
    "Research": {
        "plan": Entry("saps.cli.plan", "trees of many topics: plan, explain, draw"),
        "lab": Entry("lab.cli", "a network on this machine to try things in (root)"),
        "reproduce": Entry("research.cli", "the papers' evaluations anew"),
    },
}
"""The commands by purpose, in the order of the help text."""
CHECKOUT_ONLY = ("lab", "research")
"""Packages beside `saps` that its wheel does not carry."""
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}
OPTIONS = {
    "--version": "print the version",
    "--install-completion": "teach your shell the commands and options",
    "--show-completion": "print what that would install",
    "-h, --help": "this; saps COMMAND --help says more",
}


class _Commands(TyperGroup):
    """Finds commands in the table and imports only the one that is called."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:  # typer itself would print nothing
            typer.echo(ctx.get_help())
            raise typer.Exit(2)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = COMMANDS[cmd_name].module
        with Loading():
            try:
                group: typer.Typer = importlib.import_module(module).app
            except ModuleNotFoundError as error:
                if error.name not in CHECKOUT_ONLY:
                    raise
                from saps.cli.apps import refuse  # here: --help does not need it

                raise refuse(f"{cmd_name!r} is in the source checkout only, not in the wheel") from None
        command = typer.main.get_command(group)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not ctx.resilient_parsing and not args[0].startswith("-"):
            import difflib  # here: most commands are right

            from saps.cli.apps import refuse

            near = difflib.get_close_matches(args[0], COMMANDS)
            hint = f"did you mean {' or '.join(near)}?" if near else "saps --help lists them"
            raise refuse(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write("\n".join(_help()) + "\n")

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the commands and options that begin with `incomplete`, without loading a command."""
        known = {name: entry.says for name, entry in COMMANDS.items()}
        for names, says in OPTIONS.items() if incomplete.startswith("-") else ():
            known |= dict.fromkeys(names.split(", "), says)
        from typer.core import CompletionItem  # type: ignore[attr-defined] # typer has it, and does not say so

        return [CompletionItem(name, help=says) for name, says in known.items() if name.startswith(incomplete)]


app = typer.Typer(
    name="saps",
    cls=_Commands,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"saps {__version__}")
        raise typer.Exit


@app.callback()
def saps(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Publish/subscribe brokers without a master: MQTT at the edge, a Skip Graph overlay between sites."""


def _help() -> Iterable[str]:
    """Yield the lines of `saps --help`."""
    wide = max(map(len, [*COMMANDS, *OPTIONS])) + 2
    yield "Publish/subscribe brokers without a master: MQTT at the edge, a Skip Graph"
    yield "overlay between sites."
    yield ""
    yield "Usage: saps COMMAND [OPTIONS]"
    for title, entries in GROUPS.items():
        yield f"\n{title}:"
        yield from (f"  {name:<{wide}}{entry.says}" for name, entry in entries.items())
    yield "\nOptions:"
    yield from (f"  {names:<{wide}}{says}" for names, says in OPTIONS.items())
