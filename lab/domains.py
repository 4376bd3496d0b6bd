"""Two OpenFlow domains on one machine: two labs with switches, a controller and an OFGate each, one mesh over both.

::

    with TwoDomains(("tokyo", "osaka")) as domains:
        domains.exploit(["alert/fire"])
        print(domains.way.across())

All that joins them is the IP way between two routers (`lab.way`): neither controller sees the other's switches,
and no tree crosses it. Each domain is a cluster path, and has a core switch, where its router is, and edge switches,
clusters of their own below it, with a broker on each host.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab.lab import Lab
from lab.programs import Mesh
from lab.state import DIRECTORY, LabError
from lab.way import Way
from saps.ofm.switch.topologies import Topology, from_toml

NETWORKS = (77, 87)
"""Second bytes of the two data networks."""
ROUTER = "c1b1"
"""The host of each domain that has no broker."""


def domain(name: str, network: int, clusters: int = 2, brokers: int = 1) -> Topology:
    """The switches and hosts of a domain: its router, and `brokers` hosts in each of `clusters` clusters."""
    edges = range(1, clusters + 1)
    links = ", ".join(f'["core", "s{edge}"]' for edge in edges)
    lines = [f"network = {network}", f"links = [{links}]", "[switches]", f'core = {{ cluster = "{name}", hosts = 1 }}']
    lines += [f's{edge} = {{ cluster = "{name}/ward{edge}", hosts = {brokers} }}' for edge in edges]
    return from_toml("\n".join(lines))


class TwoDomains:
    """Both domains with everything in them, up inside the block. Raises `LabError` if something does not start."""

    def __init__(
        self,
        names: tuple[str, str] = ("tokyo", "osaka"),
        *,
        clusters: int = 2,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        management: bool = False,
        name: str | None = None,
        directory: Path = DIRECTORY,
    ) -> None:
        """`clusters` in each domain with `brokers` each; `settings` and `management`: see `Mesh`. `name` begins the
        names of the labs."""
        self.names = names
        label = f"lab{os.getpid()}" if name is None else name
        self.labs = {
            place: Lab(domain(place, network, clusters, brokers), name=f"{label}-{network}", directory=directory)
            for place, network in zip(names, NETWORKS, strict=True)
        }
        """By domain."""
        self.meshes: dict[str, Mesh] = {}
        """By domain; together they are one mesh."""
        self.way = Way(self.labs[names[0]], self.labs[names[1]], (ROUTER, ROUTER))
        self._settings, self._management = settings, management
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for lab in self.labs.values():
                stack.enter_context(lab)
            stack.enter_context(self.way)
            contacts: list[str] = []
            for place, lab in self.labs.items():
                mesh = Mesh(
                    lab,
                    [host.name for host in lab.topology.hosts if host.name != ROUTER],
                    ofm=True,
                    management=self._management,
                    settings=self._settings,
                    prefix=f"{place}-",
                    join=contacts,
                    domains=self.names,
                )
                self.meshes[place] = stack.enter_context(mesh)
                contacts.append(mesh.contact)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def exploit(self, topics: Iterable[str]) -> None:
        """Have OFGate of each domain use OFM for these topics: in each they must have subscribers. Returns when all
        trees are there. Raises `LabError`."""
        wanted = list(topics)
        for mesh in self.meshes.values():
            mesh.exploit(wanted)

    def counts(self) -> dict[str, dict[str, Any]]:
        """What each broker counts (`saps ofgate`, order `brokers`), by name. Raises `LabError`."""
        found = {}
        for place, mesh in self.meshes.items():
            for each in mesh.order("brokers"):
                if str(each["broker"]).startswith(f"{place}-"):
                    found[str(each["broker"])] = each
        return found

    def brokers(self) -> Iterator[tuple[str, str]]:
        """Each broker's domain and host."""
        for place, mesh in self.meshes.items():
            yield from ((place, host) for host in mesh.hosts)

    def failed(self) -> list[str]:
        """A line for each program that has ended unasked."""
        return [line for mesh in self.meshes.values() for line in mesh.failed()]

    def check(self) -> None:
        """Raises `LabError` if a program has ended unasked."""
        if failed := self.failed():
            raise LabError("\n".join(failed))
