"""The UDP endpoint with IPv6 addresses, which coded OFM addresses need."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing

import pytest

from saps.ofm.datapath.driver.udp import UdpEndpoint, mac_of


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


async def test_datagrams_go_from_one_ipv6_address_to_another() -> None:
    got: asyncio.Queue[list[bytes]] = asyncio.Queue()
    receiver = UdpEndpoint(got.put_nowait)
    sender = UdpEndpoint(lambda datagrams: None)
    with closing(receiver), closing(sender):
        host, port = receiver.listen("::1", 0)
        sender.listen("::1", 0)
        sender.send(f"[{host}]:{port}", b"hello", dscp=46)
        async with asyncio.timeout(30):
            assert await got.get() == [b"hello"]


def test_the_interface_of_an_ipv6_address_is_found() -> None:
    assert mac_of("::1") == "00:00:00:00:00:00"
    assert mac_of("2001:db8::77") is None
