"""Roles at switches (OpenFlow 1.3.5, 6.3.6): what one asks of a switch that has two controllers (asyncio).

A switch that does not answer in time is as good as away: nobody is its master through us.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from saps.ofm.openflow.driver.switch import Switch
from saps.ofm.openflow.errors import ChannelError, RefusedError
from saps.ofm.openflow.values import Role, RoleState

ANSWER = 1.0
"""Seconds a switch has to answer."""
NO_GENERATION = (1 << 64) - 1
"""How a switch answers that has heard of no generation."""


async def look(switch: Switch) -> RoleState | None:
    """Our role there, and the latest generation; None: no answer."""
    try:
        async with asyncio.timeout(ANSWER):
            state = await switch.role(Role.UNCHANGED)
    except (ChannelError, TimeoutError):
        return None
    return RoleState(state.role, 0) if state.generation == NO_GENERATION else state


async def claim(switch: Switch, generation: int) -> int:
    """Ask to be its master. Gives the later generation that it has heard of, or 0."""
    try:
        async with asyncio.timeout(ANSWER):
            await switch.role(Role.MASTER, generation)
    except RefusedError:
        state = await look(switch)
        return state.generation if state is not None and state.generation > generation else 0
    except (ChannelError, TimeoutError):
        pass
    return 0


async def claim_all(switches: Iterable[Switch], generation: int) -> int:
    """`claim` at all of them: the latest generation that any has heard of later than ours, or 0."""
    return max(await asyncio.gather(*(claim(switch, generation) for switch in switches)), default=0)


async def follow(switch: Switch, generation: int) -> None:
    """Be its slave. `generation`: the latest heard of; a switch that knows a later one makes slaves by itself."""
    try:
        async with asyncio.timeout(ANSWER):
            await switch.role(Role.SLAVE, generation)
    except (ChannelError, TimeoutError):
        pass
