"""Switches by way of Ryu's stock calls: `ofctl_rest`, and `rest_topology` with `--observe-links`.

The calls answer before a switch has done, or refused, what it was sent, and there is no barrier: whether a batch of
changes is in effect is read back. Nor can a host be looked for: one that the controller has not seen is waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterable
from typing import Any

import aiohttp
import msgspec

from saps.ofm.controller import Controller
from saps.ofm.desk import Desk
from saps.ofm.events import (
    Applied,
    Apply,
    Event,
    Failed,
    HostMoved,
    LinkChanged,
    PortChanged,
    Read,
    Settled,
    SwitchDown,
    SwitchGone,
    SwitchUp,
    TablesRead,
)
from saps.ofm.northbound import ryu
from saps.ofm.northbound.client import PATIENCE, UnreachableError
from saps.ofm.openflow.server import LAST_PORT
from saps.ofm.openflow.values import FlowCount, PortCount
from saps.ofm.plan import COOKIE, COOKIE_MASK
from saps.ofm.reconcile import difference
from saps.ofm.tables import Barrier, Change, DropFlow, DropGroup, DropMeter, PutFlow, PutGroup, PutMeter, Tables
from saps.ofm.topology import Link, Port

logger = logging.getLogger(__name__)

LOOK = 1.0
"""Seconds between looks at the network. Less notices failures sooner, and costs three requests and one a switch."""
AGAIN = 1.0
"""Seconds until a switch that did not do what it was asked is read again."""
ROUNDS = 5
"""Looks until the network is taken to have shown itself."""
_DOWN = 1
"""Bit of a port's `config` and `state`: taken down, no carrier (OpenFlow 1.3.5, 7.2.1)."""


