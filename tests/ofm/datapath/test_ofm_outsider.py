"""On Open vSwitch: who is on the network without a key reads, forges and replays nothing, and gets no answer."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.ofm_attacker import Forger, Sniffer, datagrams, forged
from benchmarks.switchover.load import Load
from lab import Lab, obstacle
from lab.programs import UDP, Mesh
from saps.identity.secret import new_secret
from saps.ofm.keys.sealing import FORM, OVERHEAD

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]

TOPIC = "either/secret/ward1"
RATE = 100


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[Mesh]:
    """Three brokers with sealed links, a controller, an OFGate; the fourth host is a stranger's."""
    if why := obstacle():
        pytest.skip(why)
    secret = tmp_path / "secret"
    secret.write_text(new_secret() + "\n")
    secret.chmod(0o600)
    settings = {"links.plain": "false", "links.secret_file": str(secret)}
    with Lab("tree:2x2", name=f"gk{os.getpid()}", directory=tmp_path / "labs") as lab:
        hosts = [host.name for host in lab.topology.hosts][:3]
        with Mesh(lab, hosts, ofm=True, settings=settings) as made:
            yield made


def counts(mesh: Mesh, host: str) -> dict[str, int]:
    return next(found for found in mesh.order("brokers") if found["broker"] == host)


def test_an_outsider_reads_forges_and_replays_nothing(mesh: Mesh) -> None:
    lab = mesh.lab
    address = {host.name: host.ip for host in lab.topology.hosts}
    stranger = lab.topology.hosts[3].name
    publisher, near, far = mesh.hosts
    outside = Forger(lab.host(stranger), address[stranger])
    at_wire, own = Sniffer(lab.host(far)), Sniffer(lab.host(stranger), inwards=True)
    with Load(lab.host, TOPIC) as load:
        for host in (near, far):
            load.join(f"at-{host}", host, 0, stable=True)
        source = load.publish(publisher, RATE, 0)
        mesh.exploit([TOPIC])
        mesh.until(lambda _: counts(mesh, publisher)["carried"] > RATE, "traffic by OFM")

        # Reading: all that comes to a member's interface, its links to other brokers included.
        wire = at_wire.packets(1.0)
        sealed = datagrams(wire, UDP)
        assert sealed
        assert all(raw[0] == FORM and len(raw) > OVERHEAD for raw in sealed)
        assert not any(TOPIC.encode() in packet or b"secret" in packet for packet in wire)

        # Replaying and forging: straight to the brokers and to the OFM address, as oneself and in the publisher's name.
        before = {host: counts(mesh, host) for host in mesh.hosts}
        tree = next(topic["address"] for topic in mesh.order("status")["topics"] if topic["topic"] == TOPIC)
        ofm = tree.partition(":")[0], int(tree.partition(":")[2])
        label = sealed[0][1:9]
        attacks = sealed[:50] + [forged(kind, label)(n) for kind in ("noise", "label", "count") for n in range(50)]
        attacks += [raw[:-1] + bytes([raw[-1] ^ 1]) for raw in sealed[:50]] + [raw[:30] for raw in sealed[:50]]
        own.packets(0.1)
        for _ in range(4):
            for raw in attacks:
                for pretended in (stranger, publisher):
                    for target in ((address[publisher], UDP), (address[far], UDP), ofm):
                        outside.send((address[pretended], UDP), target, raw)
        mesh.until(lambda _: _attacked(mesh, before, far), "word of the attack")
        assert [packet for packet in own.packets(0.5) if packet[9] in (socket.IPPROTO_ICMP, socket.IPPROTO_UDP)] == []

        load.settle()
        assert load.tally().wrong == 0
        after = {host: counts(mesh, host) for host in mesh.hosts}
        assert source.sent > 0
        for host in (near, far):
            received = after[host]["received"] - before[host]["received"]
            assert received <= after[publisher]["sent"] - before[publisher]["sent"]
        for host in mesh.hosts:
            assert after[host]["duplicates"] == before[host]["duplicates"]
    for tool in (outside, at_wire, own):
        tool.close()


def _attacked(mesh: Mesh, before: dict[str, dict[str, int]], host: str) -> bool:
    """The broker has refused datagrams for each reason there is."""
    now = counts(mesh, host)
    return all(now[reason] > before[host][reason] for reason in ("replayed", "forged", "kept_out"))
