"""Measuring: scenarios in rounds, the peers taking turns in each, every measurement on a fresh broker."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from benchmarks.client import SetupError
from benchmarks.load import Load, Outcome
from benchmarks.peers import Peer
from benchmarks.probes import family
from benchmarks.processes import Place, StartError, pinned
from benchmarks.scenarios import Scenario
from saps.runtime.process import allow_many_files

P = TypeVar("P")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much to measure."""

    rounds: int = 5
    warm_up: float = 0.4
    """Seconds before each measurement."""
    measure: float = 1.0
    """Seconds of each measurement."""
    pin: bool = True
    """The broker or brokers on the first processor, the generator on the others."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of one round: an outcome, or why there is none."""

    scenario: str
    peer: str
    round: int
    outcome: Outcome | None = None
    fault: str = ""


class Processors(msgspec.Struct, frozen=True):
    """Who runs where; None is anywhere."""

    broker: set[int] | None
    generator: set[int] | None


def processors(pin: bool) -> Processors:
    """The first processor for brokers and the others for the generator; no pinning with a single one."""
    available = sorted(os.sched_getaffinity(0))
    if not pin or len(available) < 2:
        return Processors(None, None)
    return Processors({available[0]}, set(available[1:]))


def cells(scenarios: Sequence[Scenario], peers: Sequence[P], rounds: int) -> Iterator[tuple[Scenario, P, int]]:
    """All measurements in their order: A B C, then B C A, and so on."""
    for scenario in scenarios:
        for number in range(rounds):
            first = number % len(peers)
            for peer in (*peers[first:], *peers[:first]):
                yield scenario, peer, number


def run(
    plan: Plan,
    scenarios: Sequence[Scenario],
    peers: Sequence[Peer],
    progress: Callable[[str], None],
) -> list[Measurement]:
    """Measure everything. `progress` is told of each measurement before it begins."""
    allow_many_files()
    layout = processors(plan.pin)
    out: list[Measurement] = []
    for scenario, peer, number in cells(scenarios, peers, plan.rounds):
        progress(f"{scenario.name}  {peer.name}  round {number + 1}/{plan.rounds}")
        with pinned(layout.generator):
            out.append(measure(plan, scenario, peer, number, layout.broker))
    return out


def measure(plan: Plan, scenario: Scenario, peer: Peer, number: int, cpus: set[int] | None) -> Measurement:
    """One measurement, with the broker on these processors."""
    outcome, fault = None, ""
    with Place(cpus) as place:
        try:
            site = peer.launch(place, "throughput")
            outcome = generate(scenario.load(site, family(place.pids), plan.warm_up, plan.measure))
        except (StartError, SetupError, GeneratorError, OSError) as error:
            fault = str(error)
    return Measurement(scenario=scenario.name, peer=peer.name, round=number, outcome=outcome, fault=fault)


class GeneratorError(Exception):
    """The load generator gave up; the message is its reason."""


def generate(load: Load) -> Outcome:
    """What a load generator, in a process of its own, makes of `load`. Raises GeneratorError."""
    deadline = 60.0 + load.warm_up + load.measure + load.topics * load.subscribers / 100
    command = [sys.executable, "-m", "benchmarks.generator"]
    return msgspec.json.decode(answered(command, msgspec.json.encode(load), deadline), type=Outcome)


def answered(command: Sequence[str], orders: bytes, deadline: float) -> bytes:
    """What a generator, in a process of its own, answers to its orders within so many seconds. Raises
    GeneratorError."""
    generator = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with _ended(generator):
        try:
            out, said = generator.communicate(orders, deadline)
        except subprocess.TimeoutExpired:
            raise GeneratorError(f"no result after {deadline:.0f} s") from None
    if generator.returncode:
        lines = said.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise GeneratorError(lines[-1])
    return out


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
