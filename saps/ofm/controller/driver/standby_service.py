"""Runs a controller of a pair on an event loop: as master it runs a `ControllerService`, otherwise it follows the
peer's.

Switches connect to both controllers. A slave's connection is kept, so a takeover costs one request to each switch and
no new connection. The master's state comes over the northbound whenever it has changed.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine

import msgspec

from saps.ofm.controller.driver.master_proxy import MasterProxy
from saps.ofm.controller.driver.service import ControllerService
from saps.ofm.controller.leader_election import (
    Claim,
    Effect,
    ElectionState,
    Event,
    Granted,
    Heard,
    Leadership,
    Outbid,
    Passed,
    Post,
    Retire,
    Serve,
)
from saps.ofm.controller.saved import Replica
from saps.ofm.northbound.driver.client import NorthboundError, UnreachableError
from saps.ofm.northbound.driver.pair import PeerClient
from saps.ofm.openflow.driver import roles
from saps.ofm.openflow.driver.server import OpenFlowServer
from saps.ofm.openflow.driver.switch import Switch
from saps.ofm.openflow.errors import ChannelError
from saps.ofm.openflow.values import Role

logger = logging.getLogger(__name__)

LOOK = 0.25
"""Period of timer checks in seconds."""
CHECK = 0.5
"""Period in seconds of a master's checks of its role at the switches. A smaller value costs a request a switch."""
FRESH = 1.0
"""Age in seconds of the last check above which a new intent requires another check first: the process may have been
suspended meanwhile, and have lost its role."""
AGAIN = 0.2
"""Pause in seconds until a peer that did not answer is asked again."""
GATHER = 0.02
"""Least time in seconds in which changes gather before the peer fetches them."""
SPARE = 9
"""Pause between two fetches as a multiple of a fetch's duration, so that many changes of a large state take few
fetches."""
LEAP = 1 << 20
"""Increment of versions at a takeover: more states than a master may have told beyond what its standby knows, since no
version may be used twice."""


