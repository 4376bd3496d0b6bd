"""One sample: a fresh broker, the generator beside it, and what it counted."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import msgspec

from benchmarks.city.brokers import Broker
from benchmarks.city.build import BuildError, program
from benchmarks.city.install import InstallError
from benchmarks.city.kept import Result, Sample
from benchmarks.city.plan import plan
from benchmarks.city.rows import Row
from benchmarks.client import SetupError
from benchmarks.probes import family
from benchmarks.processes import Place, StartError, pinned
from benchmarks.runs import GeneratorError, answered, processors

TIMEOUT = 120.0
"""Seconds beyond those measured until the generator is stopped."""


class Pace(NamedTuple):
    """How long and where."""

    warm: float
    seconds: float
    pin: bool


def sample(row: Row, broker: Broker, number: int, pace: Pace, rate: float) -> Sample:
    """Measure it in round `number`. `rate`: messages a second, 0 for a closed loop."""
    layout = processors(pace.pin)
    result, fault = None, ""
    if broker.properties is not None:
        row = row._replace(properties=broker.properties)
    version = broker.spoken(row)
    with contextlib.ExitStack() as stack:
        try:
            place = stack.enter_context(Place(layout.broker))
            site = broker.launch(place, row, version)
            pids = family([pid for pid in place.pids if pid not in site.uncounted])
            ports, times = (site.publish_port, site.subscribe_port), (pace.warm, pace.seconds)
            orders = plan(row, *ports, pids, version, rate, *times, number + 1, broker.login, broker.idle)
            result = generate(orders, pace.warm + pace.seconds, layout.generator and {min(layout.generator)})
            if fault := site.fault(result):
                result = None
        except (StartError, SetupError, GeneratorError, InstallError, BuildError, OSError) as error:
            fault = str(error).splitlines()[0] if str(error) else type(error).__name__
    return Sample(row=row.name, peer=broker.name, round=number, result=result, fault=fault, rate=rate)


def generate(orders: str, seconds: float, cpus: set[int] | None) -> Result:
    """Run the generator on `cpus`. Raises GeneratorError, BuildError."""
    command = [str(program("generator"))]
    with pinned(cpus):
        return msgspec.json.decode(answered(command, orders.encode(), seconds + TIMEOUT), type=Result)
