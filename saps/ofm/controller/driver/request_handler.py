"""Takes in intents for OFMs and tells their states, independent of the path from the machine to the switches."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Any

from saps.ofm.controller.controller import Controller
from saps.ofm.controller.events import Announce, Apply, Event, GoneOn, Intended, Intent, Read, Told
from saps.ofm.flows.plan import BROKER
from saps.ofm.flows.tables import Match
from saps.ofm.network.traffic import with_capacities
from saps.ofm.northbound.schema import (
    BrokerCount,
    Changes,
    DecodedAddress,
    OfmState,
    OfmStats,
    PortTraffic,
    Quota,
    Status,
    SwitchBudget,
    SwitchCount,
)
from saps.ofm.openflow.driver.server import LAST_PORT
from saps.ofm.openflow.values import FlowCount, PortCount
from saps.ofm.stateless.address import Receivers
from saps.ofm.stateless.decode import decode

logger = logging.getLogger(__name__)

SLICE = 4
"""OFMs advanced before other tasks of the loop run, at 1 to 3 ms each. A larger value keeps the northbound waiting."""
REMEMBERED = 4096
"""Deleted OFMs whose last state is still told to those who ask for changes."""
SETTLED = (Status.CONSTRUCTED, Status.REFUSED, Status.NONE)
"""States that only another intent or news of the network will change."""


class RequestHandler:
    """A machine on an event loop. Subclasses carry out the machine's effects on switches, and hand answers and news to
    `handle`."""

    def __init__(self, machine: Controller) -> None:
        self.machine = machine
        self.run = secrets.token_hex(8)
        """Name of this run."""
        self._states: OrderedDict[str, tuple[int, OfmState]] = OrderedDict()
        """Last state of each OFM with its revision, the latest at the end."""
        self._revision = 0
        self._forgotten = 0
        """Revision up to which changes may no longer be told."""
        self._changed = asyncio.Event()
        self._going_on = False
        """Whether the machine's next slice is scheduled."""
        self.closed = False
        """Whether events are ignored."""

    # ---- what others do

    def carry_out(self, effect: Read | Apply | Announce) -> None:
        """Carry out an effect at a switch if it is connected, and `handle` its outcome later."""
        raise NotImplementedError

    def connected(self) -> Collection[int]:
        """Return the switches that are connected now."""
        raise NotImplementedError

    async def flow_counts(self, dpid: int, cookie: int) -> list[FlowCount]:
        """Return the flow entries with this cookie at a connected switch, with their counters."""
        raise NotImplementedError

    async def port_counts(self, dpid: int) -> list[PortCount]:
        """Return the counters of a connected switch's ports."""
        raise NotImplementedError

    def handle(self, event: Event) -> None:
        """Take in an event. OFMs that nobody waits for are advanced later, in slices."""
        if self.closed:
            return
        effects = self.machine.handle(event, SLICE if isinstance(event, GoneOn) else 0)
        if self.machine.behind and not self._going_on:
            self._going_on = True
            asyncio.get_running_loop().call_soon(self._go_on)
        for effect in effects:
            if isinstance(effect, Told):
                self._told(effect.state)
            else:
                self.carry_out(effect)

    def _go_on(self) -> None:
        self._going_on = False
        self.handle(GoneOn())

    # ---- what OFGate asks

    async def intent(self, topic: str, intent: Intent | None, wait: float = 0.0) -> OfmState:
        """Set the wanted form of an OFM; None: no OFM. Return its state as `state` does."""
        self.handle(Intended(topic, intent))
        return await self.state(topic, wait)

    async def state(self, topic: str, wait: float = 0.0) -> OfmState:
        """Return the state of an OFM once it is settled, or after `wait` seconds."""
        await self._until(lambda: self.machine.state(topic).status in SETTLED, wait)
        return self.machine.state(topic)

    def states(self) -> list[OfmState]:
        """Return all states: stateless delivery if there is any, then OFMs by topic."""
        planes = self.machine.planes.state
        told = [] if planes.status is Status.NONE else [planes]
        return [*told, *(record.state for _, record in sorted(self.machine.records.items()))]

    async def changes(self, run: str, after: int, wait: float = 0.0) -> Changes:
        """Return the changes after a revision once there are any, or after `wait` seconds."""
        known = run == self.run and self._forgotten <= after <= self._revision
        if known:
            await self._until(lambda: self._revision > after, wait)
            known = self._forgotten <= after
        if not known:
            return Changes(run=self.run, revision=self._revision, ofms=self.states(), complete=True)
        fresh: list[OfmState] = []
        for revision, state in reversed(self._states.values()):
            if revision <= after:
                break
            fresh.append(state)
        fresh.reverse()
        return Changes(run=self.run, revision=self._revision, ofms=fresh, complete=False)

    def budgets(self) -> list[SwitchBudget]:
        """Return the use and limits of all switches, by dpid."""
        ledger, connected = self.machine.ledger, self.connected()
        return [
            SwitchBudget(
                dpid=f"{dpid:016x}",
                connected=dpid in connected,
                alone=ledger.used(dpid).entries,
                entries=Quota(used=used.entries, budget=ledger.budget(dpid).entries),
                buckets=Quota(used=used.buckets, budget=ledger.budget(dpid).buckets),
            )
            for dpid, used in ((dpid, ledger.taken(dpid)) for dpid in self.machine.topology.switches)
        ]

    async def stats(self, topic: str) -> OfmStats:
        """Return the counters of an OFM, from its connected switches. Raises `ChannelError`."""
        record = self.machine.records.get(topic)
        switches: list[SwitchCount] = []
        senders: list[BrokerCount] = []
        if record is not None and record.plan is not None:
            plan = record.plan
            at = {
                (place.dpid, place.port, broker.ip, broker.port): broker for broker, place in plan.tree.brokers.items()
            }
            for dpid in sorted(plan.tables.keys() & set(self.connected())):
                counts = await self.flow_counts(dpid, plan.ofm.cookie)
                total = (sum(count.packets for count in counts), sum(count.bytes for count in counts))
                switches.append(SwitchCount(dpid=f"{dpid:016x}", packets=total[0], bytes=total[1]))
                senders += [
                    BrokerCount(broker=broker, packets=count.packets, bytes=count.bytes)
                    for count in counts
                    if count.flow.priority == BROKER and (broker := at.get(_source(dpid, count.flow.match)))
                ]
        return OfmStats(topic=topic, switches=switches, senders=sorted(senders, key=lambda count: count.broker))

    async def ports(self) -> list[PortTraffic]:
        """Return the counters of all ports of the connected switches, by switch and port. Raises `ChannelError`."""
        found: list[PortTraffic] = []
        for dpid in sorted(self.connected()):
            counts = sorted(await self.port_counts(dpid), key=lambda count: count.port)
            found += [_traffic(dpid, count) for count in counts if count.port <= LAST_PORT]
        return found

    def decoded(self, named: Receivers, sender: str | None) -> DecodedAddress:
        """Return what an address of stateless delivery means now (`saps.ofm.stateless.decode`). Raises `LookupError` if
        there is no stateless delivery, or no such sender."""
        planes = self.machine.planes
        if planes.layout is None:
            raise LookupError("there is no stateless delivery")
        return decode(planes.layout, planes.state.planes, named, sender)

    def picture(self) -> dict[str, Any]:
        """Return the network as `Topology.to_json` writes it, with the capacities of links."""
        return with_capacities(self.machine.topology.to_json(), self.machine.admission.traffic)

    async def _until(self, true: Callable[[], bool], wait: float) -> None:
        """Wait until a change makes `true` return True, or for `wait` seconds."""
        try:
            async with asyncio.timeout(max(wait, 0.0)):
                while not true():
                    await self._changed.wait()
        except TimeoutError:
            pass

    def _told(self, state: OfmState) -> None:
        before = self._states.get(state.topic)
        level = logging.WARNING if state.status is Status.REFUSED else logging.INFO
        if before is not None and before[1].status is state.status:
            level = logging.DEBUG
        logger.log(level, "OFM of %r is %s%s", state.topic, state.status, f": {state.reason}" if state.reason else "")
        self._revision += 1
        self._states[state.topic] = (self._revision, state)
        self._states.move_to_end(state.topic)
        # A client whose revision is older than a forgotten change gets the complete list (`changes`).
        while len(self._states) > len(self.machine.records) + REMEMBERED:
            _, (self._forgotten, _) = self._states.popitem(last=False)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _traffic(dpid: int, count: PortCount) -> PortTraffic:
    return PortTraffic(
        dpid=f"{dpid:016x}",
        port=count.port,
        rx_packets=count.rx_packets or 0,
        tx_packets=count.tx_packets or 0,
        rx_bytes=count.rx_bytes or 0,
        tx_bytes=count.tx_bytes or 0,
        dropped=(count.rx_dropped or 0) + (count.tx_dropped or 0),
    )


def _source(dpid: int, match: Match) -> tuple[int, int, str, int]:
    """Return the source that a broker's flow matches: switch, port, IP address, UDP port."""
    fields = {name: masked.value for name, masked in match.fields}
    ip = (
        ipaddress.IPv4Address(fields["ipv4_src"]) if "ipv4_src" in fields else ipaddress.IPv6Address(fields["ipv6_src"])
    )
    return dpid, fields["in_port"], str(ip), fields["udp_src"]
