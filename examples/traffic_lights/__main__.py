"""`python -m examples.traffic_lights`: twelve junctions on a mesh of four brokers decide by max pressure.

At the end the same street is run with the same vehicles and no mesh: every light must have been the same at every
step. And a fixed-time plan is run, too, for comparison, here and with other seeds.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from statistics import mean

from examples.common.mesh import Mesh
from examples.common.program import Crew, Program, arguments, carry_out
from examples.smart_city.arguments import count
from examples.traffic_lights.compare import compare, tune_fixed, tune_stay
from examples.traffic_lights.control import run_fixed, run_max_pressure
from examples.traffic_lights.junctions import City, Controller, Leadership, Phase, name_of
from examples.traffic_lights.picture import Outcome, draw, grid, render
from examples.traffic_lights.street import JUNCTIONS, STEP, Street

CLUSTERS = ("west", "west", "east", "east")
"""Of the brokers: each has the junctions of a column."""
PACE = 0.04
"""Seconds that a step takes at least."""
HOUR = 3600 // STEP
TUNING = range(1001, 1004)
"""Seeds by which both plans were chosen; no run of `compare` uses them."""


def parser() -> ArgumentParser:
    """The command's options."""
    found = arguments(
        "traffic_lights",
        "Twelve junctions tell each other their queues over four brokers in two clusters, and decide by max pressure "
        "(Varaiya 2013). The waiting times are compared with those of a fixed-time plan.",
        24,
        f"how long it lasts; a step of {STEP} s of the city takes {PACE} s or what the mesh needs",
    )
    found.add_argument("--seeds", type=count(1000), default=10, help="days to compare the plans on (default: 10)")
    found.add_argument("--tune", action="store_true", help="only look for the best plans (a minute)")
    return found


async def play(program: Program) -> Outcome:
    """Controllers and office on the mesh, step by step; then the same without a mesh."""
    city, leadership = City(program, Street(program.arguments.seed), PACE), Leadership()
    async with Mesh(program, CLUSTERS) as mesh, Crew(program) as crew:
        controllers = [Controller(junction) for junction in JUNCTIONS]
        crew.start("traffic office", leadership.work(mesh.addresses["b4"], crew.ready()))
        for controller in controllers:
            at = mesh.addresses[mesh.names[controller.junction[1]]]
            crew.start(name_of(controller.junction), controller.work(program, at, city, crew.ready()))
        await crew.all_ready()
        async with program.showing(lambda: _line(city.street), lambda: grid(city.street, _latest(city))):
            program.begin()
            going = asyncio.create_task(city.go_on())
            await program.until()
            await going
            await program.settled(lambda: leadership.complete(city.street.step))
    return await asyncio.to_thread(_outcome, city, leadership, program.arguments.seeds)


def _outcome(city: City, leadership: Leadership, seeds: int) -> Outcome:
    street = city.street
    alone, fixed = run_max_pressure(street.seed, street.step), run_fixed(street.seed, street.step)
    heard = sum(len(leadership.queues[junction]) + len(leadership.phases[junction]) for junction in JUNCTIONS)
    return Outcome(
        steps=street.step,
        vehicles=street.waited.vehicles,
        messages=heard,
        max_pressure=round(street.waited.mean, 2),
        fixed=round(fixed.waited.mean, 2),
        waiting=street.waiting,
        waiting_fixed=fixed.waiting,
        mean_queues={
            name_of(junction): round(mean(sum(each.lanes) for each in leadership.queues[junction] or ()), 1)
            if leadership.queues[junction]
            else 0.0
            for junction in JUNCTIONS
        },
        seeds=compare(range(2001, 2001 + seeds), street.step),
        problems=list(faults(city, leadership, alone)),
    )


def faults(city: City, leadership: Leadership, alone: Street) -> Iterator[str]:
    """A light or a queue that is another one than on the same street without a mesh; a message missed or doubled."""
    steps = city.street.step
    if city.street.waiting != alone.waiting or city.street.waited != alone.waited:
        yield "the traffic is not the same as without a mesh"
    for junction in JUNCTIONS:
        told = [Phase(step, phase) for step, phase in enumerate(city.decided[junction][:steps])]
        if leadership.phases[junction][:steps] != told:
            yield f"the office did not get every phase of {name_of(junction)} once and in order"
        if [each.step for each in leadership.queues[junction]][:steps] != list(range(steps)):
            yield f"the office did not get every count of {name_of(junction)} once and in order"


def _latest(city: City) -> dict[tuple[int, int], int]:
    return {junction: phases[-1] for junction, phases in city.decided.items() if phases}


def _line(street: Street) -> str:
    minutes, waiting = street.step * STEP / 60, street.waiting[-1] if street.waiting else 0
    return f"minute {minutes:.0f} of the city: {waiting} vehicles wait, {street.waited.mean:.1f} s each so far"


def main() -> None:
    """The entry point of the command."""
    given = parser().parse_args()
    if given.tune:
        for waiting, plan in tune_fixed(TUNING, HOUR)[:5]:
            print(f"fixed time, {plan[0]} steps for north and south, {plan[1]} for east and west: {waiting:.1f} s")
        for waiting, stay in tune_stay(TUNING, HOUR):
            print(f"max pressure, which stays unless the other phase is worth {stay} more: {waiting:.1f} s")
        sys.exit()
    sys.exit(carry_out(given, play, render, draw))


if __name__ == "__main__":
    main()
