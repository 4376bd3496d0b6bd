"""Negotiates roles at switches that have two controllers (OpenFlow 1.3.5, 6.3.6; asyncio).

A switch that does not answer in time counts as away: this controller is not its master.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from saps.ofm.openflow.driver.switch import Switch
from saps.ofm.openflow.encode import UnencodableError
from saps.ofm.openflow.errors import ChannelError, RefusedError
from saps.ofm.openflow.values import Role, RoleState

ANSWER = 1.0
"""Timeout of a switch's answer in seconds."""
LATEST = (1 << 63) - 1
"""Highest generation of a pair. Switches compare generations modulo 2^64, so a higher one is before all others; the
answer of a switch that knows none has 2^64 - 1."""


async def look(switch: Switch) -> RoleState | None:
    """Return this controller's role at a switch, with the latest generation or 0; None without an answer."""
    try:
        async with asyncio.timeout(ANSWER):
            state = await switch.role(Role.UNCHANGED)
    except (ChannelError, TimeoutError):
        return None
    return RoleState(state.role, 0) if state.generation > LATEST else state


async def claim(switch: Switch, generation: int) -> int:
    """Ask to be the switch's master. Return the later generation that the switch knows, or 0 if it knows none."""
    try:
        async with asyncio.timeout(ANSWER):
            await switch.role(Role.MASTER, generation)
    except RefusedError:
        state = await look(switch)
        return state.generation if state is not None and state.generation > generation else 0
    except (ChannelError, UnencodableError, TimeoutError):
        pass
    return 0


async def claim_all(switches: Iterable[Switch], generation: int) -> int:
    """Run `claim` at all switches. Return the latest generation later than `generation` that any of them knows, or
    0."""
    return max(await asyncio.gather(*(claim(switch, generation) for switch in switches)), default=0)


async def follow(switch: Switch, generation: int) -> None:
    """Become the switch's slave. `generation` is the latest one known. A switch that knows a later one demotes its
    controllers by itself."""
    try:
        async with asyncio.timeout(ANSWER):
            await switch.role(Role.SLAVE, generation)
    except (ChannelError, UnencodableError, TimeoutError):
        pass
