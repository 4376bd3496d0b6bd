"""Topics move between ALM and OFM while they are live, on the simulator, with random schedules.

A seed that fails is to be kept. `make soak` draws fresh schedules, and many more.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from research.simulated_ofm import OfmFaults
from saps.agents.api import Answers
from saps.agents.either import leader_of
from saps.agents.ofgate import revocation
from saps.agents.switchover import Mode
from saps.ofm.datapath.settings import DatapathSettings
from saps.ofm.northbound.schema import OfmState, Status
from saps.overlay.frames.calls import Answer
from saps.overlay.frames.delivery import Nack
from tests.agents.switchovers import Scene, cuts, failures, losses, moves, partitions, rings
from tests.drawn import TIMES, kept, schedules

pytestmark = pytest.mark.simulation

MODES = [Mode.EITHER, Mode.BOTH, None]
SEEDS = st.integers(0, 2**32 - 1)
SCHEDULES = schedules(1)


@pytest.mark.parametrize("mode", MODES)
@SCHEDULES
@given(seed=SEEDS)
def test_moves_lose_double_and_disorder_nothing(mode: Mode | None, seed: int) -> None:
    """Every QoS; and no datagram ever goes to a tree that is not as its sender was told."""
    moves(seed, mode)


@pytest.mark.parametrize("mode", MODES)
@SCHEDULES
@given(seed=SEEDS)
def test_lost_datagrams_cost_no_message_with_qos_1_or_2(mode: Mode | None, seed: int) -> None:
    losses(seed, mode)


@pytest.mark.parametrize("mode", MODES)
@SCHEDULES
@given(seed=SEEDS)
def test_failures_of_switches_controller_and_ofgate_cost_no_message_with_qos_1_or_2(
    mode: Mode | None, seed: int
) -> None:
    failures(seed, mode)


@pytest.mark.parametrize("mode", MODES)
@SCHEDULES
@given(seed=SEEDS)
def test_after_a_partition_with_an_ofgate_on_each_side_all_is_as_if_there_had_been_one(
    mode: Mode | None, seed: int
) -> None:
    partitions(seed, mode)


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
@SCHEDULES
@given(seed=SEEDS)
def test_a_cut_of_brokers_and_trees_costs_no_message_with_qos_1_or_2(mode: Mode, seed: int) -> None:
    cuts(seed, mode)


@pytest.mark.parametrize(("mode", "seed"), kept((Mode.BOTH, 9), (Mode.EITHER, 14), quick=2))
def test_cuts_that_failed_once(mode: Mode, seed: int) -> None:
    """A broker that was back was told that it is owed nothing from before; then the next datagram did not wait for what
    came from the log, and all that came later counted as had."""
    cuts(seed, mode)


@pytest.mark.parametrize("seed", [35, *range(TIMES - 1)])
def test_brokers_that_hear_only_their_neighbours_lose_no_message_with_qos_1_or_2(seed: int) -> None:
    """35: a broker was told that it is owed nothing up to what was on its way to it by a tree."""
    rings(seed, None)


@pytest.mark.parametrize("seed", kept(20004, 30006, 30007, 3074121826, quick=2))
def test_partitions_that_failed_once(seed: int) -> None:
    """After the mesh was one again a tree was changed under its users."""
    partitions(seed, Mode.BOTH)


@pytest.mark.parametrize(
    ("mode", "seed"),
    kept(
        (Mode.EITHER, 2932746916),
        (Mode.BOTH, 701275457),
        (Mode.BOTH, 1730260233),
        (None, 26398),
        *((Mode.BOTH, seed) for seed in (2145261388, 4099813280, 26424)),
        (Mode.EITHER, 434486945),
        quick=5,
    ),
)
def test_moves_that_failed_once(mode: Mode | None, seed: int) -> None:
    """A sender was told late to seal with a key that those who had come since did not have; or they were told of the
    tree before they had it; a high-water mark came right after its publication, before that was owed. What followed a
    catch-up did not wait for QoS 0 that was still on its way to brokers that had missed nothing."""
    moves(seed, mode)


def steady(
    mode: Mode, *, brokers: int = 8, faults: OfmFaults | None = None, settings: DatapathSettings | None = None
) -> Scene:
    """b0 publishes a/b, b2 and all behind subscribe; the tree is there and in use."""
    scene = Scene(1, mode, faults or OfmFaults(), brokers=brokers, settings=settings)
    for broker in scene.brokers[2:]:
        scene.recorder.subscribe(broker, "a/b")
    scene.simulation.run(2)
    publish(scene, 1)
    scene.simulation.run(0.5)
    scene.ofm.agents["b0"].construct("a/b")
    publish(scene, 200)
    scene.simulation.run(3)
    return scene


def publish(scene: Scene, count: int, qos: int = 0) -> None:
    for _ in range(count):
        scene.recorder.publish(scene.brokers[0], "a/b", qos)
        scene.simulation.run(0.01)


def without_alm(scene: Scene, count: int, qos: int = 0, *, faulty: bool = False) -> int:
    """Publish: no message goes by ALM, and in the end all has arrived. Returns how many datagrams it took."""
    datagrams, messages = scene.ofm.sent, scene.simulation.counters.data
    publish(scene, count, qos)
    sent = scene.ofm.sent - datagrams
    assert scene.simulation.counters.data == messages
    scene.simulation.run(5)
    scene.recorder.judge(faulty=faulty)
    return sent


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_publication_by_ofm_is_one_datagram_and_no_message_by_alm(mode: Mode, qos: int) -> None:
    scene = steady(mode)
    assert without_alm(scene, 50, qos) == 50


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
def test_who_subscribes_after_the_construction_gets_into_the_tree(mode: Mode) -> None:
    """Soon, and also who comes back to a tree that it has left."""
    scene = steady(mode)
    scene.recorder.unsubscribe(scene.brokers[2], "a/b")
    scene.simulation.run(5)
    for broker in scene.brokers[1:3]:
        scene.recorder.subscribe(broker, "a/b")
    publish(scene, 300)
    assert without_alm(scene, 50, 1) == 50


def test_who_has_left_while_ofgate_was_out_of_reach_gets_into_the_same_tree_again() -> None:
    scene = steady(Mode.BOTH)
    member, term = scene.brokers[7], scene.gate._terms.construction
    assert term is not None
    tree = term.topics["a/b"].tree
    scene.simulation.partition([member.name])
    scene.ofm.sides = {member.name: 1}
    scene.recorder.unsubscribe(member, "a/b")
    scene.simulation.run(30)
    scene.simulation.heal()
    scene.ofm.sides.clear()
    scene.simulation.run(5)
    scene.recorder.subscribe(member, "a/b")
    publish(scene, 500)
    assert member.node.rendezvous.trees.own("a/b") == tree == term.topics["a/b"].tree
    assert without_alm(scene, 50, faulty=True) == 50


@pytest.mark.parametrize("cut", [False, True])
def test_who_begins_to_publish_becomes_a_sender_of_the_tree_that_it_has_left(cut: bool) -> None:
    """Also if it asks OFGate in vain at first."""
    scene = steady(Mode.BOTH)
    publisher, far = scene.brokers[7], ["b0", "b1"]
    scene.recorder.unsubscribe(publisher, "a/b")
    scene.simulation.run(10)
    if cut:
        scene.simulation.partition(far)
        scene.ofm.sides = dict.fromkeys(far, 1)
    scene.recorder.publish(publisher, "a/b", 0)
    scene.simulation.run(20)
    scene.simulation.heal()
    scene.ofm.sides.clear()
    scene.simulation.run(20)
    sent, messages = scene.ofm.sent, scene.simulation.counters.data
    for _ in range(20):
        scene.recorder.publish(publisher, "a/b", 0)
        scene.simulation.run(0.1)
    assert (scene.ofm.sent - sent, scene.simulation.counters.data - messages) == (20, 0)


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
def test_a_tree_whose_only_subscriber_is_at_the_publisher_grows(mode: Mode) -> None:
    """With BOTH nobody else is in S(t$OFM), and so nobody announces it."""
    scene = Scene(1, mode, OfmFaults(), brokers=8)
    scene.recorder.subscribe(scene.brokers[0], "a/b")
    scene.simulation.run(2)
    publish(scene, 1)
    scene.simulation.run(0.5)
    scene.ofm.agents["b0"].construct("a/b")
    publish(scene, 200)
    for broker in scene.brokers[2:]:
        scene.recorder.subscribe(broker, "a/b")
    publish(scene, 400)
    assert without_alm(scene, 50, 1) == 50


@pytest.mark.parametrize(("mode", "grows"), [(Mode.EITHER, False), (Mode.BOTH, True)])
def test_what_the_controller_refuses_goes_by_alm_until_it_has_room(mode: Mode, grows: bool) -> None:
    """Also a tree that cannot take one member more."""
    scene = steady(mode)
    scene.controller.room = 7 if grows else 0
    if grows:
        scene.recorder.subscribe(scene.brokers[1], "a/b")
    else:
        scene.ofm.agents["b0"].release("a/b")
        scene.simulation.run(2)
        scene.ofm.agents["b0"].construct("a/b")
    publish(scene, 1500, 1)
    assert [told["status"] for told in scene.gate.describe()["topics"]] == ["refused"]
    assert not scene.ofm.trees
    scene.controller.room = 8
    scene.controller.retry()
    publish(scene, 1500, 1)
    assert without_alm(scene, 50, 1) == 50


@pytest.mark.parametrize("repair", ["switches", "controller", "move"])
def test_no_repair_leaves_a_tree_unfinished(repair: str) -> None:
    """Nor begins one for a topic that was refused."""
    scene = steady(Mode.EITHER)
    scene.recorder.subscribe(scene.brokers[3], "c/d")
    scene.simulation.run(2)
    scene.recorder.publish(scene.brokers[0], "c/d", 0)
    scene.controller.room = 7
    scene.ofm.agents["b0"].construct("c/d")
    scene.simulation.run(2)
    told: list[OfmState] = []
    scene.controller.watch(told.append)
    if repair == "controller":
        scene.controller.crash()
        scene.controller.restart()
    else:
        scene.controller.reset_switches()
    if repair == "move":
        scene.controller.move("a/b")
    scene.simulation.run(40)
    assert Status.UPDATING not in {state.status for state in told if state.topic == "c/d"}
    assert scene.controller.ofms["a/b"].status is Status.CONSTRUCTED
    assert scene.ofm.trees.keys() == {scene.controller.ofms["a/b"].address}


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
def test_what_was_refused_and_is_not_wanted_any_more_is_withdrawn(mode: Mode) -> None:
    scene = steady(mode)
    scene.ofm.agents["b0"].release("a/b")
    scene.simulation.run(2)
    scene.controller.room = 0
    scene.ofm.agents["b0"].construct("a/b")
    scene.simulation.run(2)
    assert [state.status for state in scene.controller.ofms.values()] == [Status.REFUSED]
    scene.ofm.agents["b0"].release("a/b")
    scene.simulation.run(2)
    assert not scene.controller.ofms


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
def test_acknowledgements_are_gathered(mode: Mode) -> None:
    scene = steady(mode)
    before = scene.simulation.counters.by_kind.get("OfmAck", 0)
    for _ in range(100):
        scene.recorder.publish(scene.brokers[0], "a/b", 1)
    scene.simulation.run(1)
    assert len(scene.recorder.confirmed) >= 100
    assert scene.simulation.counters.by_kind["OfmAck"] - before <= 2 * 6


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
def test_a_vanished_tree_costs_no_message_of_any_qos_and_is_used_again_when_it_is_back(mode: Mode) -> None:
    """The loopback packets stay away: what was outstanding goes by ALM."""
    scene = steady(mode)
    trees = dict(scene.ofm.trees)
    scene.ofm.trees.clear()
    for qos in (0, 1, 2):
        publish(scene, 20, qos)
    assert scene.ofm.datapaths["b0"].counts["failed"] == 1
    scene.ofm.trees.update(trees)
    scene.simulation.run(20)
    before = scene.simulation.counters.data
    publish(scene, 20)
    assert scene.simulation.counters.data == before
    scene.simulation.run(5)
    scene.recorder.judge()


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
def test_a_lost_end_of_a_burst_is_found_by_its_high_water_mark(mode: Mode) -> None:
    scene = steady(mode)
    publish(scene, 5)
    scene.ofm.faults.loss = 1.0
    scene.recorder.publish(scene.brokers[0], "a/b", 0)
    scene.ofm.faults.loss = 0.0
    scene.simulation.run(5)
    scene.recorder.judge()


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
def test_a_message_too_large_for_a_datagram_goes_by_alm_in_its_place(mode: Mode) -> None:
    scene = steady(mode)
    counts = scene.ofm.datapaths["b0"].counts
    before = counts["carried"]
    payloads = [b"%06d" % i + bytes(2000 * (i % 2)) for i in range(20)]
    for payload in payloads:
        scene.brokers[0].publish("a/b", payload)
    scene.simulation.run(3)
    assert counts["carried"] - before == 10
    for broker in scene.brokers[2:]:
        assert [message.payload for _, message in broker.delivered][-20:] == payloads


@pytest.mark.parametrize("qos", [0, 1])
def test_a_burst_is_packed_and_does_not_overrun_the_network(qos: int) -> None:
    """More at once than the buffers on the way hold: without the window most of it would be lost, and repeated by
    ALM."""
    scene = steady(Mode.EITHER, faults=OfmFaults(buffer=20), settings=DatapathSettings())
    counts, datagrams, messages = scene.ofm.datapaths["b0"].counts, scene.ofm.sent, scene.simulation.counters.data
    for number in range(5000):
        scene.recorder.publish(scene.brokers[0], "a/b", qos)
        scene.simulation.run(0.0 if number % 1000 else 0.1)
    scene.simulation.run(5)
    scene.recorder.judge()
    assert counts["overflowed"] == 0
    assert scene.ofm.sent - datagrams < 5000 / 10
    repaired = scene.simulation.counters.data - messages
    assert repaired < 0.05 * 5000 * 6, "of the copies for six members"


def test_a_member_that_is_slow_loses_nothing() -> None:
    """Its socket's buffer would overflow, and no loopback packet tells. What is too much for it goes by ALM."""
    faults = OfmFaults(buffer=150, service={"b5": 0.0005})
    scene = steady(Mode.EITHER, faults=faults, settings=DatapathSettings())
    for _ in range(400):
        for _ in range(50):
            scene.brokers[0].publish("a/b", bytes(200))
        scene.simulation.run(0.002)
    scene.simulation.run(20)
    for broker in scene.brokers[2:]:
        assert [len(message.payload) for _, message in broker.delivered].count(200) == 20_000, broker.name
    assert scene.ofm.datapaths["b0"].counts["overflowed"] > 0


