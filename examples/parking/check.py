"""Has every place been sold once, and every driver been told the truth? Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from examples.parking.desk import Driver
from examples.parking.town import PARKS

Taken = Mapping[tuple[str, int], str]
"""The request that has each place, by the ledger."""


def faults(drivers: Sequence[Driver], taken: Taken) -> Iterator[str]:
    """What is wrong between what the drivers were told and the ledger."""
    asked = [driver for driver in drivers if driver.began]
    holders = Counter((driver.answer.park, driver.answer.place) for driver in asked if driver.answer is not None)
    for (park, place), count in holders.items():
        if count > 1:
            yield f"place {place} of {park} was sold {count} times"
    for driver in asked:
        yield from _faults_of(driver, taken)
    told = {(park, place) for park, place in holders if place is not None}
    for (park, place), request in taken.items():
        if (park, place) not in told:
            yield f"place {place} of {park} is kept for {request!r}, who has not been told"
    free = {park.name: park.places - sum(at == park.name for at, _ in taken) for park in PARKS}
    for driver in asked:
        yield from (f"{driver.plan.name} was told that {park} is full" for park in driver.full if free[park])


def _faults_of(driver: Driver, taken: Taken) -> Iterator[str]:
    name = driver.plan.name
    if not driver.done:
        yield f"{name} has got no answer"
    own = [place for place, request in taken.items() if request.split(" ")[0] == name]
    said = [] if driver.answer is None else [(driver.answer.park, driver.answer.place)]
    if own != said:
        yield f"{name} was told {said}, the ledger has {own}"


def signs(taken: Taken, seen: Mapping[tuple[str, str], int | None]) -> Iterator[str]:
    """Signs (of whoever shows them, of a car park) that are wrong."""
    for (where, park), free in seen.items():
        due = next(each.places for each in PARKS if each.name == park) - sum(at == park for at, _ in taken)
        if free != due:
            yield f"{where} shows {free} free places at {park}; there are {due}"
