"""Keeps wills that outlive their broker (MQTT 5.0, sections 3.1.2.5 and 3.1.3.2.2).

1. A broker sends the wills of its clients to `GUARDIANS` other brokers: its neighbours in the overlay, which watch it
   anyway.
2. When the broker dies, the first guardian waits for the delay of each will. Then it asks all brokers whether the
   client is connected to one of them, and publishes the will if not.
3. The second guardian does so if the first one dies before it has reported the will as settled (`Mourned`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from saps.mesh import Local
from saps.messages import Message, size_of
from saps.overlay.frames.base import ProtocolError
from saps.overlay.frames.calls import Absent, Here
from saps.overlay.frames.sessions import Guard, Mourned, Unguard, Will
from saps.overlay.port import Bodies, Handlers, Port
from saps.overlay.rendezvous.range_calls import Outcome, RangeCalls
from saps.overlay.ring.keys import ALL_BROKERS, BrokerRef, broker_key

MOST = 1 << 18
"""Most wills accepted from one broker: more than it may have sessions."""
GUARDIANS = 2
"""Guardians of a broker. Its wills are published even if all guardians but one crash with it. Each guardian costs one
frame for each client that connects with a will."""
LEFT = 10.0
"""Seconds for which the clients of a broker that leaves in order may connect elsewhere before their wills are
published."""
RESEND = 0.2
"""Interval between two checks whether a guardian is reachable again after its link broke, in seconds."""
LOOK = 5.0
"""Interval between two checks whether there are enough guardians, in seconds."""
FORMER = 64
"""Most former guardians that are remembered."""
PART = 1 << 20
"""Bytes at which a frame of wills is full. All wills of a broker at once could be more than a link may queue."""


class _Ward:
    """The wills of another broker."""

    __slots__ = ("guardians", "least_delay", "orphaned", "wills")

    def __init__(self) -> None:
        self.guardians: list[BrokerRef] = []
        """Guardians of the broker; the first of them that is alive publishes."""
        self.wills: dict[str, Will] = {}
        """The broker's wills by client."""
        self.orphaned = False
        """Whether the broker has died or left."""
        self.least_delay = 0.0
        """Shortest delay of its wills, in seconds."""


