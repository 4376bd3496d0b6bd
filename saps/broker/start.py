"""Starts a broker on real links: probes other brokers, joins or begins a mesh (`saps.overlay.membership.start`), and
remembers the members on disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec.structs import replace

from saps.config import Address, BrokerSettings, SettingError
from saps.links import LinkError, Links
from saps.overlay.frames.ring import StartProbe, There
from saps.overlay.membership.start import Answer, Fault, Start
from saps.overlay.ring.keys import BrokerRef
from saps.runtime.atomic_file import PRIVATE, replacing

if TYPE_CHECKING:
    from saps.broker.node_driver import LiveMesh

logger = logging.getLogger(__name__)

REMEMBERED = 64
"""Most members that are remembered on disk."""
REMEMBER_EVERY = 1.0
"""Seconds between two checks whether the members have changed."""
STARTING = 60.0
"""Seconds after its start for which a broker goes on remembering the members of its last incarnation that it has not
heard. They may be starting, too, and power may fail again."""


class _Remembered(msgspec.Struct, frozen=True):
    """The content of a file of members."""

    incarnation: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] = 0
    """The last incarnation of the broker to which the file belongs."""
    members: dict[str, str] = {}
    """The names of the last members by address."""


class Members:
    """The file beside the storage with this broker's last incarnation, and the names and addresses of the last members:
    ``FILE.members``, in JSON."""

    def __init__(self, storage: str) -> None:
        """`storage` is the path of the storage file; if it is empty, nothing is remembered."""
        self._file = Path(f"{storage}.members") if storage else None
        self._written = _Remembered()

    def read(self) -> tuple[int, dict[str, str]]:
        """Return this broker's last incarnation and the names of the last members by address; 0 and empty, with a log
        line, if the file cannot be read."""
        if self._file is not None:
            try:
                self._written = _decoded(self._file.read_bytes())
            except FileNotFoundError:
                pass
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
                logger.warning("%s: cannot read the last members: %s", self._file, error)
        return self._written.incarnation, self._written.members

    def begin(self, incarnation: int) -> None:
        """Write this broker's incarnation, before others hear of it."""
        self._replace(_Remembered(incarnation, self._written.members))

    def write(self, members: Sequence[BrokerRef], starting: Mapping[str, str]) -> None:
        """Write these members, and those `starting`, given as `read` returns them. Nothing is written without members,
        so that a broker that is alone does not forget the others."""
        found = {member.address: member.name for member in members[-REMEMBERED:] if member.address}
        if not found:
            return
        heard = {member.name for member in members}
        found |= {address: name for address, name in starting.items() if name not in heard and address not in found}
        self._replace(_Remembered(self._written.incarnation, found))

    def _replace(self, content: _Remembered) -> None:
        if self._file is None or content == self._written:
            return
        try:
            with replacing(self._file, PRIVATE) as file:
                file.write(msgspec.json.encode(content))
        except OSError as error:
            logger.warning("%s: cannot write the last members: %s", self._file, error)
        self._written = content


def _decoded(content: bytes) -> _Remembered:
    """Return the content of a file of members, also of one from before it had the incarnation. Raises
    `msgspec.MsgspecError`."""
    found = msgspec.json.decode(content, type=dict[str, object])
    return msgspec.convert(found if isinstance(found.get("members"), dict) else {"members": found}, _Remembered)


