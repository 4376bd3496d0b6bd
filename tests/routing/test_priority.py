"""Which topics have priority, and how their datagrams say so."""

from __future__ import annotations

import asyncio
import socket

import pytest

from saps.config.priority import PrioritySettings
from saps.ofm.datapath.driver.udp import UdpEndpoint
from saps.routing.priority import Priorities


def test_filters_select_topics_and_the_level_selects_the_class() -> None:
    priorities = PrioritySettings(topics=("alert/#", "+/siren"), level=6).priorities()
    for topic, level in {"alert": 6, "alert/fire/1": 6, "w1/siren": 6, "w1/siren/x": None, "air": None}.items():
        assert priorities.urgent(topic) is (level is not None)
        assert priorities.level(topic) == level
    assert priorities.dscp == 48
    assert priorities
    assert not Priorities()


@pytest.mark.parametrize("dscp", [0, 40])
async def test_each_datagram_carries_its_own_code_point(dscp: int) -> None:
    """As the receiving host sees it: IP_RECVTOS (ip(7)). The socket's own default stays."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(30)
        endpoint = UdpEndpoint(lambda datagrams: None)
        endpoint.listen("127.0.0.1", 0)
        try:
            address = "{}:{}".format(*receiver.getsockname())
            endpoint.send(address, b"first", dscp)
            endpoint.send(address, b"second")
            for payload, seen in ((b"first", dscp), (b"second", 0)):
                data, found, _, _ = await asyncio.to_thread(receiver.recvmsg, 100, 100)
                assert data == payload
                assert [value[0] >> 2 for _, kind, value in found if kind == socket.IP_TOS] == [seen]
        finally:
            endpoint.close()
        assert endpoint.unsent == 0
