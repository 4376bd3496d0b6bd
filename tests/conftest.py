"""What every test shares: property-test profiles, printed seeds, and tiers that say why they cannot run.

`HYPOTHESIS_PROFILE=ci` (the default) draws the same examples in every run, so that a failure is the change's; `dev`
draws fresh ones, `thorough` ten times as many, and `soak` forty times: with them one goes looking for what nobody has
seen yet. Tests marked `soak` run with the last alone.
`TEST_SEED` fixes the seed of the fixture `seed`.

What runs within the tests' own processes is Python, for the tests put things in the place of others; the programs that
they start run compiled modules if there are any (`saps.runtime.compiled`). With PURE_SAPS=0 the tests' own processes
do, too.
"""

from __future__ import annotations

import gc
import os
import random
import signal
from collections.abc import Callable, Generator, Iterator
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from benchmarks import postgres as server
from saps.runtime import compiled

if os.environ.get(compiled.ASKED_FOR) != "0":
    compiled.use_sources()

_SEED = pytest.StashKey[int]()

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True, max_examples=60)
settings.register_profile("dev", deadline=None, print_blob=True, max_examples=60)
settings.register_profile(
    "thorough", deadline=None, print_blob=True, max_examples=600, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "soak", deadline=None, print_blob=True, max_examples=2400, suppress_health_check=[HealthCheck.too_slow]
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
settings.load_profile(PROFILE)


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun by a shell in its background
    # Programs that the tests begin would ignore Ctrl-C, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--mesh 3``: the MQTT tests' clients are dealt to so many brokers in turn."""
    parser.addoption(
        "--mesh", type=int, default=1, metavar="N", help="deal the MQTT tests' clients to N brokers in turn"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--mesh") > 1:
        from tests.frontend.mqtt.bench import Bench

        Bench.brokers = config.getoption("--mesh")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the tests of a module that starts processes on one xdist worker: they share its mesh or lab; and those of
    the planners, whose machine code is compiled once if there is none yet. Those that take a whole processor are in one
    group, and say so. First, as pytest-xdist reads the groups in this hook.

    Not under pytest 9.2, where pytest-xdist 3.8 sees no groups: pyproject.toml keeps to 9.1 until it does."""
    if PROFILE != "soak":
        _keep(config, items, lambda item: item.get_closest_marker("soak") is None)
    if config.getoption("--mesh") > 1:  # what has no broker to deal clients to would only run a second time
        _keep(config, items, lambda item: _on_bench(item.module))
    for item in items:
        if config.getoption("--mesh") > 1 and (mark := item.get_closest_marker("one_broker")) is not None:
            item.add_marker(pytest.mark.skip(f"of one broker: {mark.args[0]}"))
        if item.path.parent.name == "planner":
            item.add_marker(pytest.mark.xdist_group("planner"))
        elif item.get_closest_marker("xdist_group") is None and any(
            item.get_closest_marker(mark) for mark in ("network", "chaos", "spark", "interop")
        ):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    if hasattr(config, "workerinput"):  # of pytest-xdist, which gives them out in this order
        items[:] = _mixed(items)


LONGEST = ("spark", "processes", "planner", "test_smart_city_run", "test_web_pages", "test_start", "test_fault_suite")
"""Groups that take more than a minute: they begin first."""


def _mixed(items: list[pytest.Item]) -> list[pytest.Item]:
    """Groups among the tests without one: a group mostly waits for its programs, the others take a processor each. The
    last fifth of those others comes last, so that all processes end together."""
    groups: dict[str, list[pytest.Item]] = {}
    alone: list[pytest.Item] = []
    for item in items:
        mark = item.get_closest_marker("xdist_group")
        (alone if mark is None else groups.setdefault(mark.args[0], [])).append(item)
    names = sorted(groups, key=lambda name: (LONGEST.index(name) if name in LONGEST else len(LONGEST), name))
    share = len(alone) * 4 // 5 // max(1, len(groups))
    mixed: list[pytest.Item] = []
    for number, name in enumerate(names):
        mixed += groups[name] + alone[number * share : (number + 1) * share]
    return mixed + alone[len(names) * share :]


def pytest_collection_finish() -> None:
    """What six thousand tests and their imports are made of stays: the collector need not look at it in each test."""
    gc.collect()
    gc.freeze()


def _keep(config: pytest.Config, items: list[pytest.Item], wanted: Callable[[Any], bool]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if not wanted(item)])
    items[:] = filter(wanted, items)


def _on_bench(module: ModuleType) -> bool:
    """It has clients on `Bench` or on the servers of `peers`."""
    places = {f"tests.frontend.mqtt.{name}" for name in ("bench", "peers")}
    return any(getattr(value, "__module__", "") in places for value in vars(module).values())


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed for this test: the one in `TEST_SEED`, else a fresh one; printed with a failure."""
    fixed = os.environ.get("TEST_SEED")
    value = int(fixed) if fixed else random.SystemRandom().getrandbits(32)
    request.node.stash[_SEED] = value
    return value


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the test's seed to the report of a failure."""
    report = yield
    if report.failed and _SEED in item.stash:
        report.sections.append(("seed", f"TEST_SEED={item.stash[_SEED]} repeats this run"))
    return report


@pytest.fixture(scope="session")
def postgres() -> Iterator[server.PostgresServer]:
    """A PostgreSQL server of this process."""
    if server.programs() is None:
        pytest.skip("PostgreSQL is not installed (scripts/setup_debian.sh)")
    with server.PostgresServer(fsync=False) as running:
        yield running
