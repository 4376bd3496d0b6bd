"""`python -m examples.social_feed`: a feed with a few celebrities, six brokers in three clusters, OpenFlow trees.

At the end: what each class of popularity came to, which topics got trees and why, and that every message arrived once
and in order, whichever way it went.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser
from importlib.util import find_spec

from examples.common.program import Program, arguments, carry_out
from examples.smart_city.arguments import count
from examples.smart_city.processes import BrokerError
from examples.smart_city.run import NotStartedError, Run
from examples.smart_city.scene import plan_brokers
from examples.social_feed.feed import feed
from examples.social_feed.result import Outcome, draw, outcome, render, status
from examples.social_feed.trees import Trees

CLUSTERS = 3


def parser() -> ArgumentParser:
    """The command's options."""
    given = arguments(
        "social_feed",
        "Authors write, apps follow them by Zipf's law, readers like what they read. OFGate decides on the brokers' "
        "counts which topics are worth an OpenFlow tree (switches in software; no root needed).",
        20,
        "how long they write",
    )
    given.add_argument("--brokers", type=count(60), default=6, help="how many brokers (default: 6, in 3 clusters)")
    given.add_argument("--authors", type=count(2000), default=60, help="how many authors (default: 60)")
    given.add_argument("--no-ofm", action="store_true", help="no switches, no decisions: all goes by ALM")
    return given


async def play(program: Program) -> Outcome:
    """The feed with its trees."""
    given = program.arguments
    plan = feed(plan_brokers(given.brokers, CLUSTERS), given.authors, given.seed)
    ofm = not given.no_ofm and all(find_spec(name) for name in ("pyarrow", "os_ken"))
    trees = Trees(program, plan.scene, ofm)
    run = Run(plan.scene, program.seconds, given.seed, open_end=True, beside=trees)
    interrupting = asyncio.create_task(_interrupt(program, run))
    try:
        async with program.showing(lambda: status(run, trees), lambda: status(run, trees)):
            await run.perform()
        return outcome(plan, run, trees, await trees.scarce())
    except NotStartedError as error:
        raise BrokerError(str(error)) from None
    finally:
        interrupting.cancel()
        trees.close()


async def _interrupt(program: Program, run: Run) -> None:
    """Pass an interrupt on."""
    await program.curtain.wait()
    if program.interrupted:
        run.interrupt()


def main() -> None:
    """The entry point of the command."""
    sys.exit(carry_out(parser().parse_args(), play, render, draw))


if __name__ == "__main__":
    main()
