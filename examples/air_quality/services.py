"""The programs on the mesh: stations and district services are MQTT clients, city hall is a program with a broker.

| topic | QoS | who says it |
| --- | --- | --- |
| ``air/DISTRICT/STATION/no2`` | 0 | a station, every 15 minutes of the city's time |
| ``air/DISTRICT/STATION/pm25`` | 1 | the same |
| ``air/DISTRICT/STATION/status`` | 1, retained | ``reporting``; its will says ``silent`` |
| ``air/DISTRICT/index`` | 1, retained | the district's service, every hour of the city's time |
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import count

import msgspec
from aiomqtt import Client, MqttError, Will

import saps
from examples.air_quality.air import STEP, Air, District
from examples.air_quality.index import HOURS, NO2, POLLUTANTS, Level, index
from examples.air_quality.windows import Series, district_mean, mean
from examples.common.clients import body, connected, publish, pull_the_plug, read
from examples.common.mesh import Address
from examples.common.program import Program

REPORTING, SILENT = "reporting", "silent"
QOS = {NO2: 0, "pm25": 1}
HOUR = 2 / 3
"""Seconds of the run that are an hour of the city."""


class Reading(msgspec.Struct, frozen=True):
    """What a station says."""

    minute: int
    value: float


class Aggregate(msgspec.Struct, frozen=True):
    """What a district's service says each hour."""

    district: str
    hour: int
    level: int | None
    means: dict[str, float | None]
    readings: dict[str, dict[str, int]]
    """How many readings the windows had, by station and pollutant."""
    silent: list[str]
    """Stations that were taken for silent."""


class Station:
    """One station. `taken` counts its readings of each pollutant."""

    def __init__(self, name: str, district: District, air: Air) -> None:
        self.name, self.district, self.air = name, district, air
        self.taken: Counter[str] = Counter()
        self.known = False
        """It has reported that it is there."""
        self.silent = False
        """Its power has failed."""

    async def work(self, program: Program, at: Address, ready: asyncio.Event, fails_after: float) -> None:
        """Report until the curtain, or until the power fails, `fails_after` seconds from the beginning."""
        topic = f"air/{self.district.name}/{self.name}"
        try:
            async with connected(self.name, at, Will(f"{topic}/status", SILENT, 1, True)) as client:
                await client.publish(f"{topic}/status", REPORTING, 1, True)
                self.known = True
                ready.set()
                await self._report_until(program, client, topic, fails_after)
        except MqttError:
            if not self.silent:
                raise

    async def _report_until(self, program: Program, client: Client, topic: str, fails_after: float) -> None:
        await program.beginning()
        for number in count(1):
            if await program.ended_after(number * HOUR * STEP / 60 - program.elapsed):
                return
            if program.elapsed >= fails_after:
                self.silent = True
                pull_the_plug(client)
                return
            await self._report(client, topic, number * STEP)

    async def _report(self, client: Client, topic: str, minute: int) -> None:
        for pollutant in POLLUTANTS:
            self.taken[pollutant] += 1
            reading = Reading(minute, self.air.reading(self.name, pollutant, minute))
            await publish(client, f"{topic}/{pollutant}", reading, QOS[pollutant])


class Service:
    """A district's service: sums its stations up, each hour of the city's time."""

    def __init__(self, district: District) -> None:
        self.district = district
        self.hour = 0
        """The last one that was summed up."""
        self._series = {(station, each): Series() for station in district.stations for each in POLLUTANTS}
        self._silent: set[str] = set()

    async def work(self, at: Address, ready: asyncio.Event) -> None:
        """Listen and sum up until cancelled."""
        place = f"air/{self.district.name}"
        async with connected(f"service-{self.district.name}", at) as client:
            await client.subscribe([(f"{place}/+/{each}", 1) for each in (*POLLUTANTS, "status")])
            ready.set()
            async for message in client.messages:
                _, _, station, what = message.topic.value.split("/")
                if what == "status":
                    (self._silent.add if body(message) == SILENT.encode() else self._silent.discard)(station)
                else:
                    taken = read(message, Reading)
                    self.reading(station, what, taken.minute, taken.value)
                while self.complete(self.hour + 1):
                    self.hour += 1
                    await publish(client, f"{place}/index", self.aggregate(self.hour), 1, retain=True)

    def reading(self, station: str, pollutant: str, minute: int, value: float) -> None:
        """A reading has come."""
        self._series[station, pollutant].add(minute, value)

    def complete(self, hour: int) -> bool:
        """Every station that is not silent has reported up to the hour's end."""
        talking = [series for (station, _), series in self._series.items() if station not in self._silent]
        return bool(talking) and all(series.latest >= 60 * hour for series in talking)

    def aggregate(self, hour: int) -> Aggregate:
        """The district's hour."""
        means: dict[str, float | None] = {}
        counts: dict[str, dict[str, int]] = {station: {} for station in self.district.stations}
        for pollutant in POLLUTANTS:
            hours, found = HOURS[pollutant], []
            for station in self.district.stations:
                window = self._series[station, pollutant].window(hours, hour)
                counts[station][pollutant] = len(window)
                found.append(mean(window, hours, hour))
            means[pollutant] = district_mean(found)
        return Aggregate(self.district.name, hour, index(means), means, counts, sorted(self._silent))


class CityHall:
    """The city's map, kept by a program that is a broker of the mesh itself (`saps.Broker`)."""

    def __init__(self) -> None:
        self.hours: dict[str, list[Aggregate]] = {}
        """What the districts have said, in the order in which it came."""
        self.status: dict[str, str] = {}
        """Of each station, the last word."""

    async def follow_districts(self, broker: saps.Broker, ready: asyncio.Event) -> None:
        """Take the districts' hours until cancelled."""
        async with broker.subscribe("air/+/index", qos=1) as messages:
            ready.set()
            async for message in messages:
                hour = msgspec.json.decode(message.payload, type=Aggregate)
                self.hours.setdefault(hour.district, []).append(hour)

    async def follow_stations(self, broker: saps.Broker, on_silence: Callable[[str], None]) -> None:
        """Take what is known of the stations, and what changes, until cancelled. Who asks late learns it, too."""
        async with broker.subscribe("air/+/+/status", qos=1) as messages:
            async for message in messages:
                station, word = message.topic.split("/")[2], message.payload.decode()
                if word == SILENT and self.status.get(station) != SILENT:
                    on_silence(station)
                self.status[station] = word

    def level(self, district: str) -> Level | None:
        """Of the last hour."""
        hours = self.hours.get(district)
        return Level(hours[-1].level) if hours and hours[-1].level else None
