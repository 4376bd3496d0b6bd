"""The settings of a drain (``[drain]``): its pace, and the addresses advertised to clients of drained brokers."""

from __future__ import annotations

from typing import Annotated

import msgspec

from saps.config.address import Address
from saps.config.knobs import knob
from saps.drain.values import Options

_OPTIONS = Options()


def reference_fault(text: str) -> str | None:
    """Return why `text` is not an address that clients can be sent to, or None if it is one or empty."""
    if not text:
        return None
    try:
        address = Address.parse(text)
    except ValueError as error:
        return str(error)
    return None if address.port else "port 0 cannot be reached"


class DrainSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The drain of this broker (`saps drain`), and its addresses for clients of drained brokers."""

    rate: Annotated[
        float,
        knob(
            "Clients sent to other brokers in a second",
            unit="1/s",
            cost="more reconnections and moved sessions at a time for the others",
            gt=0,
            le=1_000_000,
        ),
    ] = _OPTIONS.rate
    grace: Annotated[
        float,
        knob(
            "How long a client that was sent away may take to connect elsewhere before this broker chooses for "
            "its session",
            unit="s",
            cost="the broker stays that much longer",
            ge=0,
            le=3600,
        ),
    ] = _OPTIONS.grace
    timeout: Annotated[
        float,
        knob(
            "Time after which the broker leaves with stored sessions that no broker takes; others keep it trying",
            unit="s",
            cost="a drain that cannot succeed is noticed later",
            ge=0,
            le=1_000_000,
        ),
    ] = _OPTIONS.timeout
    mqtt: Annotated[
        str,
        knob(
            "Where clients of drained brokers find this one, such as b1.example.org:1883; none: `mqtt`, "
            "unless it is a wildcard",
            check=reference_fault,
        ),
    ] = ""
    mqtts: Annotated[
        str,
        knob(
            "The same over TLS; none: the first of `tls.listen`, unless it is a wildcard",
            check=reference_fault,
        ),
    ] = ""

    def options(self) -> Options:
        """Return the options of a drain whose order gives none."""
        return Options(rate=self.rate, grace=self.grace, timeout=self.timeout)
