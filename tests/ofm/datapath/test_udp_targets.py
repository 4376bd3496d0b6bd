"""What endpoints keep of the addresses that they have sent to."""

from __future__ import annotations

from contextlib import closing

from saps.ofm.datapath.driver import attached, udp
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.stateless.address import Receivers


async def test_of_very_many_addresses_few_are_kept() -> None:
    """Each set of brokers has its own."""
    direct, plugged = udp.UdpEndpoint(lambda got: None), attached.AttachedEndpoint("127.0.0.1:9", lambda got: None)
    with closing(direct), closing(plugged):
        plugged.plug_in(BrokerAddress("fd00::1", "02:00:00:00:00:01", 7400))
        for number in range(1, 5001):
            address = f"[{Receivers(0, 0, number).address}]:7400"
            direct.send(address, b"x")
            plugged.send(address, b"x")
    kept = [each for endpoint in (direct, plugged) for each in vars(endpoint).values() if isinstance(each, dict)]
    assert all(len(each) <= 4096 for each in kept)
    assert udp.target_of.cache_info().currsize <= 4096
    assert attached._target_of.cache_info().currsize <= 4096
