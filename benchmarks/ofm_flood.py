"""What a flood of forged datagrams costs a broker: ``python -m benchmarks.ofm_flood``. Needs root and Open vSwitch.

Three brokers on a tree, 200 messages/s by OFM to two subscribers; a stranger's host floods one broker's port for
datagrams, through the switches, or from the broker's own host, so that nothing holds it up. Counted is the processor
time of the broker's process, from `/proc`; what the kernel does on arrival is charged to whoever sent, behind a switch
to the switches' process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.machine import this_machine
from benchmarks.ofm_attacker import Sniffer, datagrams
from benchmarks.probes import cpu_seconds
from benchmarks.section import update_page
from benchmarks.switchover.load import Load
from lab import Lab
from lab.namespace import Namespace, processes
from lab.programs import UDP, Mesh

PAGE = Path(__file__).resolve().parent.parent / "docs" / "ofm.md"
TOPIC = "either/ward1"
KINDS = {
    "noise": "random bytes",
    "label": "a wrong label",
    "count": "all copied from one on the wire, but the count",
}
MESSAGES = 200.0
"""Messages a second that the topic has meanwhile."""


class Sample(msgspec.Struct, frozen=True):
    """One flood. Rates in 1/s."""

    kind: str
    way: str
    sent: float
    broker: float
    """Processors kept busy by the broker's process."""
    kept_out: float
    """Dropped by the kernel's filter, or for want of room."""
    refused: float
    """Refused by the broker."""
    wrong: int
    """Messages lost, doubled or out of order at the subscribers."""


@contextmanager
def metered(lab: Lab, switch: str, port: int, rate: int) -> Iterator[None]:
    """UDP to a broker's port for datagrams that comes in by a port of a switch passes a meter, packets/s."""

    def ofctl(*words: str) -> None:
        subprocess.run(["ovs-ofctl", "-O", "OpenFlow13", *words], env=lab.environment, check=True)

    match = f"priority=500,in_port={port},udp,tp_dst={UDP}"
    ofctl("add-meter", switch, f"meter=1 pktps bands=type=drop rate={rate}")
    ofctl("add-flow", switch, f"{match},actions=meter:1,NORMAL")
    try:
        yield
    finally:
        ofctl("--strict", "del-flows", switch, match)
        ofctl("del-meter", switch, "meter=1")


def measure(mesh: Mesh, load: Load, kind: str, way: str, rate: float, seconds: float) -> Sample:
    lab = mesh.lab
    victim = lab.topology.host(mesh.hosts[-1])
    place = lab.host(victim.name if way == "its own host" else lab.topology.hosts[3].name)
    (pid,) = processes([lab.host(victim.name).name])
    sniffer = Sniffer(lab.host(victim.name))
    label = datagrams(sniffer.packets(1.0), UDP)[0][1:9]
    sniffer.close()
    before, wrong = _refusals(mesh, victim.name), load.tally().wrong
    began, used = time.monotonic(), cpu_seconds([pid])
    jointly = 25 if place is lab.host(victim.name) else 1
    sent = _flood(place, victim.ip, kind, rate, seconds, label.hex(), jointly)
    took, used = time.monotonic() - began, cpu_seconds([pid]) - used
    after = _refusals(mesh, victim.name)
    mesh.until(lambda _: load.tally().wrong <= wrong + MESSAGES, "the messages that were under way")
    return Sample(kind, way, sent / took, used / took, (after[0] - before[0]) / took, (after[1] - before[1]) / took, 0)


def _flood(space: Namespace, ip: str, kind: str, rate: float, seconds: float, label: str, jointly: int) -> int:
    if kind == "none":
        time.sleep(seconds)
        return 0
    words = ["-m", "benchmarks.ofm_attacker", ip, str(UDP), kind, str(rate), "--seconds", str(seconds)]
    words += ["--label", label, "--jointly", str(jointly)]
    ran = space.run([sys.executable, *words], capture_output=True, text=True)
    return int(ran.stdout)


def _refusals(mesh: Mesh, host: str) -> tuple[int, int]:
    counts = next(found for found in mesh.order("brokers") if found["broker"] == host)
    return counts["kept_out"], sum(counts[why] for why in ("malformed", "unknown_key", "replayed", "forged"))


def run(rate: float, seconds: float, meter: int) -> list[Sample]:
    samples = []
    with (
        tempfile.TemporaryDirectory(prefix="saps-flood-") as folder,
        Lab("tree:2x2", name=f"fl{os.getpid()}", directory=Path(folder) / "labs") as lab,
    ):
        hosts = [host.name for host in lab.topology.hosts][:3]
        stranger = lab.topology.hosts[3]
        with Mesh(lab, hosts, ofm=True) as mesh, Load(lab.host, TOPIC) as load:
            for host in hosts[1:]:
                load.join(f"at-{host}", host, 0, stable=True)
            load.publish(hosts[0], MESSAGES, 0)
            mesh.exploit([TOPIC])

            def take(kind: str, way: str) -> None:
                samples.append(measure(mesh, load, kind, way, rate, seconds))
                print(samples[-1], flush=True)

            take("none", "-")
            for way in ("its own host", "the switches"):
                for kind in KINDS:
                    take(kind, way)
            with metered(lab, stranger.switch, stranger.port, meter):
                for kind in KINDS:
                    take(kind, f"the switches, meter of {meter}/s")
            load.settle()
            print(load.tally())
            wrong = load.tally().wrong
    return [msgspec.structs.replace(sample, wrong=wrong) for sample in samples]


def markdown(samples: list[Sample], rate: float, seconds: float, meter: int) -> str:
    machine = this_machine()
    where = f"{machine.processor}, {machine.processors} processors, busy with other work"
    rows = [
        f"`python -m benchmarks.ofm_flood --rate {rate:.0f} --seconds {seconds:.0f} --meter {meter}`; {where}.",
        "",
        "| the flood | by way of | sent/s | broker's process | dropped by the kernel/s | refused by the broker/s |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    rows += [
        f"| {KINDS.get(s.kind, 'no flood')} | {s.way} | {s.sent:,.0f} | {100 * s.broker:.1f} % "
        f"| {s.kept_out:,.0f} | {s.refused:,.0f} |"
        for s in samples
    ]
    rows += ["", f"Of the topic's messages {samples[-1].wrong} were lost, duplicated or out of order."]
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rate", type=float, default=50_000.0, help="packets a second")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each flood")
    parser.add_argument("--meter", type=int, default=1000, help="packets a second that the meter lets through")
    parser.add_argument("--dry", action="store_true", help="write nothing into docs/ofm.md")
    arguments = parser.parse_args()
    samples = run(arguments.rate, arguments.seconds, arguments.meter)
    text = markdown(samples, arguments.rate, arguments.seconds, arguments.meter)
    print(text)
    if not arguments.dry:
        update_page(PAGE, "flood", text)


if __name__ == "__main__":
    main()