class PairedController(MasterProxy):
    """One controller of two, from `start` to `close`. (Also a `server.Roles`, and the northbound's `OfPair`.)"""

    def __init__(
        self, make: Callable[[bytes], ControllerService], peer: PeerClient, takeover: float, state: bytes = b""
    ) -> None:
        """`make` returns a service that continues from a state as `Saver.save` writes it, unless this is empty; it
        raises `ValueError` for one that it cannot read. `takeover` is the limit of the peer's silence in seconds.
        `state` is the first state; raises `ValueError` if it is malformed."""
        super().__init__()
        self.leadership = Leadership(secrets.token_hex(8), secrets.randbits(32), takeover)
        self._make = make
        self._peer = peer
        self._takeover = takeover
        self._replica = Replica.of(state)
        self._server: OpenFlowServer | None = None
        self._revision = 0
        self._checked = 0.0
        """Time of the last check of this controller's role at the switches."""
        self._took = 0.0
        """Seconds that the last fetch of the peer's state took."""
        self._silent = False
        self._work: asyncio.Queue[Effect | ControllerService] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, server: OpenFlowServer) -> None:
        """Begin. `server` must be listening already, with this object as its listener."""
        self._server = server
        for work in (self._carry_out(), self._listen(), self._watch()):
            self._spawn(work)

    async def close(self) -> None:
        """Stop. The switches keep their tables, and the peer takes over."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.service is not None:
            await self.service.close()
        await self._peer.close()

    # ---- the machine

    def _handle(self, event: Event) -> None:
        before = self.leadership.post
        for effect in self.leadership.handle(event):
            if isinstance(effect, Retire):
                self._retire()
            else:
                self._work.put_nowait(effect)
        if self.leadership.post is not before:
            logger.warning(
                "this controller is %s now, generation %#x", self.leadership.post, self.leadership.generation
            )
            self._tell()

    def _retire(self) -> None:
        """Stop answering and changing anything at once; the service is closed later."""
        service, self.service = self.service, None
        self._ours.clear()
        if service is not None:
            service.closed = True
            self._replica = Replica.of(service.saved())
            self._work.put_nowait(service)

    async def _carry_out(self) -> None:
        """Carry out effects one after the other, so that outdated ones are recognized."""
        while True:
            match await self._work.get():
                case Claim(generation):
                    later = await roles.claim_all(self._switches(), generation)
                    self._handle(Outbid(later) if later else Granted(generation))
                case Serve(generation):
                    await self._serve(generation)
                case ControllerService() as retired:
                    await retired.close()
                    for switch in self._switches():
                        await roles.follow(switch, self.leadership.highest)

    async def _serve(self, generation: int) -> None:
        if self.leadership.post is not Post.MASTER or self.leadership.generation != generation:
            return
        assert self._server is not None
        try:
            service = self._make(self._replica.data)
        except ValueError as error:
            logger.error("the peer's state is lost: %s", error)
            service = self._make(b"")
        service.machine.version += LEAP
        service.on_change, service.on_slave = self._tell, lambda: self._spawn(self._check())
        self._server.renew()
        await service.start(self._server)
        self.service = service
        self._tell()
        self._checked = asyncio.get_running_loop().time()
        await asyncio.gather(*(self._enter(switch) for switch in self._switches()))

    async def _enter(self, switch: Switch) -> None:
        """Begin to work at a switch that has granted the role of master."""
        if switch.granted is not Role.MASTER or self._ours.get(switch.dpid) is switch:
            return
        try:
            await switch.put_base()
        except ChannelError as error:
            logger.warning("%s", error)  # the next check of roles tries again
            return
        if switch in self._switches():
            self.switch_up(switch)

    # ---- time, and the peer

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(LOOK)
            now = loop.time()
            self._handle(Passed(now - last, self._able, self._version))
            last = now
            if self.service is not None and now - self._checked >= CHECK:
                await self._check()

    async def _check(self) -> None:
        """Check that this controller is still the master of its switches, and claim new ones."""
        began = asyncio.get_running_loop().time()
        switches = self._switches()
        states = await asyncio.gather(*map(roles.look, switches))
        self._handle(Outbid(max((state.generation for state in states if state is not None), default=0)))
        for switch, state in zip(switches, states, strict=True):
            if self.service is None or state is None:
                continue
            if state.role is not Role.MASTER:
                self._handle(Outbid(await roles.claim(switch, self.leadership.generation)))
            await self._enter(switch)
        self._checked = began

    async def _listen(self) -> None:
        """Listen to the peer all the time, and fetch its state whenever that has changed."""
        known = ("", -1)
        while True:
            state = await self._ask_peer(*known, self._takeover / 4)
            if state is None:
                await asyncio.sleep(AGAIN)
            elif state.post is Post.MASTER and known != (state.run, state.revision) and self.service is None:
                known = (state.run, state.revision) if await self._fetch() else known
            else:
                known = (state.run, state.revision)

    async def _ask_peer(self, run: str = "", revision: int = -1, wait: float = 0.0) -> ElectionState | None:
        try:
            async with asyncio.timeout(wait + self._takeover / 4):
                state = await self._peer.election(run, revision, wait)
        except (UnreachableError, NorthboundError, TimeoutError) as error:
            if not self._silent:
                logger.warning("no answer from the peer: %s", error or type(error).__name__)
            self._silent = True
            return None
        if self._silent:
            logger.warning("the peer answers: it is %s", state.post)
        self._silent = False
        self._handle(Heard(state))
        return state

    async def _fetch(self) -> bool:
        """Fetch the peer's state. Return whether it came."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(min(max(GATHER, SPARE * self._took), self._takeover / 4))
        began = loop.time()
        fetching = asyncio.ensure_future(self._peer.saved())
        try:
            while not (await asyncio.wait({fetching}, timeout=self._takeover / 4))[0]:
                await self._ask_peer()  # a large state takes its time: check that the peer is alive meanwhile
            replica = Replica.of(fetching.result())
        except (UnreachableError, NorthboundError, ValueError) as error:
            logger.warning("cannot fetch the peer's state: %s", error)
            return False
        finally:
            fetching.cancel()
        if self.service is None:
            self._replica = replica
        self._took = loop.time() - began
        return True

    @property
    def _able(self) -> bool:
        """Whether at least half of the switches known to exist are connected. A controller that is cut off from the
        network must not be master."""
        known = len(self.service.machine.topology.switches) if self.service is not None else self._replica.switches
        return 2 * len(self._switches()) >= known

    @property
    def _version(self) -> int:
        return self.service.machine.version if self.service is not None else self._replica.version

    def _switches(self) -> list[Switch]:
        return list(self._server.switches.values()) if self._server is not None else []

    def _tell(self) -> None:
        """Announce a change that the peer must know."""
        self._revision += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def election(self, run: str, revision: int, wait: float) -> ElectionState:
        """See `northbound.server.OfPair`."""
        try:
            async with asyncio.timeout(wait):
                while run == self.leadership.run and revision == self._revision:
                    await self._changed.wait()
        except TimeoutError:
            pass
        state = self.leadership.election(self._revision)
        if self.service is None and state.post is Post.MASTER:  # not yet ready to be asked
            return msgspec.structs.replace(state, post=Post.CLAIMING)
        return state

    def saved(self) -> bytes:
        """See `northbound.server.OfPair`."""
        return self.service.saved() if self.service is not None else self._replica.data

    # ---- what the switches and the northbound want to know

    async def make_sure(self) -> None:
        """See `MasterProxy`."""
        if asyncio.get_running_loop().time() - self._checked > FRESH:
            await asyncio.gather(self._check(), self._ask_peer())

    async def agree(self, switch: Switch) -> bool:
        """See `server.Roles`."""
        state = await roles.look(switch)
        self._handle(Outbid(state.generation if state is not None else 0))
        if self.leadership.post is Post.MASTER:
            self._handle(Outbid(await roles.claim(switch, self.leadership.generation)))
        else:
            await roles.follow(switch, self.leadership.highest)
        return switch.granted is Role.MASTER

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            logger.error("internal error of this controller", exc_info=fault)
