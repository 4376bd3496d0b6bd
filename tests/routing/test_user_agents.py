from __future__ import annotations

from saps.agents.user import PublisherAgent, SubscriberAgent
from saps.messages import Message, Subscription
from saps.routing.hub import Hub


def test_publisher_and_subscriber_describe_themselves_in_plain_values() -> None:
    hub = Hub()
    subscriber = SubscriberAgent(hub, "c", lambda message: None)
    publisher = PublisherAgent(hub, "c", subscriber)
    subscriber.subscribe(Subscription("a/#", qos=1))
    publisher.publish(Message("a/b", b"1"))
    assert publisher.describe() == {"name": "c/pub", "client": "c", "role": "publisher", "published": 1}
    assert subscriber.describe() == {
        "name": "c/sub",
        "client": "c",
        "role": "subscriber",
        "subscriptions": {"a/#": 1},
        "delivered": 1,
        "dropped": 0,
    }


def test_the_twin_of_a_publisher_decides_on_no_local() -> None:
    hub = Hub()
    got: list[Message] = []
    subscriber = SubscriberAgent(hub, "c", got.append)
    subscriber.subscribe(Subscription("a", no_local=True))
    PublisherAgent(hub, "c", subscriber).publish(Message("a", b""))
    assert got == []
    PublisherAgent(hub, "d").publish(Message("a", b""))
    assert len(got) == 1


def test_closing_does_not_take_out_a_successor_of_the_same_name() -> None:
    hub = Hub()
    old = PublisherAgent(hub, "c")
    new = PublisherAgent(hub, "c")
    old.close()
    assert hub.agents == {"c/pub": new}
