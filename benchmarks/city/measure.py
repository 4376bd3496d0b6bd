"""One sample: a fresh broker, the generator beside it, and what it counted."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
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

PATIENCE = 120.0
"""Seconds beyond those measured until the generator is stopped."""


class GeneratorError(Exception):
    """The generator gave up; the message says why."""


class Pace(NamedTuple):
    """How long and where."""

    warm: float
    seconds: float
    pin: bool


def processors(pin: bool) -> tuple[set[int] | None, set[int] | None]:
    """Those of the broker and those of the generator; None is anywhere."""
    available = sorted(os.sched_getaffinity(0))
    if not pin or len(available) < 2:
        return None, None
    return {available[0]}, {available[1]}


def allow_many_files() -> None:
    """Raise the limit of open files as far as it goes, for the processes started from now on."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def sample(row: Row, broker: Broker, number: int, pace: Pace, rate: float) -> Sample:
    """Measure it in round `number`. `rate`: messages a second, 0 for a closed loop."""
    ours, theirs = processors(pace.pin)
    result, fault = None, ""
    if broker.properties is not None:
        row = row._replace(properties=broker.properties)
    version = broker.spoken(row)
    with contextlib.ExitStack() as stack:
        try:
            place = stack.enter_context(Place(ours))
            site = broker.launch(place, row, version)
            pids = family([pid for pid in place.pids if pid not in site.uncounted])
            ports, times = (site.publish_port, site.subscribe_port), (pace.warm, pace.seconds)
            orders = plan(row, *ports, pids, version, rate, *times, number + 1, broker.login)
            result = generate(orders, pace.warm + pace.seconds, theirs)
        except (StartError, SetupError, GeneratorError, InstallError, BuildError, OSError) as error:
            fault = str(error).splitlines()[0] if str(error) else type(error).__name__
    return Sample(row=row.name, peer=broker.name, round=number, result=result, fault=fault, rate=rate)


def generate(orders: str, seconds: float, cpus: set[int] | None) -> Result:
    """Run the generator on `cpus`. Raises GeneratorError, BuildError."""
    with pinned(cpus):
        process = subprocess.Popen(
            [str(program("generator"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    try:
        out, said = process.communicate(orders, timeout=seconds + PATIENCE)
    except subprocess.TimeoutExpired:
        raise GeneratorError(f"not done after {seconds + PATIENCE:.0f} s") from None
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise GeneratorError(said.strip() or f"the generator ended with status {process.returncode}")
    return msgspec.json.decode(out, type=Result)
