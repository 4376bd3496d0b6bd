"""`python -m examples.air_quality`: stations, district services and city hall on a mesh of three brokers and one more.

City hall is a program with a broker of its own in it; one station's power fails on the way. At the end every hour of
every district is computed again from what the stations have taken.
"""

from __future__ import annotations

import asyncio
import random
import sys
from argparse import ArgumentParser

import saps
from examples.air_quality.air import DISTRICTS, Air
from examples.air_quality.check import faults, last_hour
from examples.air_quality.picture import Outcome, draw, render, table
from examples.air_quality.services import HOUR, CityHall, Service, Station
from examples.common.mesh import Mesh, embedded
from examples.common.program import Crew, Program, arguments, carry_out

FAILS = 0.5
"""When a station's power fails, as a share of the run."""


def parser() -> ArgumentParser:
    """The command's options."""
    return arguments(
        "air_quality",
        "Twelve stations measure NO2 and PM2.5; a service in each of six districts sums them up by the European Air "
        "Quality Index; city hall, a program with a broker in it, draws the map. One station falls silent.",
        24,
        f"how long the stations report; an hour of the city takes {HOUR:.2f} s",
    )


async def play(program: Program) -> Outcome:
    """The mesh, the services, the stations; then what city hall has, checked."""
    seed, hall = program.arguments.seed, CityHall()
    air = Air(seed)
    stations = {name: Station(name, district, air) for district in DISTRICTS for name in district.stations}
    services = [Service(district) for district in DISTRICTS]
    failing = random.Random(seed).choice(sorted(stations))
    async with Mesh(program, ("north", "centre", "south")) as mesh:
        home = {cluster: name for name, cluster in mesh.clusters.items()}
        async with (
            embedded(saps.Broker("city-hall", cluster="centre", join=mesh.overlays)) as broker,
            Crew(program) as crew,
            program.showing(lambda: _line(hall), lambda: table(hall.hours, hall.status)),
        ):
            crew.start("city hall", hall.follow_districts(broker, crew.ready()))
            crew.start(
                "city hall", hall.follow_stations(broker, lambda name: program.tell(f"{name} has fallen silent"))
            )
            for n, service in enumerate(services):
                elsewhere = mesh.addresses[mesh.names[(n // 2 + 1) % len(mesh.names)]]
                crew.start(f"service of {service.district.name}", service.work(elsewhere, crew.ready()))
            reporting = [
                crew.start(
                    name,
                    station.work(
                        program,
                        mesh.addresses[home[station.district.cluster]],
                        crew.ready(),
                        FAILS * program.seconds if name == failing else float("inf"),
                    ),
                )
                for name, station in stations.items()
            ]
            await crew.all_ready()
            program.begin()
            await program.until()
            await asyncio.gather(*reporting, return_exceptions=True)
            return await _judge(program, air, stations, services, hall, broker)


async def _judge(
    program: Program,
    air: Air,
    stations: dict[str, Station],
    services: list[Service],
    hall: CityHall,
    broker: saps.Broker,
) -> Outcome:
    """When all has come: city hall's hours against the stations' readings, and what a late asker learns of them."""
    due = {each.district.name: last_hour([stations[name] for name in each.district.stations]) for each in services}
    await program.settled(lambda: all(len(hall.hours.get(name, ())) >= hours for name, hours in due.items()))
    late = CityHall()
    asking = asyncio.create_task(late.follow_stations(broker, lambda name: None))
    known = {name for name, station in stations.items() if station.known}
    await program.settled(lambda: known <= late.status.keys())
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    return Outcome(
        hours={district.name: hall.hours.get(district.name, []) for district in DISTRICTS},
        status=late.status,
        readings=sum(station.taken.total() for station in stations.values()),
        problems=list(faults(air, stations, hall.hours, late.status)),
    )


def _line(hall: CityHall) -> str:
    words = [f"{district.name} {_word(hall, district.name)}" for district in DISTRICTS]
    hour = max((own[-1].hour for own in hall.hours.values()), default=0)
    return f"hour {hour}: {', '.join(words)}"


def _word(hall: CityHall, district: str) -> str:
    level = hall.level(district)
    return level.words if level is not None else "?"


def main() -> None:
    """The entry point of the command."""
    sys.exit(carry_out(parser().parse_args(), play, render, draw))


if __name__ == "__main__":
    main()
