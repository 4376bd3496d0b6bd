"""Is what city hall has right? Every hour of every district, computed again from what the stations took. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from examples.air_quality.air import DISTRICTS, STEP, Air
from examples.air_quality.index import HOURS, POLLUTANTS, index
from examples.air_quality.services import REPORTING, SILENT, Aggregate, Station
from examples.air_quality.windows import district_mean, expected, mean


def last_hour(stations: Sequence[Station]) -> int:
    """The last hour that a district can sum up: all its stations that are not silent have reported to its end."""
    talking = [min(station.taken[each] for each in POLLUTANTS) for station in stations if not station.silent]
    return min(talking, default=0) * STEP // 60


def faults(
    air: Air, stations: Mapping[str, Station], hours: Mapping[str, Sequence[Aggregate]], status: Mapping[str, str]
) -> Iterator[str]:
    """What is wrong with what city hall has: the hours of each district, and `status`, what a late asker was told."""
    for district in DISTRICTS:
        own = [stations[name] for name in district.stations]
        found = [each.hour for each in hours.get(district.name, ())]
        due = list(range(1, last_hour(own) + 1))
        if found != due:
            yield f"{district.name}: hours {found} have come, not each from 1 to {len(due)} once and in order"
        for each in hours.get(district.name, ()):
            yield from _faults_of_hour(air, own, each)
    for name, station in stations.items():
        word = SILENT if station.silent else REPORTING
        if station.known and status.get(name) != word:
            yield f"{name} is {word}; who asks late is told {status.get(name)}"


def _faults_of_hour(air: Air, stations: Sequence[Station], said: Aggregate) -> Iterator[str]:
    for station in stations:
        lacking = station.taken["no2"] * STEP < 60 * said.hour
        if lacking and not (station.silent and station.name in said.silent):
            yield f"{said.district}, hour {said.hour}: {station.name} had not reported, and was not taken for silent"
        for pollutant in POLLUTANTS:
            here, due = said.readings[station.name][pollutant], expected(HOURS[pollutant], said.hour)
            if here > due or (here < due and not station.silent):
                yield f"{said.district}, hour {said.hour}: {here} of {due} readings of {pollutant} from {station.name}"
    means = {each: _mean_again(air, stations, said, each) for each in POLLUTANTS}
    if said.means != means or said.level != index(means):
        yield f"{said.district}, hour {said.hour}: {said.means}, level {said.level}; it should be {means}"


def _mean_again(air: Air, stations: Sequence[Station], said: Aggregate, pollutant: str) -> float | None:
    """From the readings that the service says it had: the first ones, for a topic's messages come in order."""
    hours, means = HOURS[pollutant], []
    begin = 60 * max(0, said.hour - hours)
    for station in stations:
        minutes = [begin + STEP * n for n in range(1, said.readings[station.name][pollutant] + 1)]
        means.append(mean([air.reading(station.name, pollutant, minute) for minute in minutes], hours, said.hour))
    return district_mean(means)
