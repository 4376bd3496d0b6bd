"""The lab: builds and takes down a test network, gives access to its members and counters, and disturbs it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Self

from lab.build import announce, build, clear, members, namespaces
from lab.commands import Commands, obstacle, wait_until
from lab.counters import Counters, reader
from lab.interrupts import deferred
from lab.namespace import Namespace
from lab.openvswitch import OpenVSwitch
from lab.plan import shaping
from lab.state import (
    DIRECTORY,
    LabError,
    State,
    checked_name,
    everything,
    exclusive,
    load,
    this_process,
    topology_of,
)
from saps.ofm.switch.topologies import SWITCHES, Link, Switch, Topology

Endpoint = tuple[str, int]
"""Host and port of a controller."""


class Lab:
    """Hosts in network namespaces, joined by Open vSwitch switches.

    As a context manager a lab ends with the block. If its process is killed, the next `up` or `down` of any lab clears
    it away. A lab made by `up` stays until `down`, and any process finds it by `open`. Labs need root: see `obstacle`.

    ``controller`` is the address of the switches' OpenFlow controller, or of several, as seen from the switches'
    namespace. Start the controller there (``lab.switches.popen``), or listen there from this process
    (``lab.switches.listen``). From there all hosts are reachable at their management addresses, and the hosts reach it
    at `MANAGEMENT_GATE`. Without a connected controller the switches keep their flow entries; the first one sends
    everything `NORMAL`.
    """

    def __init__(
        self,
        topology: str | Topology,
        *,
        controller: Endpoint | list[Endpoint] | None = None,
        name: str | None = None,
        directory: Path = DIRECTORY,
        ipv6: bool = False,
    ) -> None:
        """`topology` is one word (``tree:4x2``), a TOML document, or a value. Without `name` the process id names it.

        `directory` keeps the state of labs. With `ipv6` the hosts have IPv6 addresses on the data network as well.
        Raises `TopologyError`, and `LabError` for an invalid name."""
        self.topology = topology_of(topology) if isinstance(topology, str) else topology
        self.name = checked_name(f"lab{os.getpid()}" if name is None else name)
        self._directory = directory
        self.ipv6 = ipv6
        self._state = State(self.name, self.topology.text, ipv6, target(controller))
        self._folder = self._state.folder(directory)
        spaces = members(self.name, self.topology, self._folder)
        self.switches: Namespace = spaces.pop(SWITCHES)
        """The namespace of the switches, and of the controller."""
        self._hosts = spaces
        self._ovs = OpenVSwitch(self._folder / "ovs", self.switches, self.topology)
        self._read = reader(self.topology, self.switches)

    @classmethod
    def open(cls, name: str, directory: Path = DIRECTORY) -> Lab:
        """Return a lab that any process has built. Raises `LabError` if there is no complete lab of that name."""
        state = load(directory, checked_name(name))
        if state is None or not state.complete:
            raise LabError(f"there is no lab {name!r}" if state is None else f"lab {name!r} is not complete")
        lab = cls(state.planned(), name=name, directory=directory, ipv6=state.ipv6)
        lab._state = state
        return lab

    def __enter__(self) -> Self:
        self._state.owner = this_process()
        self.up()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.down()

    def up(self) -> None:
        """Build the lab; a failure leaves nothing behind. Orphans of any name are cleared away first.

        Raises `LabError`, also if a lab of this name is up already."""
        if why := obstacle():
            raise LabError(why)
        built = False
        try:
            with deferred(), exclusive(self._directory) as lock:
                self._build(lock)
                built = True
        except BaseException:
            if built:
                self.down()
            raise

    def _build(self, lock: int) -> None:
        sweep(self._directory, lock)
        if load(self._directory, self.name) is not None:
            raise LabError(f"lab {self.name!r} is up already: take it down first, or give this one another name")
        if taken := namespaces(self.name):
            raise LabError(f"there is a namespace {taken[0]} already, and no lab in {self._directory} has made it")
        try:
            self._save(complete=False)
            build(self._state, self._folder, lock)
            self._save(complete=True)
        except BaseException:
            clear(self._state, self._folder, lock)
            raise

    def _save(self, *, complete: bool) -> None:
        self._state.complete = complete
        self._state.save(self._directory)

    def down(self) -> None:
        """Clear the lab away with every process in it. Does nothing if the lab is not up."""
        take_down(self.name, self._directory)

    @property
    def controller(self) -> str | None:
        """Target that the switches connect to, in Open vSwitch's notation; several are separated by spaces."""
        return self._state.controller

    @property
    def environment(self) -> dict[str, str]:
        """Environment in which `ovs-ofctl`, `ovs-vsctl` and `ovs-appctl` address this lab's switches."""
        return self.switches.environment

    def host(self, name: str) -> Namespace:
        """Return a host's namespace. Raises `LabError` for an unknown host."""
        try:
            return self._hosts[name]
        except KeyError:
            raise LabError(f"lab {self.name!r} has no host {name!r}; it has {', '.join(self._hosts)}") from None

    def counters(self) -> Counters:
        """Return a snapshot of the traffic that has crossed each link."""
        return self._read()

    def set_controller(self, controller: Endpoint | list[Endpoint] | None) -> None:
        """Connect all switches to another controller, to several, or to none. Their tables stay."""
        self._state.controller = target(controller)
        self._ovs.set_controller(self._state.controller)
        self._state.save(self._directory)

    def set_link(self, a: str, b: str, *, up: bool, number: int = 1) -> None:
        """Take a link between two switches down or up, and wait until both have seen it.

        `number` selects one of parallel links. Raises `LabError` for switches that are no neighbours."""
        link = self._link(a, b, number)
        ends = (link.name, link.reverse)
        Commands().ip([f"link set {ends[0]} {'up' if up else 'down'}"], self.switches.name)
        wait_until(lambda: self._seen(ends) is up, f"link {a}-{b} to go {'up' if up else 'down'}")

    def _seen(self, ends: tuple[str, str]) -> bool | None:
        """Return whether the switches see a link as up; None if its two ends differ."""
        states = self._ovs.vsctl("--bare", "--columns=link_state", "list", "Interface", *ends).split()
        return {("up", "up"): True, ("down", "down"): False}.get(tuple(states))  # type: ignore[arg-type]

    def set_rate(self, a: str, b: str, bits: int | None, *, latency_ms: int = 50, by_priority: bool = False) -> None:
        """Limit the traffic from switch `a` to `b` to `bits` a second (token bucket), or lift the limit for None.

        Packets that would wait longer than `latency_ms` are dropped. More than 50 ms, or several limited links at once,
        can lose packets on other links too, because all ports share one send buffer. With `by_priority`, packets with a
        class selector in their DSCP go first. Raises `LabError`."""
        link = self._link(a, b)
        device = link.name if a == link.a else link.reverse
        commands, tc = Commands(), ("tc", "-n", self.switches.name)
        with suppress(LabError):  # there may be no limit yet
            commands.run(*tc, "qdisc", "delete", "dev", device, "root")
        for line in () if bits is None else shaping(device, bits, latency_ms, by_priority=by_priority):
            commands.run(*tc, *line.split())

    def stop_switch(self, name: str) -> None:
        """Remove a switch from the network; its links stay but carry nothing. Raises `LabError`."""
        self._ovs.remove([self._switch(name)])

    def start_switch(self, name: str) -> None:
        """Put a stopped switch back as after power-on: its tables have only `NORMAL`, and it looks for its controller.

        Raises `LabError`."""
        self._ovs.add([self._switch(name)], self._state.controller)

    def restart_switch(self, name: str) -> None:
        """Stop and start a switch, which loses its tables. Raises `LabError`."""
        self.stop_switch(name)
        self.start_switch(name)

    def announce(self) -> None:
        """Have every host announce its place to every switch again. Call it after a `NORMAL` path has changed."""
        announce({SWITCHES: self.switches, **self._hosts}, self.topology)

    def _link(self, a: str, b: str, number: int = 1) -> Link:
        try:
            return self.topology.link(a, b, number)
        except KeyError:
            of = "" if number == 1 else f" {number}"
            raise LabError(f"lab {self.name!r} has no link{of} between {a!r} and {b!r}") from None

    def _switch(self, name: str) -> Switch:
        for switch in self.topology.switches:
            if switch.name == name:
                return switch
        raise LabError(f"lab {self.name!r} has no switch {name!r}")


def target(controller: Endpoint | list[Endpoint] | None) -> str | None:
    """Return controllers' addresses in Open vSwitch's notation, separated by spaces, or None if there are none."""
    several = controller if isinstance(controller, list) else [controller] if controller is not None else []
    written = (f"tcp:[{host}]:{port}" if ":" in host else f"tcp:{host}:{port}" for host, port in several)
    return " ".join(written) or None


def sweep(directory: Path, lock: int) -> list[str]:
    """Clear away orphaned labs, whose process was killed, and return their names. The caller holds the `lock`."""
    orphans = [state for state in everything(directory) if state.orphaned]
    for state in orphans:
        clear(state, state.folder(directory), lock)
    return [state.name for state in orphans]


def take_down(name: str, directory: Path = DIRECTORY) -> list[str]:
    """Clear away the lab of that name and all orphans, and return the names of those found. Raises `LabError`."""
    if why := obstacle():
        raise LabError(why)
    with deferred(), exclusive(directory) as lock:
        gone = sweep(directory, lock)
        state = load(directory, checked_name(name))
        if state is not None:
            clear(state, state.folder(directory), lock)
            gone.append(name)
    return gone
