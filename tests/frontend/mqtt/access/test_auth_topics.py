"""A service that is asked about each topic: what it is asked, what waits for it, in which order, and what if it does
not answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from saps.agents.user import SubscriberAgent
from saps.frontend.mqtt.access.logins.service import KEPT_REFUSAL
from saps.frontend.mqtt.access.options import AuthOptions, HttpOptions
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import (
    V5,
    V311,
    Ack,
    Connack,
    Connect,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
)
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.connection.permission import AT_ONCE
from saps.frontend.mqtt.limits import Limits
from saps.messages import Message, Subscription
from tests.frontend.mqtt.access.guarded import GuardedClient
from tests.frontend.mqtt.access.serving import serving
from tests.frontend.mqtt.access.test_auth_http import TIMEOUT, ServiceBench, service
from tests.frontend.mqtt.bench import a_will, puback, pubrec, pubrel
from tests.frontend.mqtt.peers import need, run

TOPICS = "https://id.city/topics"
FORBIDDEN, NOBODY = Reason.NOT_AUTHORIZED, Reason.NO_MATCHING_SUBSCRIBERS


class TopicsBench(ServiceBench):
    """A broker that asks about topics alone. `got`: what is delivered to a program, which may read everything."""

    def __init__(self, **given: Any) -> None:
        super().__init__(login="", topics=TOPICS, **given)
        self.got: list[tuple[str, bytes]] = []
        agent = SubscriberAgent(self.hub, "!program", lambda message: self.got.append((message.topic, message.payload)))
        agent.subscribe(Subscription("#"))

    def reply(self, *denied: str) -> None:
        """Answer all questions, also those that follow: all is permitted but this."""
        while self.asked:
            self.answer(allow=self.asked[0][1]["topic"] not in denied)
            self.advance(0)

    @property
    def wanted(self) -> list[tuple[str, str]]:
        return [(said["action"], said["topic"]) for _, said, _, _ in self.asked]


def here(bench: TopicsBench, client_id: str = "c", user: str | None = "ann", **fields: Any) -> GuardedClient:
    return bench.login(client_id, user, **fields)


def test_each_topic_is_asked_once_and_what_follows_waits_for_it() -> None:
    bench = TopicsBench()
    client = here(bench)
    client.publish("a", b"1", 1, 1)
    client.send(Publish("b", b"2", 1, packet_id=2), Publish("a", b"3"), Pingreq())
    url, said, _, _ = bench.asked[0]
    assert url == TOPICS
    assert said == {"user": "ann", "client": "c", "address": "127.0.0.1", "action": "publish", "topic": "a"}
    assert (bench.wanted, bench.got, client.packets, client.reading) == ([("publish", "a")], [], [], False)
    bench.reply()
    assert bench.got == [("a", b"1"), ("b", b"2"), ("a", b"3")]
    assert client.take() == [puback(1), puback(2), Pingresp()]
    assert client.reading
    client.publish("a", b"4", 1, 3)
    assert client.take() == [puback(3)]
    bench.advance(61)
    client.publish("a", b"5", 1, 4)
    assert bench.wanted == [("publish", "a")]


def test_what_is_refused_is_neither_delivered_nor_asked_again_at_once() -> None:
    bench = TopicsBench()
    for version, answers in ((V5, [puback(1, FORBIDDEN), puback(2)]), (V311, [puback(1), puback(2)])):
        client = here(bench, version=version)
        client.send(Publish("a", b"1", 1, packet_id=1), Publish("b", b"2", 1, packet_id=2))
        bench.reply("a")
        assert client.take() == answers
    assert bench.got == [("b", b"2")] * 2
    assert bench.guard.counts.publications == 2
    bench.advance(KEPT_REFUSAL)
    client.publish("a", b"3")
    assert bench.wanted == [("publish", "a")]


def test_without_an_answer_nothing_is_permitted_and_nothing_remembered() -> None:
    bench = TopicsBench()
    client = here(bench)
    client.publish("a", b"1", 1, 1)
    bench.answer(500)
    bench.advance(0)
    assert client.take() == [puback(1, FORBIDDEN)]
    client.send(Subscribe(2, [SubscribeEntry("a", 1)]))
    bench.answer(200)
    bench.advance(0)
    assert client.expect(Suback).reasons == [FORBIDDEN]
    client.publish("a", b"2", 2, 3)
    assert bench.wanted == [("publish", "a")]
    bench.reply()
    assert client.take() == [pubrec(3)]
    assert bench.got == [("a", b"2")]


def test_questions_for_which_there_is_no_room_are_put_later_and_given_up_in_time() -> None:
    bench = TopicsBench()
    client, other = here(bench), here(bench, "d")
    bench.room = 1
    client.send(*(Publish(f"t/{number}", b"%d" % number) for number in range(20)))
    other.publish("t/0", b"other", 1, 1)
    assert len(bench.asked) == 1
    bench.advance(1)
    bench.reply()
    assert [payload for _, payload in bench.got] == [b"%d" % number for number in range(20)]
    bench.advance(0.1)
    bench.reply()
    assert bench.got[-1] == ("t/0", b"other")
    bench.room = 0
    client.publish("new", b"", 1, 2)
    bench.advance(2.9)
    assert client.take() == []
    bench.advance(0.3)
    assert client.take() == [puback(2, FORBIDDEN)]


def test_one_request_asks_a_few_questions_at_a_time_and_none_for_a_client_that_has_gone() -> None:
    bench = TopicsBench()
    client = here(bench)
    client.send(*(Publish(f"t/{number}") for number in range(100)))
    assert len(bench.asked) == AT_ONCE
    client.lose()
    bench.reply()
    assert bench.got == []
    assert not bench.asked


def test_aliases_stand_for_what_they_stood_for_when_it_was_sent() -> None:
    bench = TopicsBench(limits=Limits(topic_alias_maximum=4))
    client = here(bench)

    def said(topic: str, alias: int, payload: bytes) -> Publish:
        return Publish(topic, payload, properties={Property.TOPIC_ALIAS: alias})

    client.send(said("a", 1, b"1"))
    bench.reply()
    bench.advance(61)
    client.send(said("", 1, b"2"), said("b", 1, b"3"), said("", 1, b"4"))
    client.send(said("", 1, b"5"))
    bench.reply()
    assert bench.got == [("a", b"1"), ("a", b"2"), ("b", b"3"), ("b", b"4"), ("b", b"5")]


def test_filters_are_asked_for_as_they_are_and_those_of_groups_without_the_group() -> None:
    bench = TopicsBench()
    client = here(bench)
    client.send(Subscribe(1, [SubscribeEntry(each, 1) for each in ("a/+", "b/#", "$share/g/b/#", "$share/g/c")]))
    assert sorted(bench.wanted) == [("subscribe", "a/+"), ("subscribe", "b/#"), ("subscribe", "c")]
    assert client.packets == []
    bench.reply("b/#")
    assert client.expect(Suback).reasons == [1, FORBIDDEN, FORBIDDEN, 1]
    bench.publish("a/1", qos=1)
    bench.publish("b/1")
    assert client.payloads() == [b"a/1"]
    assert client.subscribe("a/+", "b/#") == [0, FORBIDDEN]  # is known
    many = [f"m/{number}" for number in range(200)]
    client.send(Subscribe(2, [SubscribeEntry(each) for each in many]))
    for _ in range(20):
        bench.reply("m/77")
        bench.advance(0.1)
    assert [number for number, each in enumerate(client.expect(Suback).reasons) if each] == [77]


def test_the_acl_file_narrows_what_the_service_permits_and_saves_questions() -> None:
    acl = '[[rule]]\nallow = "both"\ntopics = ["a/#"]\n[[rule]]\nallow = "subscribe"\ntopics = ["c/1"]'
    bench = TopicsBench(acl=acl)
    client = here(bench)
    client.publish("b", b"1", 1, 1)
    assert client.take() == [puback(1, FORBIDDEN)]
    client.send(Subscribe(2, [SubscribeEntry("b"), SubscribeEntry("c/+"), SubscribeEntry("a/1")]))
    bench.reply()
    assert client.expect(Suback).reasons == [FORBIDDEN, 0, 0]
    bench.publish("c/1")
    bench.publish("c/2")
    assert client.payloads() == [b"c/1"]


def test_a_will_is_permitted_at_the_login_and_when_it_is_due() -> None:
    bench = TopicsBench()
    refused = bench.arriving()
    refused.send(Connect("w", will=a_will("will/1")))
    assert bench.wanted == [("publish", "will/1")]
    bench.reply("will/1")
    assert refused.expect(Connack).reason == FORBIDDEN
    for number, denied in ((2, ()), (3, ("will/3",))):
        client = bench.arriving()
        client.send(Connect(f"w{number}", will=a_will(f"will/{number}")))
        bench.reply()
        assert client.expect(Connack).reason == 0
        bench.advance(61)
        client.lose()
        bench.reply(*denied)
    assert bench.got == [("will/2", b"gone")]


def test_a_reload_while_a_publication_waits_leaves_its_answer_good() -> None:
    bench = TopicsBench()
    client = here(bench)
    client.publish("a", b"1", 1, 1)
    assert bench.guard.service is not None
    bench.guard.service.forget()
    bench.replace()
    bench.reply()
    assert client.take() == [puback(1)]
    client.publish("a", b"2", 1, 2)
    bench.guard.service.forget()
    bench.replace()
    bench.reply()
    assert bench.got == [("a", b"1"), ("a", b"2")]


def test_quality_2_repeated_while_it_waits_is_published_once() -> None:
    bench = TopicsBench()
    client = here(bench, clean_start=False, properties={Property.SESSION_EXPIRY: 60})
    client.publish("a", b"1", 2, 1)
    client.lose()
    again = here(bench, clean_start=False, properties={Property.SESSION_EXPIRY: 60})
    again.publish("a", b"1", 2, 1, dup=True)
    bench.reply()
    assert again.take() == [pubrec(1)]
    again.publish("a", b"1", 2, 1, dup=True)
    bench.advance(61)
    assert again.take() == [pubrec(1)]
    again.send(pubrel(1))
    assert bench.got == [("a", b"1")]


def test_without_the_setting_nothing_is_made_for_it() -> None:
    bench = ServiceBench(login="", topics="", acl='default = "allow"')
    client = bench.login("c", "ann")
    client.publish("a", b"1", 1, 1)
    assert client.take() == [puback(1, NOBODY)]
    assert (bench.asked, client.connection.publishes._permission) == ([], None)


events = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from("abcd"), st.integers(0, 1)),
        st.tuples(st.just("subscribe"), st.sampled_from("abcd"), st.just(0)),
        st.tuples(st.just("answer"), st.booleans(), st.integers(0, 5)),
        st.tuples(st.just("later"), st.just(0), st.integers(0, 40)),
    ),
    max_size=30,
)


@given(events, st.sets(st.sampled_from("abcd")), st.integers(1, 9), st.integers(1, 60))
def test_whatever_waits_nothing_denied_gets_through_and_the_order_stays(
    script: list[tuple[str, Any, int]], denied: set[str], room: int, piece: int
) -> None:
    """Publications and subscriptions are sent in pieces of any size while answers come in any order."""
    bench = TopicsBench(cache=20.0)
    bench.room = room
    client = here(bench)
    data, sent = b"", []
    for number, (what, topic, qos) in enumerate(script):
        if what == "publish":
            data += encode(Publish(topic, b"%d" % number, qos, packet_id=number + 1 if qos else None), V5)
            sent.append((topic, b"%d" % number))
        elif what == "subscribe":
            data += encode(Subscribe(number + 1, [SubscribeEntry(topic)]), V5)
        elif what == "answer" and bench.asked:
            bench.asked.append(bench.asked.pop(qos % len(bench.asked)))
            bench.asked.insert(0, bench.asked.pop())
            bench.answer(allow=bench.asked[0][1]["topic"] not in denied)
        elif what == "later":
            bench.advance(qos / 100)
        while client.reading and data:
            client.send_bytes(data[:piece])
            data = data[piece:]
    for _ in range(200):
        bench.reply(*denied)
        bench.advance(0.01)
        while client.reading and data:
            client.send_bytes(data[:piece])
            data = data[piece:]
    assert not data
    assert bench.got == [(topic, payload) for topic, payload in sent if topic not in denied]
    answered = {packet.packet_id: packet.reason for packet in client.packets if isinstance(packet, Ack)}
    expected = {n + 1: topic in denied for n, (what, topic, qos) in enumerate(script) if what == "publish" and qos}
    assert {packet_id: reason == FORBIDDEN for packet_id, reason in answered.items()} == expected


# ---- on sockets


@pytest.mark.interop
async def test_real_clients_publish_and_subscribe_as_a_real_service_permits(tmp_path: Path) -> None:
    need("mosquitto_pub", "mosquitto-clients")
    (tmp_path / "token").write_text("of-the-broker\n")
    asked: list[tuple[str, ...]] = []
    away = False

    def answer(said: dict[str, Any]) -> web.Response:
        asked.append((said["user"] or "", said["client"], said["action"], said["topic"]))
        if away:
            return web.Response(status=503)
        return web.json_response({"allow": said["topic"].startswith("air/")})

    async with service(answer) as url:
        options = HttpOptions(topics=f"{url}/topics", token_file=f"{tmp_path}/token", timeout=2)
        async with serving(AuthOptions(http=options)) as server:
            host, port = server.address
            async with aiomqtt.Client(host, port, identifier="reader", timeout=TIMEOUT) as reader:
                granted = [str(await reader.subscribe(each, qos=1)) for each in ("air/#", "water/#")]
                assert granted == ["[ReasonCode(Suback, 'Granted QoS 1')]", "[ReasonCode(Suback, 'Unspecified error')]"]
                common = ("mosquitto_pub", "-V", "5", "-h", host, "-p", str(port), "-i", "pub", "-q", "1", "-m", "x")
                for topic in ("air/1", "water/1", "air/2", "air/1"):
                    await run(*common, "-t", topic)
                async with asyncio.timeout(TIMEOUT):
                    assert [str((await anext(reader.messages)).topic) for _ in range(3)] == ["air/1", "air/2", "air/1"]
                assert asked == [
                    ("", "reader", "subscribe", "air/#"),
                    ("", "reader", "subscribe", "water/#"),
                    *[("", "pub", "publish", topic) for topic in ("air/1", "water/1", "air/2")],
                ]
                away = True
                await run(*common, "-t", "air/3")
                away = False
                await run(*common, "-t", "air/4")
                async with asyncio.timeout(TIMEOUT):
                    assert str((await anext(reader.messages)).topic) == "air/4"
                assert server.describe()["refused_publications"] == 2


async def test_a_thousand_publications_to_new_topics_keep_their_order(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-the-broker\n")

    def answer(said: dict[str, Any]) -> web.Response:
        return web.json_response({"allow": int(said["topic"].rpartition("/")[2]) % 3 > 0})

    async with service(answer) as url:
        options = HttpOptions(topics=f"{url}/topics", token_file=f"{tmp_path}/token")
        async with serving(AuthOptions(http=options)) as server:
            got: list[Message] = []
            SubscriberAgent(server.hub, "!program", got.append).subscribe(Subscription("#"))
            async with aiomqtt.Client(*server.address, timeout=TIMEOUT) as client:
                await asyncio.gather(*[client.publish(f"t/{n % 400}", b"%d" % n, qos=1) for n in range(1000)])
            assert [int(each.payload) for each in got] == [n for n in range(1000) if n % 400 % 3]
