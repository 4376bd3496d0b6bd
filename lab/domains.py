"""Two OpenFlow domains on one machine: two labs, each with switches, a controller and an OFGate, and one mesh over
both.

::

    with TwoDomains(("tokyo", "osaka")) as domains:
        domains.exploit(["alert/fire"])
        print(domains.way.across())

Only the IP way between two routers (`lab.way`) joins the domains: neither controller sees the other's switches, and no
tree crosses the way. Each domain is a cluster path. It has a core switch with the router, and edge switches, which are
clusters below the path, with a broker on each host.
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
"""Second byte of the addresses of each data network."""
ROUTER = "c1b1"
"""The host of each domain that is its router and has no broker."""


def domain(name: str, network: int, clusters: int = 2, brokers: int = 1) -> Topology:
    """Return the topology of a domain: its router, and `brokers` hosts in each of `clusters` clusters."""
    edges = range(1, clusters + 1)
    links = ", ".join(f'["core", "s{edge}"]' for edge in edges)
    lines = [f"network = {network}", f"links = [{links}]", "[switches]", f'core = {{ cluster = "{name}", hosts = 1 }}']
    lines += [f's{edge} = {{ cluster = "{name}/ward{edge}", hosts = {brokers} }}' for edge in edges]
    return from_toml("\n".join(lines))


class TwoDomains:
    """Both domains with all their programs, which run inside the block.

    Entering the block raises `LabError` if a program does not start."""

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
        """Each domain has `clusters` clusters with `brokers` brokers each; see `Mesh` for `settings` and `management`.

        `name` begins the names of the labs; None: the process id names them."""
        self.names = names
        label = f"lab{os.getpid()}" if name is None else name
        self.labs = {
            place: Lab(domain(place, network, clusters, brokers), name=f"{label}-{network}", directory=directory)
            for place, network in zip(names, NETWORKS, strict=True)
        }
        """Lab of each domain."""
        self.meshes: dict[str, Mesh] = {}
        """Brokers of each domain; together they are one mesh."""
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
        """Have each domain's OFGate use OFM for these topics, and wait until all trees are constructed.

        The topics must have subscribers in each domain. Raises `LabError`."""
        wanted = list(topics)
        for mesh in self.meshes.values():
            mesh.exploit(wanted)

    def counts(self) -> dict[str, dict[str, Any]]:
        """Return the counts of each broker (`saps ofgate`, order `brokers`), by name. Raises `LabError`."""
        found = {}
        for place, mesh in self.meshes.items():
            for each in mesh.order("brokers"):
                if str(each["broker"]).startswith(f"{place}-"):
                    found[str(each["broker"])] = each
        return found

    def brokers(self) -> Iterator[tuple[str, str]]:
        """Yield each broker's domain and host."""
        for place, mesh in self.meshes.items():
            yield from ((place, host) for host in mesh.hosts)

    def failed(self) -> list[str]:
        """Return a text for each program that has ended by itself."""
        return [line for mesh in self.meshes.values() for line in mesh.failed()]

    def check(self) -> None:
        """Raise `LabError` if a program has ended by itself."""
        if failed := self.failed():
            raise LabError("\n".join(failed))
