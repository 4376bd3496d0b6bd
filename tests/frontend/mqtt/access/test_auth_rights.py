"""What an ACL permits, at the machine: on every path of a publication, and for every way a message can come."""

from __future__ import annotations

import logging

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from saps.agents.user import SubscriberAgent
from saps.frontend.mqtt.codec.packets import V5, V311, Ack, Connect, Disconnect, PacketType, Publish, Will
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.session.session import HALF_DONE
from saps.messages import Message, Subscription
from tests.batches import batch_of
from tests.frontend.mqtt.access.guarded import GuardedBench, users
from tests.frontend.mqtt.bench import pubrel
from tests.routing.meshes import DelayingMesh

ACL = """
[[rule]]
deny = "both"
topics = ["secret/#", "+/secret"]
[[rule]]
allow = "both"
topics = "#"
"""
OPEN = ["a/b", "a/c", "a"]
SECRET = ["secret", "secret/a", "a/secret"]


@pytest.fixture
def bench() -> GuardedBench:
    return GuardedBench(acl=ACL)


@pytest.mark.parametrize("version", [V311, V5])
def test_a_wildcard_brings_only_what_may_be_read(bench: GuardedBench, version: int) -> None:
    reader = bench.login("r", version=version)
    assert reader.subscribe("#", "a/+", "secret/#") == [0, 0, Reason.NOT_AUTHORIZED if version == V5 else 0x80]
    for topic in OPEN + SECRET:
        bench.publish(topic)
    assert reader.payloads() == [topic.encode() for topic in OPEN]
    assert list(bench.hub.index.filters) == ["#", "a/+"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_from_other_brokers_are_withheld_too(bench: GuardedBench, qos: int) -> None:
    reader = bench.login("r")
    reader.subscribe("#", qos=2)
    matched = bench.hub.deliver(batch_of([Message(topic, topic.encode(), qos) for topic in (OPEN + SECRET) * 2]))
    bench.flush()
    assert reader.payloads() == [topic.encode() for topic in OPEN * 2]
    assert matched == [1] * len(OPEN) + [0] * len(SECRET)


def test_what_is_repeated_after_a_restart_is_asked_for_again() -> None:
    """With QoS 2 the subscribers here may have it, and the mesh not; under its identifier any topic may come."""
    mesh = DelayingMesh()
    bench = GuardedBench(acl=ACL, mesh=mesh)
    client = bench.login("p")
    assert client.connection.session is not None
    client.connection.session.incoming = {1: HALF_DONE, 2: HALF_DONE, 3: HALF_DONE}
    client.send(*[Publish(topic, b"x", 2, packet_id=n) for n, topic in enumerate(("secret", "a", "$SYS/x"), 1)])
    mesh.complete_publications()
    bench.flush()
    assert [message.topic for message in mesh.published] == ["a"]
    answers = {ack.packet_id: ack.reason for ack in client.take() if isinstance(ack, Ack)}
    assert answers == {1: Reason.NOT_AUTHORIZED, 2: Reason.NO_MATCHING_SUBSCRIBERS, 3: Reason.NOT_AUTHORIZED}


def test_retained_messages_are_withheld(bench: GuardedBench) -> None:
    for topic in OPEN + SECRET:
        bench.publish(topic, retain=True)
    reader = bench.login("r")
    reader.subscribe("#")
    assert sorted(reader.payloads()) == sorted(topic.encode() for topic in OPEN)


def test_wills_are_withheld() -> None:
    bench = GuardedBench(
        acl="""
        default = "allow"
        [[rule]]
        deny = "subscribe"
        clients = "r"
        topics = "secret/#"
        """
    )
    reader, other = bench.login("r"), bench.login("o")
    for watcher in (reader, other):
        watcher.subscribe("#")
    for topic in ("secret/will", "open/will"):
        bench.login("dying", will=Will(topic, topic.encode())).lose()
    assert reader.payloads() == [b"open/will"]
    assert other.payloads() == [b"secret/will", b"open/will"]


@given(
    st.lists(
        st.tuples(st.sampled_from(OPEN + SECRET), st.integers(0, 2), st.booleans(), st.booleans(), st.integers(1, 4)),
        max_size=8,
    ),
    st.sampled_from([V311, V5]),
    st.booleans(),
    st.booleans(),
)
@example([("a/b", 0, False, False, 2), ("secret", 0, False, False, 1), ("a/b", 0, False, False, 1)], V5, True, True)
@example([("a/b", 1, False, False, 2), ("secret", 1, False, False, 1), ("a/b", 1, False, False, 1)], V311, True, False)
def test_on_every_path_what_may_not_be_published_reaches_nobody(
    sent: list[tuple[str, int, bool, bool, int]], version: int, at_once: bool, subscribed: bool
) -> None:
    """Alone and in runs, with and without properties, of every quality, known topics and new ones; the answers tell."""
    bench = GuardedBench(acl=ACL)
    seen: list[str] = []
    watcher = SubscriberAgent(bench.hub, "watcher", lambda message: seen.append(message.topic))
    if subscribed:
        watcher.subscribe(Subscription("#", 2))
    client = bench.login("p", version=version)
    for topic in OPEN + SECRET:  # others may, so that their routes are at hand
        bench.hub.routes.find(topic)
    packets, expected, packet_id = [], [], 0
    for topic, qos, retain, expiring, count in sent:
        for _ in range(count):
            packet_id += bool(qos)
            number = packet_id if qos else None
            properties = {2: 100} if expiring and version == V5 else {}
            packets.append(Publish(topic, b"x", qos, retain, packet_id=number, properties=properties))
            expected.append((topic, qos, packet_id))
    if at_once:
        client.send(*packets)
    else:
        for packet in packets:
            client.send(packet)
    permitted = [topic for topic, _, _ in expected if topic in OPEN]
    assert seen == (permitted if subscribed else [])
    assert len(bench.hub.retained) == len({t for t, _, retain, _, _ in sent if retain and t in OPEN})
    refused = Reason.NOT_AUTHORIZED if version == V5 else 0
    accepted = 0 if subscribed or version == V311 else Reason.NO_MATCHING_SUBSCRIBERS
    assert [(p.packet_id, p.reason) for p in client.take() if isinstance(p, Ack)] == [
        (number, accepted if topic in OPEN else refused) for topic, qos, number in expected if qos
    ]
    assert bench.guard.counts.publications == len(expected) - len(permitted)
    assert not client.closed


def test_a_refused_publication_leaves_no_route_behind(bench: GuardedBench) -> None:
    client = bench.login("p")
    for qos in (0, 1, 2):
        client.publish("secret/a", b"x", qos)
        client.publish("a/b", b"x", qos)
    assert list(bench.hub.routes.known) == ["a/b"]
    client.publish("a/#", b"x")
    assert client.closed


def test_a_refused_publication_of_quality_2_ends_its_exchange_in_both_versions(bench: GuardedBench) -> None:
    for version, reason in ((V311, 0), (V5, Reason.NOT_AUTHORIZED)):
        client = bench.login("p", version=version)
        client.publish("secret", b"x", 2, packet_id=7)
        assert client.take() == [Ack(PacketType.PUBREC, 7, reason)]
        if version == V311:
            client.send(pubrel(7))
            assert client.take() == [Ack(PacketType.PUBCOMP, 7)]
        assert not bench.frontend.sessions["p"].incoming


def test_a_publication_taken_before_a_change_is_still_confirmed(bench: GuardedBench) -> None:
    client = bench.login("p")
    client.publish("a", b"x", 2, packet_id=7)
    client.take()
    bench.replace(acl='[[rule]]\ndeny = "both"\ntopics = "#"')
    client.publish("a", b"x", 2, packet_id=7, dup=True)
    assert client.take() == [Ack(PacketType.PUBREC, 7, Reason.NO_MATCHING_SUBSCRIBERS)], "as the first time"


def test_a_refused_publication_is_in_the_log_once_a_connection(
    bench: GuardedBench, caplog: pytest.LogCaptureFixture
) -> None:
    client = bench.login("p")
    for _ in range(3):
        client.publish("secret", b"x")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "may not publish to 'secret'" in caplog.text


def test_after_a_change_existing_subscriptions_and_waiting_messages_obey_the_new_rules(bench: GuardedBench) -> None:
    here = bench.login("here")
    away = bench.login("away", properties={17: 60}, clean_start=False)
    for client in (here, away):
        client.subscribe("#", qos=1)
    away.lose()
    for topic in ("a/b", "a/c"):
        bench.publish(topic, 1)
    assert here.payloads() == [b"a/b", b"a/c"]
    bench.replace(acl='[[rule]]\nallow = "both"\ntopics = ["a/c", "secret"]')
    for topic in ("a/b", "a/c", "secret"):
        bench.publish(topic, 1)
    assert here.payloads() == [b"a/c", b"secret"]
    again = bench.login("away", properties={17: 60}, clean_start=False)
    assert again.payloads() == [b"a/c", b"a/c", b"secret"]
    session = bench.frontend.sessions["away"]
    assert (session.dropped, session.queue.bytes) == (1, 0)


def test_after_a_change_publishing_is_judged_anew(bench: GuardedBench) -> None:
    reader, client = bench.login("r"), bench.login("p")
    reader.subscribe("#")
    client.publish("a", b"1")
    bench.replace(acl='[[rule]]\nallow = "subscribe"\ntopics = "#"')
    client.publish("a", b"2")
    client.send(Publish("a", b"3"), Publish("a", b"4"))
    assert reader.payloads() == [b"1"]


def test_a_user_who_is_taken_away_is_disconnected_and_others_are_not() -> None:
    bench = GuardedBench(users(ann=b"1", bob=b"2", joe=b"3"))
    clients = {}
    for name, password in (("ann", b"1"), ("bob", b"2"), ("joe", b"3")):
        clients[name] = bench.arriving()
        clients[name].send(Connect(name, username=name, password=password))
    bench.check_passwords()
    nobody = bench.login("nobody")
    bench.replace(users(ann=b"1", bob=b"new"))
    assert [client.closed for client in clients.values()] == [False, True, True]
    assert clients["joe"].expect(Disconnect).reason == Reason.NOT_AUTHORIZED
    assert not nobody.closed


def test_a_client_whose_name_the_new_rules_cannot_take_is_closed() -> None:
    bench = GuardedBench(acl=ACL)
    client, other = bench.login("a/b"), bench.login("c")
    bench.replace(acl='[[rule]]\nallow = "both"\ntopics = "%c"')
    assert client.closed
    assert not other.closed
