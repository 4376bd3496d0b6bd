"""Something dies while a topic is on OFM: how long nothing arrives, what goes by ALM meanwhile, what is lost."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import msgspec

from benchmarks.switchover.city import TOPICS, City
from benchmarks.switchover.clients import Publisher
from benchmarks.switchover.load import Load
from benchmarks.switchover.programs import TIMEOUT
from benchmarks.switchover.record import Tally
from lab import Link
from saps.ofm.flows.plan import COOKIE

TREE = "tree:4x2"
SPARE = """
links = [["core", "s1"], ["core", "s2"], ["core", "s3"], ["core", "s4"], ["s1", "s2"], ["s2", "s3"], ["s2", "s4"]]
[switches]
core = {}
s1 = { cluster = "c1", hosts = 2 }
s2 = { cluster = "c2", hosts = 2 }
s3 = { cluster = "c3", hosts = 2 }
s4 = { cluster = "c4", hosts = 2 }
"""
"""`TREE`, and links from one edge switch to the others, which `NORMAL` never takes: OFM trees do, because they are
shorter, so that one of them can fail without ALM."""
Undo = Callable[[City], None]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do."""

    fault: str
    """A key of `FAULTS`."""
    mode: str
    rate: float = 500.0
    subscribers: int = 24
    """On all brokers but the publisher's."""
    qos: int = 1
    hold: float = 4.0
    """Seconds of traffic before the fault, after it, and after its repair."""


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. Times in seconds; those without further words are from the fault to the end."""

    plan: Plan
    published: int
    tally: Tally
    gap_before: float
    """Longest time in which a subscriber got nothing before the fault: what the machine does by itself."""
    gap: float
    """The same from the fault on."""
    oldest: float
    """Longest that a message was under way."""
    by_alm: int
    """Publications that did not leave along the tree."""
    repeated: int
    """Copies sent again by ALM because they may not have arrived by OFM."""
    back: float
    """From the fault to the last moment at which publications left by ALM; 0: they never did."""


class Fault(NamedTuple):
    """Something that dies. `strike` brings it about; what it gives repairs it, after a while."""

    what: str
    strike: Callable[[City], Undo]
    topology: str = TREE
    same_tree: bool = True
    """After the repair the switches are to hold the same entries as before."""


def run(city: City, plan: Plan) -> Broken:
    """Carry it out. Two OFGates must be there. Raises `ProgramError` if the tree is not built again, TimeoutError if
    it is not used again."""
    topic, source = TOPICS[plan.mode], city.hosts[0]
    with Load(city.lab.host, topic) as load:
        for number in range(plan.subscribers):
            load.join(f"s{number}", city.hosts[1 + number % (len(city.hosts) - 1)], plan.qos, stable=True)
        publisher = load.publish(source, plan.rate, plan.qos)
        city.construct(topic)
        watch = Watch(city, load, source, publisher)
        watch.until_served(topic)
        load.watch_gaps()
        watch.hold(plan.hold)
        gap_before = load.gap(publisher)[0]
        before = entries(city)
        watch.begin()
        undo = FAULTS[plan.fault].strike(city)
        watch.hold(plan.hold)
        undo(city)
        watch.hold(plan.hold)
        if FAULTS[plan.fault].same_tree:
            city.until(lambda: entries(city) == before, "the switches hold the tree again")
        watch.until_served(topic)
        gap, oldest = load.gap(publisher)[0], load.oldest()
        load.settle()
        result = Broken(
            plan=plan,
            published=publisher.sent,
            tally=load.tally(),
            gap_before=gap_before,
            gap=gap,
            oldest=max(oldest, load.oldest()),
            by_alm=watch.by_alm,
            repeated=watch.repeated,
            back=watch.back,
        )
    city.release(topic)
    return result


class _Sample(NamedTuple):
    at: float
    publications: int
    carried: int
    repeated: int

    def only_tree(self, before: _Sample) -> bool:
        """All publications since then left along the tree."""
        return self.publications - before.publications == self.carried - before.carried


class Watch:
    """What the publisher's broker counts, ten times a second."""

    EVERY = 0.1

    def __init__(self, city: City, load: Load, host: str, publisher: Publisher) -> None:
        self._city, self._load, self._host, self._publisher = city, load, host, publisher
        self._samples: list[_Sample] = []

    def begin(self) -> None:
        """The fault comes now."""
        self._samples.clear()
        self._sample()
        self._load.watch_gaps()

    def hold(self, seconds: float) -> None:
        """Let the traffic flow."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._next()

    def until_served(self, topic: str) -> None:
        """Return when OFGate says that the tree is there, and all publications leave by it and arrive."""
        timeout, steady = time.monotonic() + TIMEOUT, 0
        while steady < 5:
            before = self._next()
            good = before is not None and self._samples[-1].only_tree(before) and self._load.flowing(self._publisher)
            steady = steady + 1 if good and self._city.topic(topic)["status"] == "constructed" else 0
            if time.monotonic() > timeout:
                raise TimeoutError(f"after {TIMEOUT:.0f} s {topic} is {self._city.topic(topic)}, {self._samples[-3:]}")

    @property
    def by_alm(self) -> int:
        first, last = self._samples[0], self._samples[-1]
        return (last.publications - first.publications) - (last.carried - first.carried)

    @property
    def repeated(self) -> int:
        return self._samples[-1].repeated - self._samples[0].repeated

    @property
    def back(self) -> float:
        by_alm = [after.at for before, after in pairwise(self._samples) if not after.only_tree(before)]
        return max(by_alm) - self._samples[0].at if by_alm else 0.0

    def _next(self) -> _Sample | None:
        """One sample more; gives the one before, if there is one, and the broker has answered."""
        self._load.check()
        time.sleep(self.EVERY)
        before = self._samples[-1] if self._samples else None
        return before if self._sample() else None

    def _sample(self) -> bool:
        counts = self._city.counts(self._host)
        if counts:
            sample = _Sample(time.monotonic(), counts["publications"], counts["carried"], counts["repeated"])
            self._samples.append(sample)
        return bool(counts)


# --- what can die -------------------------------------------------------------------------------------------------


def _nothing(_city: City) -> None:
    """It repairs itself."""


def _kill_controller(city: City) -> Undo:
    assert city.controller is not None
    city.controller.kill()
    return City.start_controller


def _kill_gate(city: City) -> Undo:
    host = next(host for host, gate in city.gates.items() if gate is city.leader)
    city.gates.pop(host).kill()

    def start(city: City) -> None:
        city.start_gate(host)
        city.gates[host].ready()

    return start


def _restart(switch: str) -> Callable[[City], Undo]:
    def strike(city: City) -> Undo:
        city.lab.restart_switch(switch)
        return _nothing

    return strike


def _wipe(city: City) -> Undo:
    for table in ("flows", "groups"):
        city.lab.switches.run(["ovs-ofctl", "-O", "OpenFlow13", f"del-{table}", "core"])
    city.lab.switches.run(["ovs-ofctl", "-O", "OpenFlow13", "add-flow", "core", "priority=0,actions=NORMAL"])
    return _nothing


def _cut(city: City) -> Undo:
    link = next(link for link in tree_links(city) if link.spare)
    city.lab.set_link(link.a, link.b, up=False)
    return lambda city: city.lab.set_link(link.a, link.b, up=True)


def _printed(city: City, command: str, switch: str, *options: str) -> list[str]:
    words = ["ovs-ofctl", "-O", "OpenFlow13", *options, command, switch]
    return str(city.lab.switches.run(words, capture_output=True, text=True).stdout).splitlines()


def entries(city: City) -> dict[str, list[str]]:
    """The flow entries and groups of the trees, by switch, without what changes with the traffic."""
    mark = f"cookie={COOKIE >> 32:#x}"
    return {
        switch.name: sorted(
            [flow for line in _printed(city, "dump-flows", switch.name, "--no-stats") if mark in (flow := line.strip())]
            + [line.strip() for line in _printed(city, "dump-groups", switch.name) if "group_id=" in line]
        )
        for switch in city.lab.topology.switches
    }


def tree_links(city: City) -> list[Link]:
    """The links between switches that the groups of the lab's switches send copies along."""
    used = set()
    for switch in city.lab.topology.switches:
        printed = "\n".join(_printed(city, "dump-groups", switch.name, "--no-names"))
        used |= {(switch.name, int(port)) for port in re.findall(r"actions=output:(\d+)", printed)}
    return [link for link in city.lab.topology.links if {(link.a, link.a_port), (link.b, link.b_port)} <= used]


FAULTS = {
    "controller": Fault("`kill -9` of the controller, and a new one after the hold", _kill_controller),
    "ofgate": Fault("`kill -9` of the leading OFGate, and a new one after the hold", _kill_gate),
    "switch": Fault("the middle switch restarts, with empty tables", _restart("core")),
    "edge": Fault("the publisher's edge switch restarts, with empty tables", _restart("s1")),
    "tables": Fault("the middle switch loses its tables and stays connected", _wipe),
    "link": Fault("a link of the tree goes down, and up after the hold", _cut, SPARE, same_tree=False),
}
