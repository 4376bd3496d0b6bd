"""Represents a connected switch to the controller program (asyncio)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from saps.ofm.flows.tables import Barrier, Change, Flow, FlowName, Meter, PutFlow, PutGroup, PutMeter, Room, Tables
from saps.ofm.openflow import base
from saps.ofm.openflow import requests as r
from saps.ofm.openflow.errors import ChannelError, RefusedError
from saps.ofm.openflow.events import Ready, Refusal
from saps.ofm.openflow.requests import Mod, Question, Request
from saps.ofm.openflow.values import FlowCount, GroupCount, MeterCount, PortCount, PortInfo, Role, RoleState

logger = logging.getLogger(__name__)

BATCH = 128
"""Modifications sent in one go, between which other tasks of the loop run: 3 to 10 ms of encoding. Each batch costs a
barrier."""
OVS = "Open vSwitch"
"""Model name of switches that support `PutGroup` directly."""


class Channel(Protocol):
    """Carries a switch's requests. The futures raise `ChannelError`; the calls raise `UnencodableError`."""

    def ask(self, question: Question) -> asyncio.Future[Any]:
        """Send a question. Return a future of the answer."""

    def transact(self, mods: Sequence[Mod]) -> asyncio.Future[tuple[Refusal, ...]]:
        """Send modifications. Return a future of the refusals, done when all modifications are."""

    def tell(self, request: Request) -> None:
        """Send a request without an answer; drop it if the switch cannot keep up."""

    async def writable(self) -> None:
        """Wait until the switch keeps up, or is gone."""


class Switch:
    """One connection of a switch. After its end every call raises `SwitchGoneError`; a new `Switch` takes its place."""

    def __init__(self, channel: Channel, ready: Ready) -> None:
        self._channel = channel
        self.dpid = ready.features.dpid
        self.maker, self.model = ready.maker
        self.table_count = ready.features.tables
        """Number of its flow tables."""
        self.ports: dict[int, PortInfo] = {port.number: port for port in ready.ports}
        """Ports by number, kept up to date, including the switch's own port, LOCAL."""
        self.granted = Role.EQUAL
        """The granted role. A switch does not announce that another controller has become master; it only refuses what
        a slave may not do. Then this is set to SLAVE."""
        self._meters = True
        """Whether the switch takes meters, as far as is known."""

    def __repr__(self) -> str:
        return f"<Switch {self.dpid:016x} {self.model}, {len(self.ports)} ports>"

    # ---- tables

    async def tables(self, cookie: int = 0, mask: int = 0) -> Tables:
        """Return the actual tables: flow entries whose cookie equals `cookie` in the bits of `mask`, and all groups and
        meters, which have no cookie. What the types cannot express appears as an action that no plan contains
        (`entries.NOTHING_OF_OURS`). Raises `ChannelError`."""
        flows, groups, meters = await asyncio.gather(
            self.flow_stats(cookie, mask), self._channel.ask(r.AskGroups()), self.meters()
        )
        return Tables.of((count.flow for count in flows), groups, meters)

    async def apply(self, changes: Iterable[Change]) -> None:
        """Carry out changes. Each stage, up to the next `Barrier` or the end, is confirmed by the switch before the
        next one begins. Within a stage the order is kept. Raises `RefusedError` with the first failed request, after
        the rest of its stage is done; other `ChannelError`s; `UnencodableError`."""
        for stage in _stages(changes):
            await self._commit(stage)

    async def put_base(self, there: Mapping[FlowName, Flow] | None = None) -> None:
        """Complete the base flows (`saps.ofm.openflow.base`), without meters if the switch has none. `there` are the
        base flows it has. Raises the same errors as `apply`."""
        try:
            await self.apply(base.missing(there or {}, self._meters))
        except RefusedError as error:
            if not self._meters or short_of(error) is not Room.METERS:
                raise
            logger.warning("switch %016x has no meters: ARP from there to the controller is not limited", self.dpid)
            self._meters = False
            await self.put_base(there)

    async def remove(self, cookie: int, mask: int) -> None:
        """Delete all flow entries whose cookie equals `cookie` in the bits of `mask`. Raises the same errors as
        `apply`."""
        await self._commit([r.DropFlows(cookie, mask)])

    async def _commit(self, mods: Sequence[Mod | PutMeter]) -> None:
        running: list[asyncio.Future[tuple[Refusal, ...]]] = []
        todo = map(_metered, mods if self.model == OVS else map(_portable, mods))
        try:
            while batch := list(islice(todo, BATCH)):
                await self._channel.writable()
                running.append(self._channel.transact(batch))
                await asyncio.sleep(0)
            results = await asyncio.gather(*running)
        except BaseException:
            for answer in running:
                answer.cancel()
            raise
        await self._settle([refusal for result in results for refusal in result])

    async def _settle(self, refusals: Sequence[Refusal]) -> None:
        """Retry refusals that another request avoids: unknown groups are added, and existing meters are modified.
        Raises `RefusedError` for any other refusal."""
        again: list[Mod | PutMeter] = []
        for refusal in refusals:
            if (other := _other_way(refusal)) is None:
                raise RefusedError(self.dpid, refusal.request, refusal.error)
            again.append(other)
        if again:
            await self._commit(again)

    async def meters(self) -> list[Meter]:
        """Return all meters but that of the base flows; none if the switch does not support meters. Raises
        `ChannelError`."""
        try:
            found: tuple[Meter, ...] = await self._channel.ask(r.AskMeters())
            return [meter for meter in found if meter.id != base.STORM.id]
        except RefusedError as refused:
            logger.debug("cannot read the meters of switch %016x: %s", self.dpid, refused.error)
            return []

    # ---- statistics

    async def port_stats(self) -> list[PortCount]:
        """Return the counters of all ports. Raises `ChannelError`."""
        return list(await self._channel.ask(r.AskPortCounts()))

    async def flow_stats(self, cookie: int = 0, mask: int = 0) -> list[FlowCount]:
        """Return the flow entries whose cookie equals `cookie` in the bits of `mask`, with their counters. Entries with
        unknown match fields are left out. Raises `ChannelError`."""
        found = await self._channel.ask(r.AskFlows(cookie, mask))
        known = [count for count in found if count is not None]
        if len(known) < len(found):
            logger.debug("switch %016x: %d flow entries of others ignored", self.dpid, len(found) - len(known))
        return known

    async def flow_total(self, cookie: int, mask: int) -> int:
        """Return the number of flow entries whose cookie equals `cookie` in the bits of `mask`. The cost does not
        depend on their number. Raises `ChannelError`."""
        found = await self._channel.ask(r.AskFlowTotal(cookie, mask))
        if len(found) != 1:
            raise ChannelError(f"switch {self.dpid:016x} gave {len(found)} totals of flow entries")
        return int(found[0])

    async def group_stats(self) -> list[GroupCount]:
        """Return the counters of all groups. Raises `ChannelError`."""
        return list(await self._channel.ask(r.AskGroupCounts()))

    async def meter_stats(self) -> list[MeterCount]:
        """Return the counters of all meters. Raises `ChannelError`."""
        return list(await self._channel.ask(r.AskMeterCounts()))

    # ---- the rest

    def packet_out(self, port: int, frame: bytes, at: int | None = None) -> None:
        """Send a frame out of a port, as if it had come by the port `at`; like any packet, it may be lost."""
        self._channel.tell(r.SendPacket(port, frame, at))

    async def role(self, role: Role, generation: int = 0) -> RoleState:
        """Ask for a role and return the granted one. An election of a master raises `generation`. Raises `RefusedError`
        (`OFPRRFC_STALE`) if the switch knows a later one, and `ChannelError`."""
        state = await self._channel.ask(r.AskRole(role, generation))
        assert isinstance(state, RoleState)
        self.granted = state.role
        return state

    async def barrier(self) -> None:
        """Wait until the switch has done all that it was sent. Raises `ChannelError`."""
        await self._channel.ask(r.AskBarrier())


