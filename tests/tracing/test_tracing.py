"""Traces: what is carried, which messages are sampled, and the spans that a real collector is sent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiomqtt
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as Paho

import saps
from saps.agents.user import SubscriberAgent
from saps.messages import Message, Properties, Subscription
from saps.routing.batch import Batch
from saps.routing.hub import Hub
from saps.tracing.context import Context, Sampler, carried, carrying
from saps.tracing.spans import Traces, Value
from saps.tracing.tracer import Tracer

TIMEOUT = 60.0
"""Seconds a test waits for what must come."""
CONTEXTS = st.builds(Context, st.integers(1, (1 << 128) - 1), st.integers(1, (1 << 64) - 1), st.booleans())
EXAMPLE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


# --- what is carried ----------------------------------------------------------------------------------------


@given(CONTEXTS)
def test_a_context_is_what_its_text_says(context: Context) -> None:
    assert Context.parse(str(context)) == context


@given(st.text() | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}.?", fullmatch=True))
def test_any_text_is_a_context_or_none(text: str) -> None:
    context = Context.parse(text)
    if context is not None:
        assert text[3:52] == str(context)[3:52]


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (EXAMPLE, True),
        (EXAMPLE[:-2] + "00", False),
        (EXAMPLE[:-2] + "ff", True),
        ("cc" + EXAMPLE[2:] + "-what-the-future-brings", True),
        ("ff" + EXAMPLE[2:], None),
        (EXAMPLE + "-more", None),
        (EXAMPLE.upper(), None),
        ("00-" + "0" * 32 + "-00f067aa0ba902b7-01", None),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01", None),
        ("", None),
    ],
)
def test_what_the_standard_says_of_a_traceparent(text: str, sampled: bool | None) -> None:
    context = Context.parse(text)
    assert (None if context is None else context.sampled) == sampled


@given(CONTEXTS.filter(lambda context: context.sampled))
def test_a_message_carries_its_context_behind_what_its_publisher_has_given(context: Context) -> None:
    traced = carrying(Properties(content_type="x", user=(("a", "1"), ("a", "2"))), context)
    assert traced.user[:2] == (("a", "1"), ("a", "2"))
    assert traced.content_type == "x"
    assert carried(traced) == context
    assert carried(carrying(traced, context)) is None  # two of them: neither can be meant


@given(st.floats(0.001, 0.999), st.integers(0, 2**32))
def test_the_share_is_kept(share: float, seed: int) -> None:
    sampler, messages, sizes = Sampler(share, random.Random(seed)), 20_000, list[int]()
    found = 0
    while messages_left := messages - sum(sizes):
        sizes.append(min(messages_left, random.Random(seed + len(sizes)).choice([1, 1, 7, 100])))
        places = sampler.among(sizes[-1])
        assert places == sorted(set(places))
        assert all(0 <= place < sizes[-1] for place in places)
        found += len(places)
    spread = (messages * share * (1 - share)) ** 0.5
    assert abs(found - messages * share) <= 6 * spread + 1


def test_none_and_all_are_exact() -> None:
    none, every = Sampler(0, random.Random(1)), Sampler(1, random.Random(1))
    assert not any(none.among(1000) for _ in range(1000))
    assert all(every.among(size) == list(range(size)) for size in (1, 1, 5, 100))


# --- what is sent -------------------------------------------------------------------------------------------


class Told(NamedTuple):
    """A span as the collector has got it."""

    broker: str
    name: str
    trace: str
    span: str
    parent: str
    about: dict[str, object]
    handed_to: list[object]


class Collector:
    """Takes OTLP by HTTP."""

    def __init__(self) -> None:
        self.spans: list[Told] = []
        self.endpoint = ""

    async def take(self, request: web.Request) -> web.Response:
        trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
        sent = trace_service.ExportTraceServiceRequest.FromString(await request.read())
        for resource in sent.resource_spans:
            broker = str(_values(resource.resource.attributes)["service.instance.id"])
            for scope in resource.scope_spans:
                for span in scope.spans:
                    handed = [_values(event.attributes)["messaging.client.id"] for event in span.events]
                    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
                    self.spans.append(Told(broker, span.name, *ids, _values(span.attributes), handed))
        return web.Response(body=trace_service.ExportTraceServiceResponse().SerializeToString())

    def tree(self, parent: str = "") -> list[object]:
        """The spans below one, as (broker, name) and what is below, in a fixed order."""
        below = [span for span in self.spans if span.parent == parent]
        return sorted(([span.broker, span.name, self.tree(span.span)] for span in below), key=repr)


def _values(attributes: object) -> dict[str, object]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}  # type: ignore[attr-defined]


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra 'tracing' is not installed")
    found, application = Collector(), web.Application()
    application.router.add_post("/v1/traces", found.take)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        found.endpoint = "http://{}:{}".format(*runner.addresses[0][:2])
        yield found
    finally:
        await runner.cleanup()


def broker(name: str, at: Collector, share: float, **more: object) -> saps.Broker:
    settings = {"overlay.leave_timeout": 2.0, "tracing.endpoint": at.endpoint, "tracing.share": share}
    return saps.Broker(name, settings=settings, **more)  # type: ignore[arg-type]


def properties(**user: str) -> Paho:
    found = Paho(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    if user:
        found.UserProperty = list(user.items())
    return found


def client(at: saps.Broker, name: str) -> aiomqtt.Client:
    host, _, port = at.mqtt.partition(":")
    return aiomqtt.Client(host, int(port), identifier=name, protocol=aiomqtt.ProtocolVersion.V5)


def user_of(message: aiomqtt.Message) -> list[tuple[str, str]]:
    return list(getattr(message.properties, "UserProperty", []))


@pytest.mark.network
async def test_one_message_is_followed_from_broker_to_broker() -> None:
    """Published at b1, wanted at b2 and b3: one tree of spans, and subscribers see to which trace they belong."""
    async with collector() as found:
        async with (
            broker("b1", found, 1.0, cluster="tokyo") as one,
            broker("b2", found, 0.0, cluster="osaka", join=one.overlay) as two,
            broker("b3", found, 0.0, cluster="osaka", join=one.overlay) as three,
            client(one, "sensor") as sensor,
            client(two, "sign") as sign,
            client(three, "display") as display,
        ):
            for each in (sign, display):
                await each.subscribe("air/#", qos=1)
            await sensor.publish("air/ward1", b"21.5", qos=1, properties=properties(unit="C"))
            async with asyncio.timeout(TIMEOUT):
                seen = [user_of(await anext(aiter(each.messages))) for each in (sign, display)]
        assert seen[0] == seen[1]
        assert seen[0][0] == ("unit", "C")
        context = Context.parse(dict(seen[0])["traceparent"])
        assert context is not None
        assert {span.trace for span in found.spans} == {f"{context.trace:032x}"}
        (receive,) = (span for span in found.spans if span.name == "receive")
        assert (receive.broker, receive.span) == ("b1", f"{context.span:016x}")
        assert receive.about["messaging.client.id"] == "sensor"
        assert receive.about["messaging.destination.name"] == "air/ward1"
        (route,) = (span for span in found.spans if span.name == "route")
        assert (route.about["saps.brokers"], route.about["saps.subscribers"]) == (2, 2)
        hops = {span.broker: span for span in found.spans if span.name == "hop"}
        assert {(name, span.about["saps.by"]) for name, span in hops.items()} == {("b2", "alm"), ("b3", "alm")}
        by_span = {span.span: span for span in found.spans}
        for span in hops.values():  # the parent is at the broker that has sent it
            assert by_span[span.parent].broker == span.about["saps.from"]
        assert sorted(str(hand) for span in found.spans if span.name == "deliver" for hand in span.handed_to) == [
            "display",
            "sign",
        ]
        assert [span[:2] for span in found.tree()] == [["b1", "receive"]]  # type: ignore[index]
        assert len(found.spans) == 2 + 2 * 2  # receive, route; hop and deliver at two brokers


@pytest.mark.network
async def test_what_its_publisher_says_of_a_trace_holds_and_is_not_altered() -> None:
    async with collector() as found:
        async with (
            broker("b1", found, 1.0) as one,
            broker("b2", found, 1.0, join=one.overlay) as two,
            client(one, "sensor") as sensor,
            client(two, "sign") as sign,
        ):
            await sign.subscribe("#", qos=1)
            for number, said in enumerate((EXAMPLE, EXAMPLE[:-2] + "00", "nonsense")):
                await sensor.publish(f"t/{number}", b"", qos=1, properties=properties(a="1", traceparent=said))
                async with asyncio.timeout(TIMEOUT):
                    message = await anext(aiter(sign.messages))
                assert user_of(message) == [("a", "1"), ("traceparent", said)]
        asked = EXAMPLE.split("-")
        assert {span.about["messaging.destination.name"] for span in found.spans} == {"t/0"}
        assert {span.trace for span in found.spans} == {asked[1]}
        assert found.tree(asked[2]) == [["b1", "receive", [["b1", "route", [["b2", "hop", [["b2", "deliver", []]]]]]]]]


@pytest.mark.network
async def test_a_small_share_is_traced_though_bursts_are_passed_on_unopened() -> None:
    """QoS 0 in bursts, subscribed here: some are traced, and all arrive once and in order."""
    count = 3000
    async with collector() as found:
        async with broker("b1", found, 0.02) as one, client(one, "sensor") as sensor, client(one, "sign") as sign:
            await sign.subscribe("t")
            for number in range(count):
                await sensor.publish("t", str(number))
            async with asyncio.timeout(TIMEOUT):
                messages = aiter(sign.messages)
                came = [await anext(messages) for _ in range(count)]
        assert [int(bytes(message.payload)) for message in came] == list(range(count))
        told = [Context.parse(dict(user_of(message))["traceparent"]) for message in came if user_of(message)]
        assert 0 < len(told) < count / 5
        receives = {span.span for span in found.spans if span.name == "receive"}
        assert receives == {f"{context.span:016x}" for context in told if context is not None}


async def test_without_an_endpoint_there_is_nothing_of_it() -> None:
    one = saps.Broker("b1")
    assert type(one._core.hub) is Hub
    assert one._core.options.tracing is None


# --- ways a message may come -------------------------------------------------------------------------------------


class Sink:
    """Keeps the spans of one broker: name, parent, what is said of it, and if it has ended."""

    def __init__(self) -> None:
        self.begun: list[Noted] = []

    def begin(self, name: str, trace: int, span: int, parent: int, attributes: Mapping[str, Value]) -> Noted:
        self.begun.append(Noted(name, parent, dict(attributes)))
        return self.begun[-1]


class Noted:
    """One of them."""

    def __init__(self, name: str, parent: int, about: dict[str, Value]) -> None:
        self.name, self.parent, self.about, self.ended = name, parent, about, False

    def set_attributes(self, attributes: Mapping[str, Value]) -> None:
        self.about.update(attributes)

    def add_event(self, name: str, attributes: Mapping[str, Value]) -> None:
        pass

    def end(self) -> None:
        assert not self.ended
        self.ended = True


def test_what_no_frame_has_brought_came_along_a_tree() -> None:
    sink, context = Sink(), Context(1, 2)
    hub = Hub()
    hub.tracer = Tracer(Traces("b2", sink, 0, random.Random(1)))
    seen: list[Message] = []
    SubscriberAgent(hub, "sign", seen.append).subscribe(Subscription("t", 0))
    hub.deliver(Batch.of(Message("t", b"x", properties=carrying(None, context))))
    hop, deliver = sink.begun
    assert (hop.name, hop.parent, hop.about["saps.by"], hop.ended) == ("hop", context.span, "ofm", True)
    assert (deliver.name, deliver.parent, deliver.ended) == ("deliver", context.at("b2"), True)
    assert [message.payload for message in seen] == [b"x"]


def test_a_hop_that_waits_for_an_earlier_message_ends_with_its_delivery() -> None:
    sink, message = Sink(), Message("t", b"x")
    traces = Traces("b3", sink, 0, random.Random(1))
    held, again, later = Context(1, 2), Context(1, 3), Context(1, 4)
    hop = traces.arrives(message, held, "b2")
    traces.handled(hop, passed_on=0, duplicate=False)
    assert (sink.begun[0].parent, sink.begun[0].about["saps.held"], sink.begun[0].ended) == (held.at("b2"), True, False)
    traces.delivered(traces.delivers(message, held))
    assert sink.begun[0].ended
    traces.handled(traces.arrives(message, again, "b1"), passed_on=0, duplicate=True)
    assert (sink.begun[1].about["saps.duplicate"], sink.begun[1].ended) == (True, True)
    hop = traces.arrives(message, later, "b1")
    traces.delivered(traces.delivers(message, later))
    traces.handled(hop, passed_on=2, duplicate=False)
    assert (sink.begun[2].about["saps.passed_on"], sink.begun[2].ended) == (2, True)


def test_a_duplicate_of_a_held_message_leaves_the_first_copys_hop() -> None:
    sink, message, context = Sink(), Message("t", b"x"), Context(1, 2)
    traces = Traces("b3", sink, 0, random.Random(1))
    traces.handled(traces.arrives(message, context, "b2"), passed_on=0, duplicate=False)
    traces.handled(traces.arrives(message, context, "b1"), passed_on=0, duplicate=True)
    traces.delivered(traces.delivers(message, context))
    first, again = sink.begun
    assert (first.about["saps.by"], first.about.get("saps.duplicate"), first.ended) == ("alm", None, True)
    assert (again.about["saps.duplicate"], again.ended) == (True, True)