class OfctlDesk(Desk):
    """The switches of such a controller, from `start` to `close`."""

    def __init__(self, machine: Controller, url: str, *, look: float = LOOK) -> None:
        super().__init__(machine)
        self._url = url.rstrip("/")
        self._look_every = look
        self._session: aiohttp.ClientSession | None = None
        self._ports: dict[int, dict[int, bool]] = {}
        """Ports of each switch that the controller has."""
        self._links: set[Link] = set()
        self._hosts: dict[str, Port] = {}
        self._groups: dict[int, set[int]] = {}
        """Groups known to be in each switch: to modify a group is something else than to add it."""
        self._talks: dict[int, asyncio.Task[None]] = {}
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin. Raises `UnreachableError` if the controller does not answer."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE))
        await self._look()
        self._watching = asyncio.get_running_loop().create_task(self._watch_network())

    async def close(self) -> None:
        """End. The switches keep what they have."""
        tasks = [task for task in (self._watching, *self._talks.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    # ---- the network

    async def _watch_network(self) -> None:
        rounds = 0
        while True:
            await asyncio.sleep(self._look_every)
            try:
                await self._look()
            except UnreachableError as error:
                logger.warning("%s", error)
                continue
            rounds += 1
            if rounds == ROUNDS:
                self.handle(Settled(set(self._ports), self._links))

    async def _look(self) -> None:
        """Hands what has changed since the last look to the machine."""
        ports = {dpid: _up(await self._stats("portdesc", dpid)) for dpid in await self._ask("GET", "/stats/switches")}
        links = ryu.links(await self._ask("GET", "/v1.0/topology/links"))
        hosts = ryu.hosts(await self._ask("GET", "/v1.0/topology/hosts"))
        for event in self._news(ports, links, hosts):
            self.handle(event)

    def _news(self, ports: dict[int, dict[int, bool]], links: set[Link], hosts: dict[str, Port]) -> Iterable[Event]:
        before, self._ports = self._ports, ports
        gone, self._links = self._links - links, links
        moved = {host: place for host, place in hosts.items() if self._hosts.get(host) != place}
        vanished, self._hosts = self._hosts.keys() - hosts.keys(), hosts
        for dpid in sorted(before.keys() - ports.keys()):
            if (talk := self._talks.pop(dpid, None)) is not None:
                talk.cancel()
            yield SwitchDown(dpid)
            yield SwitchGone(dpid)
        for dpid in sorted(ports.keys() - before.keys()):
            yield SwitchUp(dpid, ports[dpid])
        for dpid in sorted(ports.keys() & before.keys()):
            for port, up in ports[dpid].items():
                if before[dpid].get(port) is not up:
                    yield PortChanged(Port(dpid, port), up)
        yield from (LinkChanged(link, up=False) for link in sorted(gone))
        yield from (LinkChanged(link, up=True) for link in sorted(links))
        yield from (HostMoved(host, None) for host in sorted(vanished))
        yield from (HostMoved(host, place) for host, place in sorted(moved.items()))

    # ---- switches

    def connected(self) -> Collection[int]:
        """See `Desk`, as for all that follow."""
        return self._ports.keys()

    async def flow_counts(self, dpid: int, cookie: int) -> list[FlowCount]:
        question = {"cookie": cookie, "cookie_mask": (1 << 64) - 1}
        return [*ryu.flow_counts(await self._stats("flow", dpid, question))]

    async def port_counts(self, dpid: int) -> list[PortCount]:
        return [*ryu.port_counts(await self._stats("port", dpid))]

    def carry_out(self, effect: Read | Apply) -> None:
        if effect.dpid in self._ports:
            work = self._apply(effect) if isinstance(effect, Apply) else self._read(effect)
            self._talks[effect.dpid] = asyncio.get_running_loop().create_task(self._hear(effect.dpid, work))

    async def _hear(self, dpid: int, work: Coroutine[None, None, Event]) -> None:
        try:
            event = await work
        except UnreachableError as error:
            logger.warning("%s", error)
            event = Failed(dpid, str(error))
        except (LookupError, TypeError, ValueError) as error:
            logger.warning("switch %016x: the controller's answer makes no sense: %r", dpid, error)
            event = Failed(dpid, f"the controller's answer makes no sense: {error!r}")
        self.handle(event)

    async def _read(self, effect: Read) -> Event:
        if effect.again:
            await asyncio.sleep(AGAIN)
        return TablesRead(effect.dpid, await self._tables(effect.dpid))

    async def _tables(self, dpid: int) -> Tables:
        flows = await self._stats("flow", dpid, {"cookie": COOKIE, "cookie_mask": COOKIE_MASK})
        found = ryu.tables(flows, await self._stats("groupdesc", dpid))
        self._groups[dpid] = set(found.groups)
        return found

    async def _apply(self, effect: Apply) -> Event:
        for change in effect.changes:
            await self._change(effect.dpid, change)
        found = await self._tables(effect.dpid)
        for change in effect.changes:
            if not _in_effect(change, found):
                return Failed(effect.dpid, f"switch {effect.dpid:016x} did not take a change", change)
        return Applied(effect.dpid)

    async def _change(self, dpid: int, change: Change) -> None:
        groups = self._groups.setdefault(dpid, set())
        match change:
            case PutFlow(flow):
                await self._ask("POST", "/stats/flowentry/add", ryu.flow_entry(dpid, flow))
            case DropFlow(flow):
                await self._ask("POST", "/stats/flowentry/delete_strict", ryu.flow_entry(dpid, flow))
            case PutGroup(group):
                command = "modify" if group.id in groups else "add"
                await self._ask("POST", f"/stats/groupentry/{command}", ryu.group_entry(dpid, group))
                groups.add(group.id)
            case DropGroup(id):
                await self._ask("POST", "/stats/groupentry/delete", {"dpid": dpid, "group_id": id})
                groups.discard(id)
            case Barrier():
                # The nearest there is: switches that keep the order of messages answer when they have done the rest.
                await self._stats("desc", dpid)

    # ---- requests

    async def _stats(self, what: str, dpid: int, question: dict[str, Any] | None = None) -> Any:
        answer = await self._ask("GET" if question is None else "POST", f"/stats/{what}/{dpid}", question)
        return answer[str(dpid)]

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """One request; None for an empty answer. Raises `UnreachableError`."""
        assert self._session is not None
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with self._session.request(method, self._url + path, data=data) as response:
                answer = await response.read()
                if response.status != 200:
                    raise UnreachableError(f"{self._url}{path}: status {response.status}")
                return msgspec.json.decode(answer) if answer else None
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError) as error:
            raise UnreachableError(f"{self._url}{path}: {error or type(error).__name__}") from error


def _up(ports: Iterable[dict[str, Any]]) -> dict[int, bool]:
    """Which ports are up, from the answer of `/stats/portdesc`; the switch's own has a name for a number."""
    return {
        port["port_no"]: not (port["config"] | port["state"]) & _DOWN
        for port in ports
        if isinstance(port["port_no"], int) and port["port_no"] <= LAST_PORT
    }


def _in_effect(change: Change, found: Tables) -> bool:
    match change:
        case PutFlow(flow):
            return found.flows.get(flow.name) == flow
        case DropFlow(flow):
            return flow.name not in found.flows
        case PutGroup(group):
            there = Tables.of((), [found.groups[group.id]] if group.id in found.groups else [])
            return not difference(there, Tables.of((), [group]))
        case DropGroup(id):
            return id not in found.groups
        case PutMeter() | DropMeter() | Barrier():  # a controller that is asked this way is asked for no meters
            return True
