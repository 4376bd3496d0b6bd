"""Two controllers and their switches, in any order of what can happen: the machine that says who is master."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saps.ofm.controller.leader_election import (
    LONGEST,
    Claim,
    Event,
    Granted,
    Heard,
    Leadership,
    Outbid,
    Passed,
    Post,
    Retire,
    Serve,
)
from saps.ofm.controller.saved import Replica, Saver
from saps.ofm.network.topology import Link, Port, Topology
from saps.ofm.openflow.driver import roles
from saps.ofm.openflow.driver import switch as device
from saps.ofm.openflow.encode import encode
from saps.ofm.openflow.events import Ready
from saps.ofm.openflow.requests import AskRole
from saps.ofm.openflow.values import Features, Role, RoleState
from tests.ofm.controller.worlds import World
from tests.ofm.networks import Network, broker_at

TAKEOVER = 2.0


@dataclass
class Switch:
    """What the specification says of roles (OpenFlow 1.3.5, 6.3.6)."""

    generation: int = 0
    master: int | None = None

    def claim(self, who: int, generation: int) -> bool:
        if generation < self.generation:
            return False
        self.generation, self.master = generation, who
        return True


@dataclass
class Controller:
    """One of the two: its machine, and what it has been told to do and has not done."""

    leadership: Leadership
    alive: bool = True
    serving: bool = False
    claims: list[int] = field(default_factory=list)


class Pair:
    """Two controllers, the switches that both reach, and what is between them."""

    def __init__(self) -> None:
        self.both = [Controller(Leadership(f"run{number}", number + 1, TAKEOVER)) for number in range(2)]
        self.switches = [Switch(), Switch(), Switch()]
        self.reach = [set(range(3)), set(range(3))]
        self.apart = False

    def tell(self, who: int, event: Event) -> None:
        one = self.both[who]
        for effect in one.leadership.handle(event):
            match effect:
                case Claim(generation):
                    one.claims.append(generation)
                case Serve():
                    one.serving = True
                case Retire():
                    one.serving = False
        assert one.serving == (one.leadership.post is Post.MASTER)

    def claim(self, who: int) -> None:
        """It asks the switches that it reaches, one after the other."""
        one = self.both[who]
        while one.claims:
            generation = one.claims.pop(0)
            later = [
                self.switches[number].generation
                for number in sorted(self.reach[who])
                if not self.switches[number].claim(who, generation)
            ]
            self.tell(who, Outbid(max(later)) if later else Granted(generation))

    def check(self, who: int) -> None:
        """A master looks at its switches."""
        if self.both[who].serving:
            found = [self.switches[number].generation for number in self.reach[who]]
            self.tell(who, Outbid(max(found, default=0)))

    def hear(self, who: int) -> None:
        other = self.both[1 - who]
        if other.alive and not self.apart:
            self.tell(who, Heard(other.leadership.election()))

    def pass_(self, who: int, seconds: float) -> None:
        self.tell(who, Passed(seconds, 2 * len(self.reach[who]) >= len(self.switches), 0))

    def live(self, seconds: float) -> None:
        """All goes well for a while."""
        for _ in range(round(4 * seconds)):
            for who in range(2):
                if self.both[who].alive:
                    self.pass_(who, 0.25)
                    self.hear(who)
                    self.claim(who)
                    self.check(who)

    @property
    def masters(self) -> list[int]:
        return [who for who in range(2) if self.both[who].alive and self.both[who].serving]


STEPS = st.one_of(
    st.tuples(st.sampled_from(["hear", "claim", "check", "stop", "go", "apart", "together"]), st.integers(0, 1)),
    st.tuples(st.just("pass"), st.integers(0, 1), st.floats(0, 5)),
    st.tuples(st.just("reach"), st.integers(0, 1), st.sets(st.integers(0, 2))),
)


def step(pair: Pair, what: str, who: int, *more: object) -> None:
    one = pair.both[who]
    match what, more:
        case "stop", _:
            one.alive = False  # as by SIGSTOP: it keeps what it knows, and does not know how long it was
        case "go", _:
            one.alive = True
        case "apart" | "together", _:
            pair.apart = what == "apart"
        case "reach", (set() as reached,):
            pair.reach[who] = reached
        case "pass", (float() as seconds,) if one.alive:
            pair.pass_(who, seconds)
        case _ if one.alive and what in ("hear", "claim", "check"):
            getattr(pair, what)(who)


@settings(max_examples=150)
@given(st.lists(STEPS, max_size=60))
def test_whatever_happened_in_the_end_one_is_master_of_all_switches_and_the_other_follows(
    steps: list[tuple[str, int]],
) -> None:
    pair = Pair()
    claimed: dict[int, int] = {}
    for each in steps:
        step(pair, *each)
        for switch in pair.switches:
            if switch.master is not None:
                assert claimed.setdefault(switch.generation, switch.master) == switch.master, "no generation is shared"
    pair.apart, pair.reach = False, [set(range(3)), set(range(3))]
    for one in pair.both:
        one.alive = True
    pair.live(2 * LONGEST)
    [master] = pair.masters
    # A switch that came back while nobody claimed is claimed by the next look at the roles, which is the driver's.
    generation = pair.both[master].leadership.generation
    assert all(switch.generation <= generation for switch in pair.switches)
    assert pair.both[1 - master].leadership.post is Post.STANDBY
    before = generation
    pair.live(10)
    assert (pair.masters, pair.both[master].leadership.generation) == ([master], before), (
        "nobody disturbs a good master"
    )


def test_a_standby_takes_over_after_the_time_stated_and_the_old_master_follows_it() -> None:
    pair = Pair()
    pair.live(1)
    [first] = pair.masters
    pair.both[first].alive = False
    pair.live(TAKEOVER - 0.25)
    assert pair.masters == []
    pair.live(0.25)
    assert pair.masters == [1 - first]
    pair.both[first].alive = True
    assert pair.both[first].serving, "it does not know yet"
    pair.check(first)
    assert pair.masters == [1 - first]
    assert not pair.switches[0].claim(first, pair.both[first].leadership.generation), "and the switches do not obey it"


def test_a_master_that_has_lost_its_switches_but_not_its_peer_is_replaced() -> None:
    pair = Pair()
    pair.live(1)
    [first] = pair.masters
    pair.reach[first] = set()
    pair.live(TAKEOVER + 0.5)
    assert pair.masters == [1 - first]


def test_who_was_held_up_itself_does_not_take_that_for_the_peer_s_silence() -> None:
    leadership = Leadership("a", 1, TAKEOVER)
    assert leadership.handle(Passed(3600, True, 0)) == []
    assert leadership.handle(Passed(3600, True, 0)) == [Claim((1 << 32) + 1)]


def test_two_that_hear_only_the_switches_do_not_depose_each_other_for_ever() -> None:
    pair = Pair()
    pair.apart = True
    pair.live(600)
    elections = pair.switches[0].generation >> 32
    pair.live(600)
    assert (pair.switches[0].generation >> 32) - elections <= 600 / LONGEST
    assert len(pair.masters) == 1


@settings(max_examples=30)
@given(st.data())
def test_a_takeover_in_the_midst_of_changes_disturbs_no_stable_member(data: st.DataObject) -> None:
    """The standby's state is some steps old; what it has not heard of is wished for again, as OFGate does."""
    topology = Topology()
    for dpid in range(1, 6):
        topology.switch_up(dpid)
    for dpid in range(1, 5):
        topology.link_up(*Link.of(Port(dpid, 2), Port(dpid + 1, 1)))
    topology.link_up(*Link.of(Port(1, 3), Port(4, 3)))
    brokers = [broker_at(number, 6000) for number in range(5)]
    for broker, dpid in zip(brokers, range(1, 6), strict=True):
        topology.attach(broker, dpid, 10)
    world = World(Network(topology, brokers))
    world.appear()
    world.settle()
    world.run()
    stable = brokers[:2]
    world.intent("a", stable)
    world.run()
    wanted = {"a": frozenset(stable)}
    replica = Replica.of(Saver(world.machine).save())
    members = st.sets(st.sampled_from(brokers[2:]))
    for _ in range(data.draw(st.integers(1, 4))):
        topic = data.draw(st.sampled_from(["a", "b"]))
        wanted[topic] = frozenset(data.draw(members)) | frozenset(stable)
        world.intent(topic, wanted[topic])
        if data.draw(st.booleans()):
            replica = Replica.of(Saver(world.machine).save())
        for _ in range(data.draw(st.integers(0, 12))):
            if world.todo:
                world.step(data.draw(st.sampled_from(sorted(world.todo))))
    address = world.machine.records["a"].address

    world.start(replica.data)
    world.appear()
    for topic, intended in wanted.items():
        world.intent(topic, intended)
    assert world.machine.records["a"].address == address
    while world.todo:
        world.step(data.draw(st.sampled_from(sorted(world.todo))))
        record = world.machine.records["a"]
        if record.plan is not None:
            for sender in stable:
                came = world.delivered("a", sender)
                assert world.expected(record, sender, stable) <= came, "who stays gets each packet once"
    world.settle()
    world.run()
    for topic, intended in wanted.items():
        assert set(world.machine.state(topic).brokers) == intended
    world.check_truth()
    for dpid, switch in world.fabric.switches.items():
        held = world.machine.network.baseline.with_(world.machine.ledger.desired(dpid))
        assert switch.tables.flows.keys() >= held.flows.keys()
        assert switch.tables.groups == held.groups


@pytest.mark.parametrize("told", [(1 << 63) - 1, (1 << 64) - 2, (1 << 64) - 1])
async def test_no_generation_that_a_switch_tells_stops_the_election(told: int) -> None:
    claims = list[int]()

    class Answers:
        def ask(self, question: AskRole) -> asyncio.Future[RoleState]:
            encode(question, 1)
            claims.append(question.generation)
            answer = asyncio.get_running_loop().create_future()
            answer.set_result(RoleState(Role.EQUAL, told))
            return answer

    switch = device.Switch(cast(device.Channel, Answers()), Ready(Features(1, 0, 254), ("a maker", "a model"), ()))
    seen = await roles.look(switch)
    leadership = Leadership("a", 1, TAKEOVER)
    leadership.handle(Outbid(seen.generation if seen is not None else 0))
    leadership.handle(Passed(1, True, 0))
    [claim] = leadership.handle(Passed(1, True, 0))
    assert isinstance(claim, Claim)
    assert await roles.claim_all([switch], claim.generation) == 0
    assert (claims[-1] - told) % (1 << 64) < 1 << 63, "the switch takes it for a later one"
