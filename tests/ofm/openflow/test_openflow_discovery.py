"""Links from probes and hosts from packets: forged frames say nothing, and the events always add up to the state."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.ofm.network.topology import Link, Port
from saps.ofm.openflow.discovery import MISSES, LinkDown, LinkTable, LinkUp, LoopFound
from saps.ofm.openflow.hosts import HostGone, HostSeen, HostTable, sender
from saps.ofm.openflow.lldp import probe, read_probe
from saps.ofm.openflow.tracker import Sighting, Tracker
from tests.ofm.openflow import frames

SECRET = b"secret"
every_port = st.builds(Port, st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 32) - 1))
A1, A2, B1, B2, C1 = Port(1, 1), Port(1, 2), Port(2, 1), Port(2, 2), Port(3, 1)


# ---- frames


@given(every_port, st.integers(0, (1 << 48) - 1), st.integers(0, 0xFFFF))
def test_a_probe_says_where_it_comes_from(port: Port, mac: int, ttl: int) -> None:
    frame = probe(port, mac, ttl, SECRET)
    assert read_probe(frame, SECRET) == port
    assert read_probe(frame + bytes(20), SECRET) == port, "padded to the least size of a frame"
    assert read_probe(frame, b"another secret") is None


@given(every_port, every_port, st.data())
def test_a_probe_with_another_name_is_not_believed(port: Port, claimed: Port, data: st.DataObject) -> None:
    frame = bytearray(probe(port, 1, 10, SECRET))
    for place in data.draw(st.lists(st.integers(14, len(frame) - 1), min_size=1, max_size=4)):
        frame[place] ^= data.draw(st.integers(0, 255))
    assert read_probe(bytes(frame), SECRET) in (port, None)
    code = probe(port, 1, 10, SECRET)[-18:]
    mixed = probe(claimed, 1, 10, b"")[:-18] + code
    assert read_probe(mixed, SECRET) == (port if claimed == port else None)


@given(st.binary(max_size=100), st.sampled_from([b"\x08\x06", b"\x08\x00", b"\x86\xdd", b"\x88\xcc"]))
def test_any_bytes_are_read_without_a_fault(body: bytes, kind: bytes) -> None:
    frame = frames.BROADCAST + frames.mac(1) + kind + body
    assert read_probe(frame, SECRET) is None
    who = sender(frame)
    assert who in (None, 0x020000000001)


@pytest.mark.parametrize(
    ("frame", "ip"),
    [
        pytest.param(frames.arp(7, "10.0.0.7"), "10.0.0.7", id="ARP"),
        pytest.param(frames.solicitation(7, "fe80::7"), "fe80::7", id="neighbour solicitation"),
        pytest.param(frames.tagged(frames.arp(7, "10.0.0.7"), 0x8100, 100), "10.0.0.7", id="ARP in a VLAN"),
        pytest.param(
            frames.tagged(frames.tagged(frames.solicitation(7, "fe80::7"), 0x8100, 100), 0x88A8, 7),
            "fe80::7",
            id="neighbour solicitation in a VLAN of a provider's",
        ),
        pytest.param(
            frames.tagged(frames.tagged(frames.tagged(frames.arp(7, "10.0.0.7"), 0x8100, 1), 0x8100, 2), 0x8100, 3),
            None,
            id="three tags",
        ),
        pytest.param(frames.udp4(7, "10.0.0.7", "239.77.0.1", 5000), "10.0.0.7", id="UDP"),
        pytest.param(frames.arp(7, "0.0.0.0"), None, id="ARP probe (RFC 5227)"),
        pytest.param(frames.arp(7, "224.0.0.1"), None, id="multicast"),
        pytest.param(frames.solicitation(7, "::"), None, id="duplicate address detection"),
        pytest.param(frames.arp(7, "10.0.0.7")[:41], None, id="cut short"),
        pytest.param(frames.arp(7, "10.0.0.7").replace(frames.mac(7), frames.mac(8), 1), None, id="two MACs"),
        pytest.param(frames.arp(7, "10.0.0.7").replace(frames.mac(7), b"\3" + bytes(5)), None, id="multicast MAC"),
        pytest.param(frames.BROADCAST + frames.mac(7) + b"\x08\x00" + bytes(46), None, id="not IPv4"),
    ],
)
def test_who_sent_a_frame(frame: bytes, ip: str | None) -> None:
    assert sender(frame) == (0x020000000007 if ip else None)


# ---- links


def test_a_link_exists_when_probes_have_crossed_it_both_ways() -> None:
    table = LinkTable()
    assert table.arrived(A1, B1) == []
    assert table.arrived(B1, A1) == [LinkUp(Link.of(A1, B1))]
    assert table.arrived(A1, B1) == []


def test_a_link_that_loses_probes_in_a_row_one_way_is_down() -> None:
    table = LinkTable()
    for _ in range(5):
        table.sent(A1)
        table.sent(B1)
        table.arrived(A1, B1)
        table.arrived(B1, A1)
    for _ in range(MISSES + 1):
        table.arrived(B1, A1)
        assert table.sent(A1) == []
    assert table.sent(A1) == [LinkDown(Link.of(A1, B1))]
    assert table.arrived(A1, B1) == [LinkUp(Link.of(A1, B1))]


def test_a_port_that_leads_elsewhere_takes_its_link_with_it() -> None:
    table = LinkTable()
    table.arrived(A1, B1)
    table.arrived(B1, A1)
    assert table.arrived(A1, C1) == [LinkDown(Link.of(A1, B1))]
    assert table.arrived(C1, A1) == [LinkUp(Link.of(A1, C1))]
    assert table.links == {Link.of(A1, C1)}


def test_a_port_hears_one_other_port() -> None:
    table = LinkTable()
    table.arrived(A1, B1)
    table.arrived(C1, B1)
    assert not table.is_internal(A1)
    assert table.far(C1) == B1


def test_probes_to_a_switch_that_is_away_are_not_missed() -> None:
    """It forwards on, and cannot tell of the probes it gets."""
    tracker = Tracker(SECRET, 10)
    tracker.frame(B1, tracker.probe(A1, 1))
    tracker.frame(A1, tracker.probe(B1, 1))
    assert [event for _ in range(20) for event in tracker.probed(A1, {1})] == []
    lost = [event for _ in range(20) for event in tracker.probed(A1, {1, 2})]
    assert lost == [LinkDown(Link.of(A1, B1))]


def test_a_cable_from_a_switch_to_itself_is_no_link() -> None:
    table = LinkTable()
    assert table.arrived(A1, A2) == [LoopFound(A1, A2)]
    assert table.arrived(A2, A1) == table.arrived(A1, A2) == table.arrived(A1, A1) == [], "it is told once"
    assert not table.is_internal(A1)
    table.port_lost(A2)
    assert table.arrived(A2, A1) == [LoopFound(A1, A2)], "it is plugged in again"


# ---- links and hosts together


@dataclass(frozen=True)
class Seen:
    """A host's frame came in."""

    host: int
    at: Port


