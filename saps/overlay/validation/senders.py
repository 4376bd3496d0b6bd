"""Checks that a frame which speaks for its sender comes from that broker.

Most frames are passed on from broker to broker, so the sender on the link says nothing about their origin. These checks
cover the frames that always come from the broker that they speak of. They also cover keys, which name their broker and
its cluster. The link verifies the identity of the sender itself (`saps.identity`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saps.overlay.frames.base import Frame, ProtocolError
from saps.overlay.frames.calls import Locate
from saps.overlay.frames.delivery import MadeUp
from saps.overlay.frames.ring import Check, Find, Found, Insert, Inserted
from saps.overlay.frames.sessions import Bequest
from saps.overlay.ring.keys import BrokerRef, KeyOrder, Ref, broker_key, place
from saps.overlay.validation.contents import UNSOUND

Rule = Callable[[BrokerRef, Any, KeyOrder], "str | None"]


def key_fault(ref: Ref, order: KeyOrder) -> str | None:
    """Return why a key cannot belong to the broker of the reference, or None if it can."""
    key, broker = ref.key, ref.broker
    if key.broker != broker.name:
        return f"a key of {key.broker} at {broker.name}"
    if key.place != place(broker, order) and key != broker_key(broker.name):
        return f"a key of {key.broker} in a place that is not of cluster {broker.cluster}"
    return None


def check_sender(sender: BrokerRef, frames: list[Frame], order: KeyOrder) -> None:
    """Check frames from one sender, their content included. Raises `ProtocolError` for the first frame that is invalid,
    or that this sender may not send."""
    rule_of, unsound_of = _RULES.get, UNSOUND.get
    for frame in frames:
        kind = type(frame)
        unsound = unsound_of(kind)
        if unsound is not None and (fault := unsound(frame)) is not None:
            raise ProtocolError(f"{kind.__name__} from {sender.name}: {fault}")
        rule = rule_of(kind)
        if rule is not None and (fault := rule(sender, frame, order)) is not None:
            raise ProtocolError(f"{kind.__name__} from {sender.name}: {fault}")


def _own(sender: BrokerRef, broker: BrokerRef) -> str | None:
    return None if broker == sender else f"in the name of {broker.name}"


def _earlier(sender: BrokerRef, origin: BrokerRef | None) -> str | None:
    own = origin is None or sender.succeeds(origin)
    return None if own else "publications that are not of an earlier incarnation of it"


_RULES: dict[type[Frame], Rule] = {
    Insert: lambda sender, frame, order: key_fault(frame.ref, order),
    Inserted: lambda sender, frame, order: _own(sender, frame.left.broker),
    Found: lambda sender, frame, order: _own(sender, frame.left.broker),
    Check: lambda sender, frame, order: _own(sender, frame.ref.broker),
    Find: lambda sender, frame, order: _own(sender, frame.origin) if frame.hops == 0 else None,
    Locate: lambda sender, frame, order: _own(sender, frame.origin) if frame.hops <= 1 else None,
    MadeUp: lambda sender, frame, order: _earlier(sender, frame.origin),
    Bequest: lambda sender, frame, order: _earlier(sender, frame.origin),
}