class Entrance:
    """The way of one broker into its mesh, and to brokers that began another (a
    `saps.overlay.membership.start.World`)."""

    def __init__(self, settings: BrokerSettings, links: Links) -> None:
        """`links` must be listening. Until `join` only probes are answered."""
        self._links = links
        self._loop = asyncio.get_running_loop()
        self._timeout = settings.overlay.join_timeout
        self._work: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._members = Members(settings.storage.file)
        self._contact: asyncio.Future[BrokerRef | None] = self._loop.create_future()
        self._refusal: asyncio.Future[None] = self._loop.create_future()
        self._mesh: LiveMesh | None = None
        """The mesh once `join` has begun, else None."""
        incarnation, members = self._members.read()
        self._exceed(incarnation)
        places = {a: name for a, name in members.items() if name != settings.name}
        self._former = dict(places)
        places |= {str(address): "" for address in settings.join}
        self._start = Start(links.side.me, places, self, self._timeout)
        links.side.start = self._start

    async def decide(self) -> BrokerRef | None:
        """Return the broker to join, or None to begin a new mesh.

        Raises `SettingError` if every mesh refuses this broker."""
        self._start.begin()
        await self._unless_refused(self._contact)
        return self._contact.result()

    async def join(self, mesh: LiveMesh, contact: BrokerRef | None) -> None:
        """Join through `contact`, or begin a mesh if it is None. If `contact` does not respond, join through another.

        Raises `SettingError` as `decide` does."""
        self._mesh = mesh
        self._members.begin(self._links.side.me.incarnation)
        self._links.side.hidden = False
        self.after(self._timeout, self._start.again)
        await self._unless_refused(asyncio.ensure_future(mesh.join(contact, set(self._former.values()))))
        self._start.joined()
        self.after(STARTING, self._former.clear)
        self._remember(mesh)

    def close(self) -> None:
        """Stop probing and answering probes, and write the members."""
        self._start.close()
        for timer in self._timers:
            timer.cancel()
        for task in self._work:
            task.cancel()
        if self._mesh is not None:
            self._members.write(_members(self._mesh), self._former)

    # --- saps.overlay.membership.start.World
    # ---------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return monotonic()

    def after(self, delay: float, action: Callable[[], None]) -> None:
        def run() -> None:
            self._timers.discard(timer)
            action()

        timer = self._loop.call_later(delay, run)
        self._timers.add(timer)

    def start_probe(self, address: str, question: StartProbe, answer: Answer) -> None:
        self._do(self._start_probe(address, question, answer))

    async def _start_probe(self, address: str, question: StartProbe, answer: Answer) -> None:
        try:
            found: There | Fault = await self._links.start_probe(*Address.parse(address), question)
        except LinkError as error:
            found = Fault(str(error), error.refused)
        except ValueError as error:  # another broker has given a malformed address
            found = Fault(str(error))
        answer(found)

    def decided(self, contact: BrokerRef | None) -> None:
        mesh = self._mesh
        if mesh is not None:  # the contact before has not let this broker in
            mesh.act(lambda: mesh.node.redirect(contact))
            self.after(self._timeout, self._start.again)
        elif contact is not None:
            self._do(self._take_name(contact))
        else:
            if faults := self._start.faults():
                listed = "; ".join(f"{address}: {fault}" for address, fault in faults.items())
                logger.warning("begins a mesh; others that start will join it. Not reached: %s", listed)
            self._contact.set_result(None)

    def refused(self) -> None:
        self._refusal.set_result(None)

    def knows(self, address: str) -> bool:
        return self._mesh is not None and self._mesh.node.knows(address)

    def found(self, broker: BrokerRef) -> None:
        mesh = self._mesh
        if mesh is not None:
            mesh.act(lambda: mesh.node.peers.discovered(broker))

    # --- inside ---------------------------------------------------------------------------------------------------

    def _do(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _unless_refused(self, waited: asyncio.Future[Any]) -> None:
        try:
            await asyncio.wait({waited, self._refusal}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not waited.done():
                waited.cancel()
        if waited.cancelled():
            listed = "; ".join(f"{address}: {fault}" for address, fault in self._start.faults().items())
            raise SettingError("join", f"no broker can be reached: {listed}")

    async def _take_name(self, contact: BrokerRef) -> None:
        """Check that no live broker in the contact's mesh has this broker's name.

        The check must end before the mesh hears of this broker, which would pass for a later incarnation of the other.
        If the other has crashed, this broker takes a greater incarnation than it had, even if a clock was wrong.
        """
        links, name = self._links, self._links.side.me.name
        try:
            holder = await links.whois(*Address.parse(contact.address), name)
        except (LinkError, ValueError):
            self._start.again()
            return
        if holder is not None:
            if await self._alive(holder):
                self._start.deny(f"there is a broker with the same name, {name!r}, at {holder.address}")
                return
            self._exceed(holder.incarnation)
            self._start.me = links.side.me
        self._contact.set_result(contact)

    def _exceed(self, incarnation: int) -> None:
        """Take an incarnation greater than this former one, if the present one is not: of two, others take the lesser
        for the earlier one."""
        me = self._links.side.me
        if me.incarnation > incarnation:
            return
        logger.warning("the clock of %s is behind the start of its last incarnation: one of the two was wrong", me.name)
        self._links.side.me = replace(me, incarnation=incarnation + 1)

    async def _alive(self, holder: BrokerRef) -> bool:
        try:
            return await self._links.meet(*Address.parse(holder.address)) == holder
        except (LinkError, ValueError):
            return False

    def _remember(self, mesh: LiveMesh) -> None:
        self._members.write(_members(mesh), self._former)
        self.after(REMEMBER_EVERY, lambda: self._remember(mesh))


def _members(mesh: LiveMesh) -> list[BrokerRef]:
    """Return the other brokers that are in the mesh, or were when they were heard last."""
    node = mesh.node
    return [b for b in node.rejoin.ring_probe.acquaintances if not node.port.detector.stale_incarnation(b)]
