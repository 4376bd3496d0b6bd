"""A way between two labs: an IP link between a host of each, which then act as routers.

The way plays the wide-area network between two sites. No switch or controller of one lab sees those of the other; a
packet crosses only because it is routed. The labs need different data networks (``network`` in their descriptions).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from lab.build import offload_nothing
from lab.commands import Commands
from lab.counters import Traffic, parse
from lab.lab import Lab
from lab.plan import shaping
from lab.state import LabError

DEVICE = "way0"
"""Name of the interface at either end."""
_ENDS = ("10.76.0.1", "10.76.0.2")


class Way:
    """A way between two labs that are up, by a router in each. It exists inside the block."""

    def __init__(self, one: Lab, other: Lab, routers: tuple[str, str] = ("c1b1", "c1b1")) -> None:
        """`routers` are a host of `one` and a host of `other`.

        Raises `LabError` for labs with the same data network and for unknown hosts."""
        if one.topology.network == other.topology.network:
            raise LabError(f"two labs with the data network {one.topology.subnet} cannot be joined")
        self._spaces = (one.host(routers[0]), other.host(routers[1]))
        self._sides = ((one, other, routers[0], _ENDS[1]), (other, one, routers[1], _ENDS[0]))
        """For each lab: itself, the other lab, its router, and the address of the way's other end."""

    def __enter__(self) -> Self:
        commands = Commands()
        one, other = self._spaces
        commands.ip([f"link add {DEVICE} type veth peer name {DEVICE} netns {other.name}"], one.name)
        for space, own, peer in ((one, _ENDS[0], _ENDS[1]), (other, _ENDS[1], _ENDS[0])):
            with space.inside():
                offload_nothing(DEVICE)
                Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
            commands.ip([f"address add {own} peer {peer} dev {DEVICE}", f"link set {DEVICE} up"], space.name)
        for here, there, router, peer in self._sides:
            gate = here.topology.host(router).ip
            for host in here.topology.hosts:
                via = peer if host.name == router else gate
                commands.ip([f"route add {there.topology.subnet} via {via}"], here.host(host.name).name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(LabError):  # the link is gone if either lab is
            Commands().ip([f"link delete {DEVICE}"], self._spaces[0].name)

    def across(self) -> tuple[Traffic, Traffic]:
        """Return the traffic from the first lab to the second so far, and back."""
        with self._spaces[0].inside():
            received, sent = parse(Path("/proc/thread-self/net/dev").read_text())
        return sent[DEVICE], received[DEVICE]

    def set_rate(self, bits: int | None, *, latency_ms: int = 50, by_priority: bool = False) -> None:
        """Limit each direction to `bits` a second, or lift the limit for None; see `Lab.set_rate`."""
        commands = Commands()
        for space in self._spaces:
            with suppress(LabError):  # there may be no limit yet
                commands.run("tc", "-n", space.name, "qdisc", "delete", "dev", DEVICE, "root")
            for line in () if bits is None else shaping(DEVICE, bits, latency_ms, by_priority=by_priority):
                commands.run("tc", "-n", space.name, *line.split())
