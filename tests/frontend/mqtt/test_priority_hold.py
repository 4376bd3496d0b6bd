"""Congested links hold back clients that publish; but not one that has published to priority topics only."""

from __future__ import annotations

import pytest

from saps.routing.priority import Priorities
from tests.frontend.mqtt.bench import Bench
from tests.routing.meshes import DelayingMesh


@pytest.mark.parametrize("qos", [0, 1])
def test_who_publishes_to_priority_topics_only_is_read_while_links_are_congested(qos: int) -> None:
    bench = Bench(mesh=DelayingMesh())
    bench.hub.priorities = Priorities(["alert/#"])
    alarm, camera, both = (bench.client(name) for name in ("alarm", "camera", "both"))
    for _ in range(2):  # the second time the topic is known, which is another way through the code
        alarm.publish("alert/fire", b"!", qos)
        camera.publish("camera/1", b".", qos)
        both.publish("alert/fire", b"!", qos)
        both.publish("camera/2", b".", qos)
    bench.frontend.pause_publishers(True)
    assert (alarm.reading, camera.reading, both.reading) == (True, False, False)
    alarm.publish("alert/fire", b"!", qos)
    assert alarm.reading
    alarm.publish("camera/3", b".", qos)
    assert not alarm.reading, "it is like the others now"
    bench.frontend.pause_publishers(False)
    assert (alarm.reading, camera.reading, both.reading) == (True, True, True)