class Wills:
    """The wills that one broker sends to guardians, and those that it guards for others."""

    def __init__(
        self,
        port: Port,
        calls: RangeCalls,
        candidates: Callable[[], Iterable[BrokerRef]],
        local: Local,
    ) -> None:
        """`candidates` returns brokers that may be guardians, the best first."""
        self._port = port
        self._calls = calls
        self._candidates = candidates
        self._local = local
        self._serial = 0
        self._own: dict[str, Will] = {}
        self._guardians: list[BrokerRef] = []
        self._former: dict[BrokerRef, None] = {}
        """Former guardians, the latest last. One may still have wills that it would publish."""
        self._unsent: dict[BrokerRef, list[str]] = {}
        """By guardian: the clients whose wills have still to be sent, while all are sent in parts."""
        self._wards: dict[BrokerRef, _Ward] = {}
        self.published = 0
        """Wills of other brokers' clients published here since the start."""

    # --- the broker of the clients ----------------------------------------------------------------------------------

    def guard_will(self, client: str, message: Message | None, delay: float) -> None:
        """Replace the will of a client at the guardians. `message` None removes it; `delay` is the will delay in
        seconds."""
        if message is None:
            if (known := self._own.pop(client, None)) is not None:
                for guardian in self._guardians:
                    self._port.send(guardian, Unguard(client, known.serial))
            return
        self._serial += 1
        will = self._own[client] = Will(client, self._serial, delay, message)
        if not self._review():
            for guardian in self._guardians:
                self._port.send(guardian, Guard([will], self._guardians, False))

    def look(self) -> None:
        """Check that there are enough guardians; call this every `LOOK` seconds."""
        self._review()

    def _review(self) -> bool:
        """Replace lost guardians. Returns True if there was a change; then all guardians have been sent all wills."""
        if not self._own:
            return False
        staying = [guardian for guardian in self._guardians if not self._port.lost(guardian)]
        for broker in self._candidates():
            if len(staying) >= GUARDIANS:
                break
            if broker.name != self._port.me.name and broker not in staying and self._port.reachable(broker):
                staying.append(broker)
        if staying == self._guardians:
            return False
        self._former.update(dict.fromkeys(self._guardians))
        for guardian in staying:
            self._former.pop(guardian, None)
        while len(self._former) > FORMER:
            del self._former[next(iter(self._former))]
        self._guardians = staying
        self.send_all()
        return True

    def send_all(self) -> None:
        """Send all wills to the guardians again, as they may have missed some, and tell former guardians that they
        guard none."""
        for broker in (*self._guardians, *self._former):
            self._send_all_to(broker)

    def _send_all_to(self, broker: BrokerRef) -> None:
        """Send all wills to a guardian, or none to a former one."""
        if broker in self._guardians:
            self._unsent[broker] = list(self._own)
            self._send_part_to(broker, True)
        elif broker in self._former and not self._port.lost(broker):
            self._port.send(broker, Guard([], [], True))

    def _send_part_to(self, guardian: BrokerRef, first: bool = False) -> None:
        """Send some of the wills that a guardian has still to get, and the others when it has these."""
        unsent, wills, size = self._unsent[guardian], list[Will](), 0
        while unsent and size < PART:
            if (will := self._own.get(unsent.pop())) is not None:
                wills.append(will)
                size += len(will.client) + size_of(will.message)
        self._port.send(guardian, Guard(wills, self._guardians, first))
        if unsent:
            self._go_on(guardian, unsent)
        else:
            del self._unsent[guardian]

    def _go_on(self, guardian: BrokerRef, unsent: list[str]) -> None:
        """Send the rest to a guardian when it answers, as then it has all that was sent before."""

        def answered(outcome: Outcome) -> None:
            if self._unsent.get(guardian) is not unsent:
                return  # all are sent again
            if guardian not in self._guardians or self._port.lost(guardian):
                del self._unsent[guardian]
            elif outcome.complete:
                self._send_part_to(guardian)
            else:
                self._port.after(RESEND, lambda: self._go_on(guardian, unsent))

        self._calls.call_at([(broker_key(guardian.name), guardian)], Absent([]), answered)

    # --- the guardian -------------------------------------------------------------------------------------------

    @property
    def handlers(self) -> Handlers:
        return {Guard: self._on_guard, Unguard: self._on_unguard, Mourned: self._on_mourned}

    @property
    def bodies(self) -> Bodies:
        return {Absent: lambda body, keys: [Here([each for each in body.clients if self._local.connected(each)])]}

    def _on_guard(self, sender: BrokerRef, frame: Guard) -> None:
        ward = self._wards.get(sender)
        if ward is None or frame.complete:
            ward = _Ward()
        wills = {will.client: will for will in frame.wills}
        if len(ward.wills) + len(wills.keys() - ward.wills.keys()) > MOST:
            raise ProtocolError(f"{sender.name} has more than {MOST} wills")
        ward.guardians = frame.guardians
        ward.wills.update(wills)
        if ward.wills:
            self._wards[sender] = ward
        else:
            self._wards.pop(sender, None)

    def _on_unguard(self, sender: BrokerRef, frame: Unguard) -> None:
        self._forget_will(sender, frame.client, frame.serial)

    def _on_mourned(self, sender: BrokerRef, frame: Mourned) -> None:
        ward = self._wards.get(frame.broker)
        if ward is not None and sender in ward.guardians:
            for client, serial in frame.wills:
                self._forget_will(frame.broker, client, serial)

    def _forget_will(self, broker: BrokerRef, client: str, serial: int) -> None:
        ward = self._wards.get(broker)
        if ward is not None and client in ward.wills and ward.wills[client].serial <= serial:
            del ward.wills[client]
            if not ward.wills:
                del self._wards[broker]

    def watched(self) -> dict[str, BrokerRef]:
        """Return the brokers whose failure must be detected here, by name: wards, and the other guardians of wards that
        died."""
        found = {}
        for broker, ward in self._wards.items():
            for ref in ward.guardians if ward.orphaned else (broker,):
                if ref.name != self._port.me.name:
                    found[ref.name] = ref
        return found

    def died(self, broker: BrokerRef) -> None:
        """Handle the death of a broker: it may be a ward, a guardian of this broker, or another guardian of a ward."""
        self._gone(broker, 0.0)

    def left(self, broker: BrokerRef) -> None:
        """Handle the Leave of a broker. Its clients get `LEFT` seconds to connect elsewhere."""
        self._gone(broker, LEFT)

    def _gone(self, broker: BrokerRef, least_delay: float) -> None:
        ward = self._wards.get(broker)
        if ward is not None and not ward.orphaned:
            ward.orphaned, ward.least_delay = True, least_delay
            self._mourn(broker, ward)
        for other, orphans in list(self._wards.items()):
            if orphans.orphaned and broker in orphans.guardians:
                self._mourn(other, orphans)
        self.look()

    def _mourn(self, broker: BrokerRef, ward: _Ward) -> None:
        """Handle each will after its delay, if this broker is the first guardian alive."""
        first = next((ref for ref in ward.guardians if not self._port.lost(ref)), None)
        if first != self._port.me:
            return
        by_delay: dict[float, list[Will]] = {}
        for will in ward.wills.values():
            by_delay.setdefault(max(will.delay, ward.least_delay), []).append(will)
        for delay, wills in by_delay.items():
            self._port.after(delay, lambda wills=wills: self._ask(broker, ward, wills))  # type: ignore[misc]

    def _ask(self, broker: BrokerRef, ward: _Ward, wills: list[Will]) -> None:
        """Ask all brokers for the clients of these wills, and publish the wills of those that are not connected."""
        if self._wards.get(broker) is not ward:
            return

        def answered(outcome: Outcome) -> None:
            here = {client for result in outcome.results if isinstance(result, Here) for client in result.clients}
            if self._wards.get(broker) is ward:
                self._publish_absent(broker, ward, [will for will in wills if will.client not in here])
                self._done(broker, ward, wills)

        self._calls.call(ALL_BROKERS, Absent([will.client for will in wills]), answered)

    def _publish_absent(self, broker: BrokerRef, ward: _Ward, wills: list[Will]) -> None:
        for will in wills:
            if ward.wills.get(will.client) == will:
                self.published += 1
                self._local.bequeath(will.message)

    def _done(self, broker: BrokerRef, ward: _Ward, wills: list[Will]) -> None:
        for guardian in ward.guardians:
            if guardian.name != self._port.me.name and not self._port.lost(guardian):
                self._port.send(guardian, Mourned(broker, [(will.client, will.serial) for will in wills]))
        for will in wills:
            self._forget_will(broker, will.client, will.serial)

    # --- links that break ---------------------------------------------------------------------------------------

    def link_down(self, peer: BrokerRef) -> None:
        """Handle the loss of a link to a guardian or former one: frames sent to it may be lost, so all wills are sent
        again."""
        if peer in self._guardians or peer in self._former:
            self._port.after(RESEND, lambda: self._resend(peer))

    def _resend(self, peer: BrokerRef) -> None:
        if self._port.reachable(peer):
            self._send_all_to(peer)
        elif not self._port.lost(peer):
            self.link_down(peer)
