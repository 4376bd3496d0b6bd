"""A topic is moved ALM -> OFM -> ALM under traffic, while subscribers join and leave and another client publishes."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from benchmarks.switchover.churn import Churn
from benchmarks.switchover.city import TOPICS, City
from benchmarks.switchover.clients import Publisher
from benchmarks.switchover.load import Load
from benchmarks.switchover.record import Tally


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    """What to do."""

    mode: str
    """'either' or 'both'."""
    rate: float = 1000.0
    """Messages a second of the steady publisher; the other one, in another cluster, publishes a tenth of that."""
    subscribers: int = 100
    """A tenth of them come and go, those of the last broker of every second cluster all."""
    times: int = 10
    qos: int = 0
    """Of publications."""
    acknowledging: int = 8
    """So many of the subscribers take `qos`, the others QoS 0."""
    hold: float = 2.0
    """Seconds for which the topic stays on OFM, and then on ALM, each time."""
    seed: int = 1


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. Times in seconds."""

    plan: Moves
    rate: float
    """Messages a second that the steady publisher has sent."""
    seconds: float
    """From the first move to the end of the last."""
    published: int
    """By both publishers."""
    stable: int
    """Subscribers that were there from the beginning to the end; the tally is of these."""
    tally: Tally
    guests: Tally
    """Of those that came and went, from each SUBACK on."""
    joins: int
    leaves: int
    carried: int
    """Of the steady publisher's messages, those that left along the tree."""
    repeated: int
    """Copies sent again by ALM because they may not have arrived by OFM."""
    constructed: list[float]
    """From the order to OFGate until it says that the tree is there."""
    released: list[float]
    gap: float
    """Longest time in which a stable subscriber got nothing of the steady publisher."""
    oldest: float
    """Longest that a message was under way."""
    generator: float
    """Processors kept busy by the load itself."""


def run(city: City, plan: Moves, tell: Callable[[str], None] = lambda text: None) -> Moved:
    """Carry it out. `tell` gets a line at each move."""
    topic, hosts = TOPICS[plan.mode], city.hosts
    fleeting = hosts[3::4] or hosts[-1:]
    lasting = [host for host in hosts if host not in fleeting]
    guests = max(len(fleeting), plan.subscribers // 10)
    stable = plan.subscribers - guests
    with Load(city.lab.host, topic) as load:
        for number in range(stable):
            qos = plan.qos if number < plan.acknowledging else 0
            load.join(f"stable-{number}", lasting[number % len(lasting)], qos, stable=True)
        publisher = load.publish(hosts[0], plan.rate, plan.qos)
        city.until(lambda: load.flowing(publisher), "the traffic flows")
        before = city.counts(hosts[0])
        load.watch_gaps()
        start, sent, cpu = time.monotonic(), publisher.sent, load.cpu
        churning = [*fleeting, *lasting]
        each = -(-guests // len(churning))
        with Churn(load, churning, each, 0, plan.seed) as churn:
            constructed, released = _moves(city, load, plan, topic, publisher, tell)
        seconds = time.monotonic() - start
        rate, used, gap = (publisher.sent - sent) / seconds, (load.cpu - cpu) / seconds, load.gap(publisher)[0]
        after = city.counts(hosts[0])
        load.settle()
        if load.tally().wrong + load.left.wrong:
            for host, wrong in load.wrong_at().items():
                tell(f"{host}: {wrong}")
            for counts in city.ask("brokers"):
                tell(f"{counts}")
        return Moved(
            plan=plan,
            rate=rate,
            seconds=seconds,
            published=sum(one.sent for one in load.publishers),
            stable=stable,
            tally=load.tally(),
            guests=load.left,
            joins=churn.joins,
            leaves=churn.leaves,
            carried=after["carried"] - before["carried"],
            repeated=after["repeated"] - before["repeated"],
            constructed=constructed,
            released=released,
            gap=gap,
            oldest=load.oldest(),
            generator=used,
        )


def _moves(
    city: City, load: Load, plan: Moves, topic: str, publisher: Publisher, tell: Callable[[str], None]
) -> tuple[list[float], list[float]]:
    constructed, released = [], []
    for number in range(plan.times):
        constructed.append(city.construct(topic))
        carried = city.counts(city.hosts[0])["carried"]
        _advance(city, load, publisher, plan.hold)
        city.until(lambda carried=carried: city.counts(city.hosts[0])["carried"] > carried, "OFM carries the topic")  # type: ignore[misc]
        if number == 0:
            load.publish(city.hosts[len(city.hosts) // 2], plan.rate / 10, plan.qos)
        released.append(city.release(topic))
        _advance(city, load, publisher, plan.hold)
        tell(
            f"{plan.mode}: move {number + 1} of {plan.times}, {publisher.sent:,} messages, "
            f"{load.tally().wrong} under way or wrong"
        )
    return constructed, released


def _advance(city: City, load: Load, publisher: Publisher, seconds: float) -> None:
    """Until as many messages have been sent as belong to so many seconds, and all stable subscribers are served."""
    target = publisher.sent + seconds * publisher.rate
    city.until(lambda: publisher.sent >= target and load.flowing(publisher), "the traffic goes on")
    load.check()
