"""Frames of the software switch, against an encoder of their own, and what a host answers."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from saps.ofm.flows.tables import ETH_IPV4, ETH_IPV6, ipv4, mac
from saps.ofm.network.probe import ASKER, probe
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.switch.ethernet import checksum, parse, rewritten, udp
from saps.ofm.switch.host import Host, mac_for
from saps.ofm.switch.packets import Packet
from tests.ofm.frames import encode

ports, macs = st.integers(0, 0xFFFF), st.integers(0, (1 << 48) - 1)


def packets(version: int) -> st.SearchStrategy[Packet]:
    addresses = st.integers(0, (1 << (32 if version == ETH_IPV4 else 128)) - 1)
    return st.builds(
        Packet, macs, macs, addresses, addresses, ports, ports, st.binary(max_size=40), st.just(version),
        ip_dscp=st.integers(0, 63),
    )  # fmt: skip


both = packets(ETH_IPV4) | packets(ETH_IPV6)


@given(both)
def test_what_is_read_is_what_was_written(packet: Packet) -> None:
    assert parse(encode(packet)) == packet
    if packet.eth_type == ETH_IPV4:
        assert parse(udp(packet)) == packet


@given(st.one_of(st.tuples(packets(ETH_IPV4), packets(ETH_IPV4)), st.tuples(packets(ETH_IPV6), packets(ETH_IPV6))))
def test_a_rewritten_frame_is_the_one_that_the_new_headers_would_have_made(pair: tuple[Packet, Packet]) -> None:
    old, new = pair
    new = replace(new, payload=old.payload)
    assert rewritten(encode(old), new) == encode(new)
    if old.eth_type == ETH_IPV4:
        assert checksum(rewritten(udp(old), new)[14:34]) == 0


@given(both, st.integers(0, 100))
def test_a_frame_that_is_cut_short_is_none_or_a_packet_but_no_error(packet: Packet, length: int) -> None:
    frame = encode(packet)[:length]
    found = parse(frame)
    assert found is None or len(found.payload) <= len(packet.payload) or found.eth_type != packet.eth_type


ELEMENT = BrokerAddress("10.77.2.1", mac_for("10.77.2.1"), 7400)
HOST = Host(ELEMENT)


def test_a_host_answers_the_controllers_probe_and_no_other() -> None:
    answer = HOST.receive(probe(ELEMENT))[1]
    assert answer is not None
    assert answer[:14] == ASKER + mac(ELEMENT.mac).to_bytes(6, "big") + b"\x08\x06"
    operation, sender_mac, sender_ip = struct.unpack("!H6s4s", answer[20:32])
    assert (operation, sender_mac.hex(":"), int.from_bytes(sender_ip, "big")) == (2, ELEMENT.mac, ipv4(ELEMENT.ip))
    assert HOST.receive(probe(replace(ELEMENT, ip="10.77.2.2"))) == (None, None)
    assert HOST.receive(HOST.announcement()) == (None, None), "its own, as a switch floods it"
    assert HOST.receive(answer) == (None, None)


def test_a_host_takes_what_the_switches_have_rewritten_to_it_and_nothing_else() -> None:
    sent = parse(
        Host(replace(ELEMENT, ip="10.77.1.1", mac=mac_for("10.77.1.1"))).frame(ipv4("239.77.3.4"), 5001, b"text", 46)
    )
    assert sent is not None
    assert (sent.eth_dst, sent.ip_dst, sent.udp_dst) == (0x01005E4D0304, ipv4("239.77.3.4"), 5001)
    assert (sent.udp_src, sent.ip_dscp) == (7400, 46)
    assert HOST.receive(udp(sent)) == (None, None)
    mine = replace(sent, eth_dst=mac(ELEMENT.mac), ip_dst=ipv4(ELEMENT.ip), udp_dst=ELEMENT.port)
    assert HOST.receive(udp(mine)) == (b"text", None)
    for other in (
        replace(mine, udp_dst=1),
        replace(mine, ip_dst=1),
        replace(mine, eth_dst=1),
        replace(mine, ip_proto=6),
    ):
        assert HOST.receive(rewritten(udp(mine), other)) == (None, None) or other.ip_proto == 6