@dataclass(frozen=True)
class Probed:
    """A probe of `source` came in, or was lost."""

    source: Port
    at: Port | None


@dataclass(frozen=True)
class Lost:
    """A port went down, or its whole switch went for good."""

    port: Port
    switch: bool


ports = st.sampled_from([A1, A2, B1, B2, C1])
steps = st.one_of(
    st.builds(Seen, st.integers(1, 3), ports),
    st.builds(Probed, ports, st.none() | ports),
    st.builds(Probed, ports, st.none() | ports),
    st.builds(Lost, ports, st.booleans()),
)


def carry_out(tracker: Tracker, step: Seen | Probed | Lost) -> list[Sighting]:
    match step:
        case Seen(host, at):
            return tracker.frame(at, frames.arp(host, f"10.0.0.{host}"))[0]
        case Probed(source, at):
            frame = tracker.probe(source, 1)
            events = tracker.probed(source, {1, 2, 3})
            return events + (tracker.frame(at, frame)[0] if at else [])
        case Lost(port, switch):
            return tracker.switch_lost(port.dpid) if switch else tracker.port_lost(port)


@given(st.lists(steps, max_size=60))
def test_the_events_add_up_to_the_state(history: list[Seen | Probed | Lost]) -> None:
    tracker = Tracker(SECRET, 10)
    links: set[Link] = set()
    hosts: dict[int, Port] = {}
    for step in history:
        for event in carry_out(tracker, step):
            match event:
                case LinkUp(link):
                    assert link not in links
                    links.add(link)
                case LinkDown(link):
                    links.remove(link)
                case HostSeen(mac, at):
                    hosts[mac] = at
                case HostGone(mac):
                    del hosts[mac]
        assert links == tracker.links.links
        assert hosts == tracker.hosts.hosts
        ends = [end for link in links for end in link]
        assert len(ends) == len(set(ends)), "a port has one link"
        assert not set(ends) & set(hosts.values()), "no host is at a port that leads to a switch"


def test_a_host_seen_along_its_packets_way_is_where_they_came_in_first() -> None:
    """Before the links are known every switch on the way looks like the host's."""
    tracker = Tracker(SECRET, 10)
    frame = frames.arp(1, "10.0.0.1")
    for at in (A2, B1, C1):
        tracker.frame(at, frame)
    for source, at in [(A1, B1), (B1, A1), (B2, C1), (C1, B2)]:
        tracker.frame(at, tracker.probe(source, 1))
    assert tracker.hosts.hosts == {0x020000000001: A2}


def test_a_host_at_a_port_that_went_down_is_nowhere() -> None:
    table = HostTable()
    table.seen(1, A1)
    table.seen(1, B1)
    assert table.port_lost(B1) == [HostGone(1)]
    assert table.hosts == {}


def test_a_host_with_two_addresses_is_not_gone_when_its_former_port_goes_down() -> None:
    tracker = Tracker(SECRET, 10)
    for frame, at in [(frames.arp(1, "10.0.0.1"), A1), (frames.solicitation(1, "fe80::1"), A1)]:
        tracker.frame(at, frame)
    tracker.frame(B1, frames.arp(1, "10.0.0.1"))
    assert tracker.port_lost(A1) == []
    assert tracker.hosts.hosts == {0x020000000001: B1}


def test_a_host_forgotten_for_want_of_room_is_not_told_to_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saps.ofm.openflow.hosts.MOST", 2)
    table = HostTable()
    for mac in (1, 2, 1):
        table.seen(mac, A1)
    assert table.seen(3, A1) == HostSeen(3, A1)
    assert set(table.hosts) == {1, 3}
