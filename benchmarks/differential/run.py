"""The brokers that are compared, and scripts at all of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from functools import partial

from benchmarks import peers
from benchmarks.city.brokers import Rumqttd
from benchmarks.city.install import install
from benchmarks.city.rows import ALL
from benchmarks.differential.clients import Client, carry_out
from benchmarks.differential.compare import Difference, difference, fault, merged, named
from benchmarks.differential.scripts import KEEP_ALIVE, Script, script
from benchmarks.processes import Place
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, V311, Connect

ATTEMPTS = 2
"""Times a difference must come again: on a busy machine an answer may be late."""
OURS, MOSQUITTO, RUMQTTD = "SAPS", "Mosquitto", "rumqttd"


class Peer:
    """A broker that is started again if it does not take clients any more. A context manager."""

    def __init__(self, name: str, launch: Callable[[Place], int], version: int) -> None:
        self.name, self._launch, self._version = name, launch, version
        self._stack = contextlib.ExitStack()
        self.port = 0
        self.ended = 0
        """Times it had to be started again."""

    def __enter__(self) -> Peer:
        self.port = self._launch(self._stack.enter_context(Place(None)))
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    async def ready(self) -> None:
        """See that it serves. Raises `StartError`."""
        for _ in range(3):
            if await self.serves():
                return
        self.ended += 1
        self._stack.close()
        self.__enter__()

    async def serves(self) -> bool:
        """It greets a client and answers its PINGREQ."""
        client = Client(self._version, "")
        try:
            await client.connect(self.port, encode(Connect("probe", self._version, True, KEEP_ALIVE), self._version))
            await client.ping()
        except OSError:
            return False
        finally:
            await client.close()
        return any(event[0] == "connack" for event in client.events) and ("waits",) not in client.events


class Comparison:
    """Scripts at all brokers, and what was found."""

    def __init__(self, ours: Peer, mosquitto: Peer, rumqttd: dict[int, Peer]) -> None:
        self._ours, self._mosquitto, self._rumqttd = ours, mosquitto, rumqttd
        self.counts: Counter[tuple[str, str, str]] = Counter()
        """Broker, what differs, and the clause: how often."""
        self.unnamed: list[str] = []

    @property
    def ended(self) -> dict[str, int]:
        """How often each broker had to be started again."""
        found = {peer.name: peer.ended for peer in (self._ours, self._mosquitto)}
        return found | {RUMQTTD: sum(peer.ended for peer in self._rumqttd.values())}

    async def one(self, seed: int) -> None:
        """Carry out the script of a seed, again if something without a name differs. Raises `StartError`."""
        last: list[tuple[str, Difference]] = []
        for attempt in range(1 + ATTEMPTS):
            last = await self._once(script(seed, attempt), first=not attempt)
            if not last:
                return
        self.unnamed += [told(name, found) for name, found in last]

    async def _once(self, drawn: Script, *, first: bool) -> list[tuple[str, Difference]]:
        rumqttd = self._rumqttd.get(drawn.version)
        guests = [self._mosquitto] if rumqttd is None else [self._mosquitto, rumqttd]
        for peer in (self._ours, *guests):
            await peer.ready()
        ours, *theirs = await asyncio.gather(*(carry_out(drawn, peer.port) for peer in (self._ours, *guests)))
        found: list[tuple[str, Difference]] = []
        beside: Difference | None = None
        for peer, got in zip(guests, theirs, strict=True):
            differs = difference(drawn, ours, got)
            if differs is None:
                self.counts[peer.name, "", ""] += first
                continue
            differs = differs._replace(alone=peer is not self._mosquitto)
            rule = named(differs, beside)
            if rule is None:
                found.append((peer.name, differs))
            elif first:
                self.counts[peer.name, rule.what, rule.clause] += 1
            beside = differs
        return found


def told(name: str, found: Difference) -> str:
    """A difference without a name, in full."""
    step = found.step
    what = "mutated" if step.mutated else "well-formed"
    lines = [
        f"seed {found.script.seed}, MQTT {found.script.version}, step {found.number}: {step.client} {step.act} {what}",
        f"  {step.data!r}  {fault(step, found.script.version)}",
    ]
    for client, ours in found.ours.items():
        if merged(ours) != merged(found.theirs[client]):
            lines += [f"  {client}: SAPS {ours}", f"  {client}: {name} {found.theirs[client]}"]
    return "\n".join(lines)


def start(stack: contextlib.ExitStack, *, rumqttd: bool = True) -> Comparison:
    """All brokers, until the stack is closed. Raises `StartError` or `InstallError`."""

    def entered(name: str, launch: Callable[[Place], int], version: int = V311) -> Peer:
        return stack.enter_context(Peer(name, launch, version))

    ours = entered(OURS, lambda place: peers.Saps().launch(place, "latency").publish_port)
    mosquitto = entered(MOSQUITTO, lambda place: peers.Mosquitto().launch(place, "latency").publish_port)
    others: dict[int, Peer] = {}
    if rumqttd:
        install("rumqttd")
        for version in (V311, V5):
            others[version] = entered(RUMQTTD, partial(_rumqttd, version=version), version)
    return Comparison(ours, mosquitto, others)


def _rumqttd(place: Place, version: int) -> int:
    return Rumqttd().launch(place, ALL[0], version).publish_port