def _stages(changes: Iterable[Change]) -> Iterator[list[Mod | PutMeter]]:
    stage: list[Mod | PutMeter] = []
    for change in changes:
        if not isinstance(change, Barrier):
            stage.append(change)
        elif stage:
            yield stage
            stage = []
    if stage:
        yield stage


_SHORT = {
    "OFPFMFC_TABLE_FULL": Room.ENTRIES,
    "OFPGMFC_OUT_OF_GROUPS": Room.GROUPS,
    "OFPGMFC_OUT_OF_BUCKETS": Room.PARTITIONS,
}
"""Resource that a switch lacks, by the name of its error (OpenFlow 1.3.5, 7.4.4)."""


def short_of(refused: RefusedError) -> Room | None:
    """Return the resource that a switch lacked for what it refused, or None if it refused for another reason. Any
    refusal of a meter means that there are no meters, or no more."""
    if refused.error.name == "OFPBRC_IS_SLAVE":
        return None
    match refused.request:
        case r.AddMeter() | r.ModifyMeter():
            return Room.METERS
        case PutFlow(flow) if flow.meter is not None and refused.error.name.startswith(("OFPMMFC_", "OFPBIC_")):
            return Room.METERS
    return _SHORT.get(refused.error.name)


def change_of(request: Request) -> Request | PutMeter:
    """Return the change that a request of `Switch.apply` was made for."""
    match request:
        case r.AddGroup(group) | r.ModifyGroup(group):
            return PutGroup(group)
        case r.AddMeter(meter) | r.ModifyMeter(meter):
            return PutMeter(meter)
    return request


def _metered(mod: Mod | PutMeter) -> Mod:
    return r.AddMeter(mod.meter) if isinstance(mod, PutMeter) else mod


def _portable(mod: Mod | PutMeter) -> Mod | PutMeter:
    return r.ModifyGroup(mod.group) if isinstance(mod, PutGroup) else mod


def _other_way(refusal: Refusal) -> Mod | None:
    """Return the request to try in place of the refused one, or None if there is none."""
    match refusal.request, refusal.error.name:
        case r.ModifyGroup(group), "OFPGMFC_UNKNOWN_GROUP":
            return r.AddGroup(group)
        case r.AddMeter(meter), "OFPMMFC_METER_EXISTS":
            return r.ModifyMeter(meter)
    return None
