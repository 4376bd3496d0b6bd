"""A controller whose planner sees all topics: their trees keep apart, and packets arrive whatever fails."""

from __future__ import annotations

import subprocess
import sys

import pytest

from saps.config import SettingError
from saps.ofm.controller.controller import Controller
from saps.ofm.controller.driver.settings import PROGRAM
from saps.ofm.controller.program import planners
from saps.ofm.network.topology import Port, Topology
from saps.ofm.network.traffic import Traffic
from saps.ofm.network.traffic_files_io import TrafficFiles
from saps.ofm.northbound.schema import Status
from saps.ofm.planner.fitted import CHOICES, NetworkPlanner
from saps.ofm.trees.tree import SharedTree, Tree, UnreachableError
from tests.ofm.controller.worlds import World
from tests.ofm.networks import Network, broker_at

pytestmark = pytest.mark.slow


class BalancedWorld(World):
    """A controller that balances."""

    def controller(self) -> Controller:
        self.planner = NetworkPlanner("balanced")
        return Controller(self.rules, self.planner)


def square() -> Network:
    """Four switches in a ring, a broker at each."""
    topology = Topology()
    for dpid in range(1, 5):
        topology.switch_up(dpid, [1, 2, 9])
    for dpid in range(1, 5):
        topology.link_up(Port(dpid, 1), Port(dpid % 4 + 1, 2))
    brokers = [broker_at(dpid, 5000) for dpid in range(1, 5)]
    for dpid, broker in enumerate(brokers, start=1):
        topology.attach(broker, dpid, 9)
    return Network(topology, brokers)


def test_trees_keep_apart_and_use_what_becomes_free() -> None:
    world = BalancedWorld(square())
    ends = [world.network.brokers[0], world.network.brokers[2]]
    world.appear()
    world.settle()
    for topic in "ab":
        world.intent(topic, ends)
        world.run()
    assert {state.status for state in world.told.values()} == {Status.CONSTRUCTED}
    assert world.links_of("a").isdisjoint(world.links_of("b"))
    world.check_truth()
    gone = world.links_of("a")
    world.forget("a")
    world.run()
    world.intent("c", ends)
    world.run()
    assert world.links_of("c") == gone
    world.check_truth()


def test_a_failed_link_is_walked_around() -> None:
    world = BalancedWorld(square())
    world.appear()
    world.settle()
    world.intent("a", world.network.brokers)
    world.run()
    world.set_link(min(world.links_of("a")), up=False)
    world.run()
    assert world.told["a"].status is Status.CONSTRUCTED
    world.check_truth()
    assert all(world.planner.load(link, but="b") == 1 for link in world.links_of("a"))


def test_a_planner_that_finds_no_tree_has_the_topic_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Tree:
        raise UnreachableError(world.network.brokers)

    world = BalancedWorld(square())
    world.appear()
    world.settle()
    planner = world.planner.for_topic("a")
    monkeypatch.setattr(type(planner), "plan", fail)
    world.intent("a", world.network.brokers)
    assert (world.told["a"].status, world.told["a"].reason) == (
        Status.REFUSED,
        str(UnreachableError(world.network.brokers)),
    )


@pytest.mark.parametrize("choice", CHOICES)
def test_the_planner_is_a_setting(choice: str) -> None:
    found = planners(PROGRAM.load({"controller.planner": choice}).settings, TrafficFiles({}, {}, {}), Traffic())
    if choice == "steiner":
        assert isinstance(found, SharedTree)
    else:
        assert isinstance(found, NetworkPlanner)
        assert found.choice == choice


def test_an_unknown_planner_is_refused() -> None:
    with pytest.raises(SettingError, match="planner"):
        PROGRAM.load({"controller.planner": "best"})


WARM = """
import os
import sys
import numba.core.dispatcher
from saps.ofm.controller.driver.settings import PROGRAM
from saps.ofm.controller.program import planners
from saps.ofm.network.topology import Port
from saps.ofm.network.traffic import Traffic
from saps.ofm.network.traffic_files_io import TrafficFiles
from tests.ofm.planner.test_planner_controller import square

def machine_code():
    return {
        (module.__name__, name, signature)
        for module in list(sys.modules.values())
        for name, kernel in vars(module).items()
        if isinstance(kernel, numba.core.dispatcher.Dispatcher)
        for signature in kernel.signatures
    }

def compiled_late(choice):
    planner = planners(PROGRAM.load({"controller.planner": choice}).settings, TrafficFiles({}, {}, {}), Traffic())
    warm = machine_code()
    network = square()
    one = planner.for_topic("t")
    tree = one.plan(network.topology, network.brokers[:3])
    planner.adopted("t", tree)
    network.topology.link_down(*min(tree.links))
    tree = one.mend(network.topology, tree)
    planner.adopted("t", one.join(network.topology, tree, network.brokers[3]))
    planner.for_topic("u").plan(network.topology, network.brokers[1:])
    planner.better("t", network.topology)
    print(choice, len(warm), sorted(machine_code() - warm), flush=True)

for choice in sys.argv[1:]:
    child = os.fork()  # has imported all, and loaded nothing
    if not child:
        compiled_late(choice)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.slow
def test_the_machine_code_is_loaded_before_the_controller_is_ready() -> None:
    """Else the first link failure waits for it: seconds."""
    pytest.importorskip("numba")
    choices = [choice for choice in CHOICES if choice != "steiner"]
    done = subprocess.run(
        [sys.executable, "-c", WARM, *choices], capture_output=True, text=True, timeout=250, check=True
    )
    found = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert [choice for choice, _, _ in found] == choices, done.stderr
    for choice, count, missing in found:
        assert missing == "[]", choice
        assert int(count) > 3, choice
