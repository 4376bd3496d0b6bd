"""Agents on several brokers: found by attribute, called by name, and unable to break whoever hosts them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from saps.agents.api import AgentRegistry, Answers, remote
from saps.agents.user import PublisherAgent, SubscriberAgent
from saps.broker.broker import Broker
from saps.messages import Message, Subscription
from saps.overlay.frames.calls import AgentCall, Answer
from saps.overlay.ring.keys import BrokerRef
from saps.simulator import Network, SimBroker, Simulation
from tests.network.meshes import mesh

CALLER = BrokerRef("far", 1, "far:1", "c")


class Sensor:
    """An agent as a user writes it."""

    def __init__(self, place: str, value: float) -> None:
        self.place = place
        self.value = value
        self.calls = 0

    @remote
    def read(self, scale: float = 1.0) -> dict[str, Any]:
        self.calls += 1
        return {"place": self.place, "value": self.value * scale}

    @remote
    def broken(self) -> None:
        raise RuntimeError("no power")

    def reset(self) -> None:
        """Not for others."""
        raise AssertionError("must not run")

    @remote
    def _hidden(self) -> None:
        raise AssertionError("must not run")


def scene(seed: int, network: Network | None = None) -> tuple[Simulation, list[SimBroker], list[Sensor]]:
    """Ten brokers in three clusters; air sensors on four of them, two on one, a traffic sensor on another."""
    simulation = Simulation(seed, network=network)
    brokers = simulation.build(10, 3)
    missing = 0
    sensors = []

    def done() -> None:
        nonlocal missing
        missing -= 1

    for i, (at, attribute) in enumerate([(1, "air"), (3, "air"), (3, "air"), (5, "air"), (8, "air"), (6, "traffic")]):
        sensor = Sensor(f"place{i}", float(i))
        sensors.append(sensor)
        missing += 1
        agents = brokers[at].agents
        brokers[at].act(partial(agents.register, f"sensor{i}", sensor, [attribute], done))
    simulation.run_until(lambda: missing == 0)
    return simulation, brokers, sensors


def call(
    simulation: Simulation, broker: SimBroker, who: str, method: str, *args: Any, by_name: bool = False
) -> Answers:
    """The answers to a call made at a broker."""
    gathered: list[Answers] = []
    make = broker.agents.call if by_name else broker.agents.discovery_call
    broker.act(lambda: make(who, method, args, gathered.append))
    simulation.run_until(lambda: bool(gathered))
    return gathered[0]


def sorted_answers(answers: Answers) -> list[tuple[str, Any, str | None]]:
    return sorted((answer.agent, answer.value, answer.error) for answer in answers)


def test_a_discovery_call_gathers_the_answers_of_all_that_match(seed: int) -> None:
    simulation, brokers, sensors = scene(seed)
    for caller in (0, 3, 9):  # one that hosts nothing, one that hosts two, the last
        answers = call(simulation, brokers[caller], "air", "read", 10.0)
        assert answers.complete
        assert sorted_answers(answers) == [
            (f"sensor{i}", {"place": f"place{i}", "value": 10.0 * i}, None) for i in range(5)
        ]
    assert [sensor.calls for sensor in sensors] == [3, 3, 3, 3, 3, 0]


def test_a_call_by_name_reaches_one_agent_from_everywhere(seed: int) -> None:
    simulation, brokers, sensors = scene(seed)
    for broker in brokers:
        answers = call(simulation, broker, "sensor5", "read", by_name=True)
        assert list(answers) == [Answer("sensor5", {"place": "place5", "value": 5.0})]
    assert sensors[5].calls == len(brokers)


def test_nobody_answers_for_an_attribute_that_nobody_has(seed: int) -> None:
    simulation, brokers, _ = scene(seed)
    for who, by_name in (("water", False), ("sensor9", True), ("b4!nobody/sub", True)):
        answers = call(simulation, brokers[4], who, "read", by_name=by_name)
        assert list(answers) == []
        assert answers.complete


@pytest.mark.parametrize(
    ("method", "args", "error"),
    [
        ("broken", (), "RuntimeError: no power"),
        ("read", (1, 2, 3), "TypeError: "),
        ("reset", (), "no method 'reset'"),
        ("_hidden", (), "no method '_hidden'"),
        ("__init__", ("x", 1.0), "no method '__init__'"),
        ("value", (), "no method 'value'"),
        ("nothing", (), "no method 'nothing'"),
    ],
)
def test_what_an_agent_cannot_or_may_not_do_is_answered_by_an_error(
    seed: int, method: str, args: tuple[Any, ...], error: str
) -> None:
    simulation, brokers, _ = scene(seed)
    answers = call(simulation, brokers[2], "air", method, *args)
    assert len(answers) == 5
    for answer in answers:
        assert answer.value is None
        assert answer.error is not None
        assert answer.error.startswith(error)


def test_an_agent_that_is_gone_answers_no_more(seed: int) -> None:
    simulation, brokers, _ = scene(seed)
    brokers[3].act(lambda: brokers[3].agents.unregister("sensor1"))
    brokers[5].act(lambda: brokers[5].agents.unregister("sensor3"))
    brokers[5].act(lambda: brokers[5].agents.unregister("never there"))
    simulation.run(5.0)
    answers = call(simulation, brokers[0], "air", "read")
    assert sorted(answer.agent for answer in answers) == ["sensor0", "sensor2", "sensor4"]
    assert list(call(simulation, brokers[0], "sensor1", "read", by_name=True)) == []


def test_calls_survive_links_that_break_and_run_once(seed: int) -> None:
    """Frames and their links are lost now and then: calls are repeated, their methods run once."""
    simulation, brokers, sensors = scene(seed)
    simulation.network = Network(reset=0.02)
    complete = 0
    for i in range(10):
        answers = call(simulation, brokers[i], "air", "read")
        complete += answers.complete
        if answers.complete:
            assert sorted({answer.agent for answer in answers}) == [f"sensor{j}" for j in range(5)]
    assert complete >= 5
    assert all(complete <= sensor.calls <= 10 for sensor in sensors[:5])


def test_a_repeated_call_runs_once() -> None:
    registry, sensor = AgentRegistry(), Sensor("here", 1.0)
    registry.bind(_Nobody())
    registry.register("s", sensor, ["air"])
    first = AgentCall("air", "read", (), 7, CALLER)
    assert registry.answer(first, False) == registry.answer(first, False)
    assert sensor.calls == 1
    registry.answer(AgentCall("air", "read", (), 8, CALLER), False)
    registry.answer(AgentCall("air", "read", (), 7, BrokerRef("far", 2, "far:1", "c")), False)
    assert sensor.calls == 3


def test_two_agents_of_one_name_are_refused() -> None:
    registry = AgentRegistry()
    with pytest.raises(RuntimeError, match="not bound"):
        registry.register("s", Sensor("a", 1.0))
    registry = AgentRegistry()
    registry.bind(_Nobody())
    registry.register("s", Sensor("a", 1.0))
    with pytest.raises(ValueError, match="there is an agent 's' already"):
        registry.register("s", Sensor("b", 2.0))


class _Nobody:
    """An overlay that reaches nobody else."""

    def register_attribute(self, attribute: str, done: Any) -> None:
        done()

    def unregister_attribute(self, attribute: str) -> None:
        pass

    def call_agents(self, *args: Any, **options: Any) -> None:
        raise AssertionError("nobody to call")


# --- on real brokers ---------------------------------------------------------------------------------------------


async def ask(broker: Broker, name: str, method: str) -> Answers:
    """The answers to a call by name from a real broker."""
    done: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
    broker.agents.call(name, method, (), done.set_result)
    async with asyncio.timeout(20):
        return await done


@pytest.mark.network
async def test_the_agents_of_clients_are_called_by_way_of_their_broker() -> None:
    async with mesh(3, 2) as brokers:
        subscriber = SubscriberAgent(brokers[2].hub, "meter")
        publisher = PublisherAgent(brokers[2].hub, "meter")
        ready = asyncio.Event()
        subscriber.subscribe(Subscription("city/#", 1), ready.set)
        await ready.wait()
        publisher.publish(Message("city/a", b"x", 1))
        for broker in brokers:
            (answer,) = await ask(broker, "b2!meter/sub", "describe")
            assert answer.agent == "meter/sub"
            assert answer.value["subscriptions"] == {"city/#": 1}
            assert answer.value["delivered"] == 1
            (answer,) = await ask(broker, "b2!meter/pub", "describe")
            assert answer.value["published"] == 1
            assert list(await ask(broker, "b1!meter/sub", "describe")) == []
            (answer,) = await ask(broker, "b2!meter/sub", "close")
            assert answer.error == "no method 'close'"
