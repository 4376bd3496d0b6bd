"""Runs the controller on an event loop: passes events of switches to the machine, and its effects to the switches.

Several tasks may wait for switches at a time, at most one for each switch. The machine is used only from the loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from pathlib import Path

from saps.ofm.controller.controller import Controller
from saps.ofm.controller.driver.announcer import Announcer
from saps.ofm.controller.driver.request_handler import RequestHandler
from saps.ofm.controller.events import (
    Announce,
    Applied,
    Apply,
    Event,
    Failed,
    HostMoved,
    Intended,
    LinkChanged,
    LoopFound,
    PortChanged,
    Read,
    Settled,
    SwitchDown,
    SwitchGone,
    SwitchUp,
    TablesRead,
    Tick,
)
from saps.ofm.controller.saved import Saver
from saps.ofm.flows.plan import COOKIE, COOKIE_MASK
from saps.ofm.flows.tables import Change, Room, mac_text
from saps.ofm.network.probe import probe
from saps.ofm.network.topology import BrokerAddress, Link, Port
from saps.ofm.openflow import base
from saps.ofm.openflow.driver.server import LAST_PORT, OpenFlowServer
from saps.ofm.openflow.driver.switch import Switch, change_of, short_of
from saps.ofm.openflow.encode import UnencodableError
from saps.ofm.openflow.errors import ChannelError, RefusedError, SwitchGoneError
from saps.ofm.openflow.hosts import HostGone, HostSeen
from saps.ofm.openflow.values import FlowCount, PortChange, PortCount, PortStatus
from saps.runtime.atomic_file import replacing

logger = logging.getLogger(__name__)

AGAIN = 1.0
"""Pause in seconds until a switch that did not do what it was asked is read again."""
LOOK = 0.1
"""Seconds between two looks whether something in the network is new, until it has settled."""
PROBE_FIRST, PROBE_LAST = 0.2, 5.0
"""First and longest pause in seconds between two rounds of probes for a broker not seen yet; the pause doubles. A
smaller value finds the broker sooner, and costs a packet for each such broker and port without a link."""
PROBES = 64
"""Most brokers probed for in one round."""
AUDIT = 5.0
"""Period in seconds of audits of a connected switch, which count its entries. A smaller value finds entries that
another program removed sooner, and costs two statistics requests a switch. It must be less than the lifetime of a link
probe, whose entry may be gone, too."""
CHECKED, MOST_CHECKED = 200.0, 20_000
"""Entries a second that are read in full, switch after switch, in case another program has changed one in place; and
the most that may be saved up for a large switch. A larger value finds changes sooner, and costs 0.1 ms an entry."""
TICK = 2.0
"""Period in seconds of checks for trees to move. Each costs at least one search of a planner."""
SAVE_DELAY, SAVE_REST = 0.5, 20
"""Least delay in seconds until a change is in the state file, and the delay as a multiple of the processor time of the
last save. An unchanged tree costs 1 us, a changed one 30."""
SAVE_AGAIN = 10.0
"""Pause in seconds until the state file is written again after an error."""


class ControllerService(RequestHandler):
    """The service of a controller from `start` to `close`. (A `server.Listener`.)"""

    def __init__(self, machine: Controller, *, grace: float, state: Path | None = None) -> None:
        super().__init__(machine)
        self.server: OpenFlowServer | None = None
        """The channel to the switches; None until `start`."""
        self._grace = grace
        self._state = state
        self._switches: dict[int, Switch] = {}
        self._talks: dict[int, asyncio.Task[None]] = {}
        """The task that waits for each switch."""
        self._saver: Saver | None = None
        """None: nobody has asked for the state yet."""
        self._unsaved = asyncio.Event()
        self._saved = (-1, -1)
        """Versions of the network and of the states that the state file has, or soon will have."""
        self._sought = asyncio.Event()
        self._announcer = Announcer(self._switches)
        self._tasks: set[asyncio.Task[None]] = set()
        self._cyclic = False
        """Whether a warning of the network's cycles has been logged."""
        self.on_change: Callable[[], None] | None = None
        """Called when something has changed that a standby must know."""
        self.on_slave: Callable[[], None] | None = None
        """Called when a switch refuses changes because another controller is its master. The machine does not hear of
        that refusal."""

    async def start(self, server: OpenFlowServer) -> None:
        """Begin to serve. `server` must be listening already, with this object as its listener."""
        self.server = server
        self._spawn(self._settle())
        self._spawn(self._announcer.run())
        for work in (self._seek, self._audit, self._tick):
            self._spawn(_continued(work))
        if self._state is not None:
            self._spawn(_continued(partial(self._keep, self._state)))

    async def close(self) -> None:
        """Stop. The switches keep their tables."""
        self.closed = True
        tasks = [*self._tasks, *self._talks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._state is not None:
            _write(self._state, self.saved())

    # ---- what switches tell

    def switch_up(self, switch: Switch) -> None:
        """See `server.Listener`, also for the methods that follow."""
        self._switches[switch.dpid] = switch
        self._interrupt(switch.dpid)
        ports = {number: port.up for number, port in switch.ports.items() if number <= LAST_PORT}
        speeds = {number: port.speed for number, port in switch.ports.items() if number in ports}
        self.handle(SwitchUp(switch.dpid, ports, speeds, switch.table_count))

    def switch_down(self, dpid: int) -> None:
        self._switches.pop(dpid, None)
        self._interrupt(dpid)
        self.handle(SwitchDown(dpid))

    def switch_gone(self, dpid: int) -> None:
        self.handle(SwitchGone(dpid))

    def port_status(self, dpid: int, status: PortStatus) -> None:
        port = status.port
        if port.number <= LAST_PORT:
            up = None if status.change is PortChange.REMOVED else port.up
            self.handle(PortChanged(Port(dpid, port.number), up, port.speed))

    def link_up(self, link: Link) -> None:
        self.handle(LinkChanged(link, up=True))

    def link_down(self, link: Link) -> None:
        self.handle(LinkChanged(link, up=False))

    def host_seen(self, host: HostSeen) -> None:
        if not self.machine.network.locates(mac := mac_text(host.mac), host.at):
            self.handle(HostMoved(mac, host.at))

    def host_gone(self, host: HostGone) -> None:
        self.handle(HostMoved(mac_text(host.mac), None))

    def loop_found(self, a: Port, b: Port) -> None:
        closes = self.machine.admission.rules.spanning_tree
        told = "they are closed to all but OFM" if closes else "the switch's own traffic goes round without an end"
        logger.warning("a cable joins ports %d and %d of switch %016x: %s", a.port, b.port, a.dpid, told)
        self.handle(LoopFound(a, b))

    # ---- what is to be done

    def handle(self, event: Event) -> None:
        """See `RequestHandler.handle`."""
        super().handle(event)
        now = (self.machine.topology.version, self.machine.version)
        if now != self._saved or isinstance(event, Intended):  # an intent may change what is in no state: its rate
            self._saved = now
            self._unsaved.set()
            if self.on_change is not None:
                self.on_change()
        if isinstance(event, Intended | HostMoved | PortChanged | SwitchUp):
            self._sought.set()
        warns = not self.machine.admission.rules.spanning_tree and self.machine.network.settled
        if warns and isinstance(event, LinkChanged | Settled):
            self._cyclic = _warn_of_cycles(self.machine.topology.redundant, self._cyclic)

    def saved(self) -> bytes:
        """Return the state that a restart, or a standby, continues from."""
        if self._saver is None:
            self._saver = Saver(self.machine)
        return self._saver.save()

    def connected(self) -> Collection[int]:
        """See `RequestHandler.connected`."""
        return self._switches.keys()

    async def flow_counts(self, dpid: int, cookie: int) -> list[FlowCount]:
        """See `RequestHandler.flow_counts`."""
        return await self._switches[dpid].flow_stats(cookie, (1 << 64) - 1)

    async def port_counts(self, dpid: int) -> list[PortCount]:
        """See `RequestHandler.port_counts`."""
        return await self._switches[dpid].port_stats()

    def carry_out(self, effect: Read | Apply | Announce) -> None:
        """See `RequestHandler.carry_out`."""
        match effect:
            case Read(dpid, again):
                self._talk(dpid, lambda switch: self._read(switch, AGAIN if again else 0.0))
            case Apply(dpid, changes):
                self._talk(dpid, lambda switch: self._apply(switch, changes))
            case Announce(mac, at):
                self._announcer.announce(mac, at)

    def _interrupt(self, dpid: int) -> None:
        """Stop waiting for the answers of a switch's earlier connection."""
        if (talk := self._talks.pop(dpid, None)) is not None:
            talk.cancel()

    def _talk(self, dpid: int, say: Callable[[Switch], Coroutine[None, None, Event]]) -> None:
        """Ask something of a switch if it is connected; the machine hears the outcome."""
        if (switch := self._switches.get(dpid)) is not None:
            self._talks[dpid] = asyncio.get_running_loop().create_task(self._hear(switch, say))

    async def _hear(self, switch: Switch, say: Callable[[Switch], Coroutine[None, None, Event]]) -> None:
        try:
            event = await say(switch)  # the coroutine is made here, as a task may be cancelled before it begins
        except SwitchGoneError:
            return  # the switch will be reported down, or up again
        except RefusedError as error:
            if error.error.name == "OFPBRC_IS_SLAVE" and self.on_slave is not None:
                self.on_slave()
                return
            logger.warning("%s", error)
            short = short_of(error)
            if short is Room.METERS:
                logger.warning("switch %016x: topics are not limited there", switch.dpid)
            why = f"switch {error.dpid:016x} refuses it: {error.error}"
            event = Failed(switch.dpid, why, change_of(error.request), short)
        except (ChannelError, UnencodableError) as error:
            logger.warning("%s", error)
            event = Failed(switch.dpid, str(error))
        self.handle(event)

    async def _apply(self, switch: Switch, changes: Sequence[Change]) -> Applied:
        await switch.apply(changes)
        return Applied(switch.dpid)

    async def _read(self, switch: Switch, delay: float) -> TablesRead:
        await asyncio.sleep(delay)
        return TablesRead(switch.dpid, await switch.tables(COOKIE, COOKIE_MASK))

    # ---- what goes on meanwhile

    async def _settle(self) -> None:
        """Report the network as settled when no switch or link has been new for the grace period, or ten times as long
        while a switch is being read: the probes that cross its links come behind its tables. Turns of the loop count,
        not the clock, since a busy controller hears late of what is there."""
        assert self.server is not None
        network, quiet, before = self.machine.network, 0.0, (0, 0)
        step = min(LOOK, self._grace)
        while not network.table_counts or quiet < self._grace:
            await asyncio.sleep(step)
            there = (len(network.table_counts), len(self.server.links))
            pace = 1.0 if all(map(network.known, self._switches)) else 0.1
            quiet, before = (quiet + pace * step if there == before else 0.0), there
        self.handle(Settled({*self._switches, *self.server.away}, self.server.links))

    async def _tick(self) -> None:
        """Tell the machine the time, by which it balances the load."""
        while True:
            await asyncio.sleep(TICK)
            self.handle(Tick(asyncio.get_running_loop().time()))

    async def _audit(self) -> None:
        """Audit each switch periodically, and restore what is missing there."""
        loop, allowed = asyncio.get_running_loop(), 0.0
        last = loop.time()
        rounds: dict[int, float] = {}
        """Time of each switch's last full audit, the oldest first."""
        while True:
            if not self._switches:
                await asyncio.sleep(AUDIT)
            for gone in rounds.keys() - self._switches.keys():
                del rounds[gone]
            for switch in list(self._switches.values()):
                await asyncio.sleep(AUDIT / max(len(self._switches), 1))
                if (talk := self._talks.get(switch.dpid)) is not None and not talk.done():
                    continue
                now = loop.time()
                allowed, last = min(allowed + (now - last) * CHECKED, MOST_CHECKED), now
                rounds.setdefault(switch.dpid, -AUDIT)
                entries = self.machine.network.switch_state(switch.dpid).entries or 0
                # The switch not read for longest is read in full, once the allowance covers its entries.
                turn = next(iter(rounds)) == switch.dpid and now - rounds[switch.dpid] >= AUDIT
                turn = turn and allowed >= min(entries, MOST_CHECKED)
                if turn:
                    del rounds[switch.dpid]
                    rounds[switch.dpid] = now
                    allowed -= entries
                await self._compare(switch, talk, whole=turn)

    async def _compare(self, switch: Switch, talk: asyncio.Task[None] | None, *, whole: bool) -> None:
        """Count a switch's entries. If their number is wrong, or `whole` is set, pass its tables to the machine, unless
        something was asked of the switch since `talk`."""
        dpid = switch.dpid
        try:
            there = {count.flow.name: count.flow for count in await switch.flow_stats(base.COOKIE, (1 << 64) - 1)}
            await switch.put_base(there)
            total = await switch.flow_total(COOKIE, COOKIE_MASK)
            known = self.machine.network.switch_state(dpid).entries
            if known is None or self._talks.get(dpid) is not talk or (known == total and not whole):
                return
            tables = await switch.tables(COOKIE, COOKIE_MASK)
        except (ChannelError, UnencodableError) as error:
            logger.debug("switch %016x was not read: %s", dpid, error)
            return
        if self._switches.get(dpid) is switch and self._talks.get(dpid) is talk:
            self.handle(TablesRead(dpid, tables))

    async def _seek(self) -> None:
        """Probe for wanted brokers that have not been seen. One of an earlier run is probed first where it was."""
        pause, missing, asked = PROBE_FIRST, list[BrokerAddress](), set[BrokerAddress]()
        while True:
            absent = self.machine.missing
            begin = bisect_right(absent, missing[-1]) if missing else 0  # in turn, as some may never be there
            missing = [*absent[begin:], *absent[:begin]][:PROBES]
            asked.intersection_update(absent)
            topology, anywhere = self.machine.topology, list[BrokerAddress]()
            for broker in missing:
                place = topology.where(broker)
                if place is None or broker in asked:
                    anywhere.append(broker)
                elif (switch := self._switches.get(place.dpid)) is not None:
                    switch.packet_out(place.port, probe(broker))
                    asked.add(broker)
            for switch in self._switches.values() if anywhere else ():
                for port in switch.ports.values():
                    at = Port(switch.dpid, port.number)
                    if port.up and port.number <= LAST_PORT and not topology.is_trunk(at):
                        for broker in anywhere:
                            switch.packet_out(port.number, probe(broker))
            pause = min(2 * pause, PROBE_LAST)
            try:
                async with asyncio.timeout(pause if missing else None):
                    await self._sought.wait()
                self._sought.clear()
                pause = PROBE_FIRST
                await asyncio.sleep(PROBE_FIRST)
            except TimeoutError:
                pass

    async def _keep(self, path: Path) -> None:
        """Write the state file soon after each change."""
        took = 0.0
        while True:
            await self._unsaved.wait()
            await asyncio.sleep(max(SAVE_DELAY, SAVE_REST * took))
            self._unsaved.clear()
            begun = time.process_time()
            data = self.saved()
            took = time.process_time() - begun
            writing = asyncio.ensure_future(asyncio.to_thread(_write, path, data))
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:
                await asyncio.wait([writing])  # `close` writes the same file
                raise
            except OSError as error:
                logger.error("cannot write the state file %s: %s", path, error)
                self._unsaved.set()
                await asyncio.sleep(SAVE_AGAIN)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _continued(work: Callable[[], Coroutine[None, None, None]]) -> None:
    """Do a work that has no end. An internal error is logged, and the work begins again."""
    while True:
        try:
            await work()
        except Exception:
            logger.exception("internal error of the controller")
            await asyncio.sleep(AGAIN)


def _write(path: Path, data: bytes) -> None:
    with replacing(path) as file:
        file.write(data)


def _warn_of_cycles(redundant: int, told: bool) -> bool:
    """Warn once of cycles in the network: traffic outside trees goes by `NORMAL`, which floods endlessly on a cycle.
    `redundant` is the number of links beyond a spanning tree, `told` whether the warning has been logged. Return
    whether it has been logged for the present cycles."""
    if redundant and not told:
        logger.warning(
            "the network has cycles (links beyond a tree: %d): trees are safe, but the switches' own traffic goes "
            "round without an end unless they run a spanning tree protocol, or --spanning-tree=controller is set",
            redundant,
        )
    return bool(redundant)