def test_what_a_tree_does_not_carry_goes_by_alm() -> None:
    scene = steady(Mode.EITHER, faults=OfmFaults(latency=(0.02, 0.02)), settings=DatapathSettings())
    for _ in range(40):
        for _ in range(50):
            scene.brokers[0].publish("a/b", bytes(1000))
        scene.simulation.run(0.001)
    assert scene.ofm.datapaths["b0"].counts["overflowed"] > 0
    scene.simulation.run(5)
    for broker in scene.brokers[2:]:
        assert [len(message.payload) for _, message in broker.delivered].count(1000) == 2000


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
@pytest.mark.parametrize("drain", [revocation.DRAIN, 0.0])
def test_a_tree_stays_until_what_is_under_way_has_arrived(
    mode: Mode, drain: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Datagrams take 0.15 s here: without the wait before the tree goes they would be lost."""
    monkeypatch.setattr(revocation, "DRAIN", drain)
    slow = OfmFaults(latency=(0.15, 0.15), installation=(0.0, 0.0))
    scene = steady(mode, faults=slow, settings=DatapathSettings(loopback=1.0))
    assert scene.ofm.datapaths["b0"].counts["returned"] > 0
    scene.ofm.agents["b0"].release("a/b")
    publish(scene, 100)
    assert not scene.ofm.trees
    assert (scene.ofm.ring_split == 0) == (drain > 0)
    scene.simulation.run(5)
    scene.recorder.judge()


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
@pytest.mark.parametrize("released", [False, True], ids=["still by OFM", "by ALM again"])
@pytest.mark.parametrize("missed", [15, 40])
def test_who_misses_datagrams_gets_the_last_ones_that_are_kept(mode: Mode, released: bool, missed: int) -> None:
    """Its gap shows with the next publication, whichever way that takes; what is older than the history is lost."""
    kept = 16
    scene = steady(mode, settings=DatapathSettings(history=kept, mark=60.0))
    deaf = scene.brokers[5]
    before = len(scene.recorder.published)
    scene.ofm.faults.deaf.add("b5")
    publish(scene, missed)
    if released:
        scene.ofm.agents["b0"].release("a/b")
        scene.simulation.run(1)
    scene.ofm.faults.deaf.clear()
    publish(scene, 1)
    scene.simulation.run(5)
    published = [payload for *_, payload in scene.recorder.published]
    got = [message.payload for _, message in deaf.delivered]
    pushed_out = max(0, missed + (not released) - kept)
    assert got == published[:before] + published[before + pushed_out :]


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
def test_a_broker_that_restarts_does_not_get_again_what_went_along_the_tree_to_its_earlier_life(mode: Mode) -> None:
    """It may ask for all since a log began; its sessions got the last 1,024 datagrams again (`make jepsen`)."""
    scene = steady(mode)
    publisher, member = scene.brokers[0], scene.brokers[5]
    publish(scene, 50, 1)
    assert len(member.delivered) == 251
    scene.simulation.crash(member.name)
    scene.simulation.run(5)
    again = scene.simulation.add(member.name, member.ref.cluster, publisher.name)
    scene.simulation.run_until(lambda: again.joined)
    scene.recorder.subscribe(again, "a/b")
    scene.simulation.run(2)
    last = publisher.node.rendezvous.publishers.seq
    again.act(lambda: again.node.port.send(publisher.ref, Nack("a/b", last, 0)))
    scene.simulation.run(2)
    assert not again.delivered
    publish(scene, 50, 1)
    scene.simulation.run(5)
    assert len(again.delivered) == 50


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
def test_what_is_owed_is_not_given_up_with_a_later_one_that_is_not(mode: Mode) -> None:
    """QoS 1, then QoS 0: both are missed, the origin has only the first any more, and repeats it late."""
    scene = steady(mode, settings=DatapathSettings(history=1, repeat=5.0))
    scene.ofm.faults.deaf.add("b5")
    publish(scene, 1, 1)
    publish(scene, 1, 0)
    scene.ofm.faults.deaf.clear()
    publish(scene, 1, 0)
    scene.simulation.run(10)
    published = [payload for *_, payload in scene.recorder.published]
    got = [message.payload for _, message in scene.brokers[5].delivered]
    assert got == published[:-2] + published[-1:]


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_tree_that_the_network_breaks_is_left_at_once_and_used_again_when_it_is_repaired(
    mode: Mode, qos: int
) -> None:
    """The sender gets its loopback packets all the time: it is OFGate that hears of it, from the controller."""
    scene = steady(mode)
    scene.controller.cut("a/b", "b5")
    publish(scene, 100, qos)
    ring_split = scene.ofm.ring_split
    assert 0 < ring_split < 30
    publish(scene, 200, qos)
    assert scene.ofm.ring_split == ring_split
    scene.controller.mend()
    publish(scene, 300, qos)
    assert without_alm(scene, 50, qos) == 50


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
def test_members_beyond_a_cut_do_not_keep_the_others_from_their_tree(mode: Mode) -> None:
    """With BOTH they counted as members for as long as the cut lasted, and there was no path to them."""
    scene = steady(mode)
    scene.simulation.partition(["b5"])
    scene.controller.cut("a/b", "b5")
    publish(scene, 3000)
    datagrams, messages = scene.ofm.sent, scene.simulation.counters.data
    publish(scene, 50)
    assert (scene.ofm.sent - datagrams, scene.simulation.counters.data) == (50, messages)
    scene.simulation.heal()
    scene.controller.mend()
    publish(scene, 2000)
    assert without_alm(scene, 50, faulty=True) == 50


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
def test_a_member_that_the_tree_does_not_reach_is_served_by_alm_until_it_does(mode: Mode) -> None:
    """Nobody knows of the fault: the sender gets its loopback packets, the controller sees nothing."""
    scene = steady(mode)
    counts = scene.ofm.datapaths["b0"].counts
    scene.ofm.faults.deaf.add("b5")
    publish(scene, 500, 1)
    assert counts["repeated"] < 150  # the others went to b5 by ALM at once
    scene.ofm.faults.deaf.clear()
    publish(scene, 1000, 1)
    messages, repeated = scene.simulation.counters.data, counts["repeated"]
    publish(scene, 50, 1)
    assert (scene.simulation.counters.data, counts["repeated"]) == (messages, repeated)
    scene.simulation.run(5)
    scene.recorder.judge()


def test_of_two_ofgates_that_lead_the_lower_name_is_believed() -> None:
    answers = [Answer("ofgate@b", "second"), Answer("ofgate@0", None, "KeyError"), Answer("ofgate@a", "first")]
    assert leader_of(Answers([*answers, Answer("ofgate@A", None), Answer("ofgate@0", [7])]), str) == "first"
    assert leader_of(Answers(answers[1:2]), str) is None


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
def test_a_controller_that_restarts_does_not_move_the_topic(mode: Mode) -> None:
    """Until it has read the switches it knows of no broker that is connected: the tables are as they were."""
    scene = steady(mode)
    scene.ofm.faults.installation = (1.0, 2.0)
    scene.controller.crash()
    publish(scene, 100)
    scene.controller.restart()
    without_alm(scene, 500)


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
def test_a_controller_that_has_forgotten_is_asked_again(mode: Mode) -> None:
    scene = steady(mode)
    scene.controller.crash()
    publish(scene, 10, 1)
    scene.controller.restart(forgets=True)
    publish(scene, 300, 1)
    assert scene.ofm.trees
    without_alm(scene, 50, 1)


def test_the_last_leave_deletes_the_tree() -> None:
    for mode in (Mode.EITHER, Mode.BOTH):
        scene = steady(mode)
        assert scene.ofm.trees
        for broker in scene.brokers[2:]:
            scene.recorder.unsubscribe(broker, "a/b")
        scene.simulation.run(5)
        assert not scene.ofm.trees
        assert not scene.controller.ofms


def test_queries_to_ofgate_are_those_of_the_equations_less_what_leases_save() -> None:
    """Eq. (1): EITHER asks at each publication, join and leave; Eq. (2): BOTH at each leave of the tree,
    and a publisher tells of those who have come. Leases replace the questions at each publication by two for each
    lease time."""
    seconds, rate = 20.0, 50
    counted = {}
    for mode in (Mode.EITHER, Mode.BOTH):
        scene = steady(mode)
        scene.gate.queries.clear()
        for broker in scene.brokers[5:]:
            scene.recorder.unsubscribe(broker, "a/b")
        scene.simulation.run(2)
        for broker in scene.brokers[5:7]:
            scene.recorder.subscribe(broker, "a/b")
        for _ in range(int(seconds * rate)):
            scene.recorder.publish(scene.brokers[0], "a/b", 0)
            scene.simulation.run(1 / rate)
        scene.recorder.judge()
        counted[mode] = dict(scene.gate.queries)
    leaves, joins, publications = 3, 2, int(seconds * rate)
    either, both = counted[Mode.EITHER], counted[Mode.BOTH]
    assert (either["joined"], either["left"]) == (joins, leaves)
    changes = 2  # of the tree: after the leaves and after the joins, each two questions by each publisher
    assert either["status"] <= 2 * (seconds / 10.0 + 1) + 4 * changes < publications
    assert both["left_tree"] == leaves
    assert both.keys() == {"left_tree", "outgrown"}
    assert both["outgrown"] <= joins


def test_of_several_publishers_one_tells_ofgate_who_has_come() -> None:
    """Once for all who come between two looks, not once by each publisher."""
    scene = steady(Mode.BOTH, brokers=10)
    publishers = scene.brokers[:5]

    def all_publish(seconds: float) -> None:
        for _ in range(int(seconds * 20)):
            for broker in publishers:
                scene.recorder.publish(broker, "a/b", 0)
            scene.simulation.run(0.05)

    for broker in scene.brokers[7:]:
        scene.recorder.unsubscribe(broker, "a/b")
    all_publish(5)
    scene.gate.queries.clear()
    for broker in scene.brokers[7:]:
        scene.recorder.subscribe(broker, "a/b")
    all_publish(5)
    assert scene.gate.queries == {"outgrown": 1}
    assert {"b7", "b8", "b9"} <= set(scene.gate.describe()["topics"][0]["members"])
