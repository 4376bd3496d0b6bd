"""Runs `saps switches`: all switches of a topology, until SIGTERM or SIGINT, with orders on standard input."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from saps.config import Address, SettingError
from saps.ofm.switch.sockets_io import SoftwareSwitches
from saps.ofm.switch.topologies import Topology
from saps.runtime import process
from saps.runtime.logs import configure_logging

logger = logging.getLogger(__name__)


def run(topology: Topology, controller: Address, ports: Address, capacity: int | None, log_level: str) -> int:
    """Run the switches and return the exit status. Raises `SettingError` if a port is not available."""
    configure_logging(log_level)
    return process.run(lambda stop: _serve(topology, controller, ports, capacity, stop))


async def _serve(
    topology: Topology, controller: Address, ports: Address, capacity: int | None, stop: asyncio.Event
) -> int:
    switches = SoftwareSwitches(topology, (controller.host, controller.port), capacity)
    try:
        try:
            await switches.start(ports.host, ports.port)
        except OSError as error:
            raise SettingError("ports", process.refused(ports, error)) from None
        process.say(ready_line(switches))
        orders = asyncio.ensure_future(_orders(switches))
        await stop.wait()
        orders.cancel()
    finally:
        await switches.close()
    return 0


def ready_line(switches: SoftwareSwitches) -> str:
    """Return the line that a script waits for: the number of switches, and the address of each host's port."""
    hosts = " ".join(f"{name}={Address(*at)}" for name, at in switches.attachments.items())
    return f"ready switches={len(switches.network.bridges)} {hosts}".rstrip()


async def _orders(switches: SoftwareSwitches) -> None:
    """Answer the orders on standard input, until its end."""
    async for line in process.orders():
        process.say(json.dumps(order(switches, line)))


def order(switches: SoftwareSwitches, line: str) -> Any:
    """Carry out one order and return the answer."""
    verb, *names = line.split()[:4] or [""]
    try:
        if verb in ("down", "up") and (len(names) == 2 or (len(names) == 3 and names[2].isdigit())):
            switches.set_link(*names[:2], up=verb == "up", number=int(names[2]) if names[2:] else 1)
            return {"link": names, "up": verb == "up"}
        if verb == "restart" and len(names) == 1:
            switches.restart(switches.network.dpid(names[0]))
            return {"restarted": names[0]}
    except KeyError:
        return {"error": f"there is no such {'switch' if verb == 'restart' else 'link'}: {' '.join(names)}"}
    if verb == "status" and not names:
        return status(switches)
    return {"error": f"not an order: {line!r}; there are: down A B [NUMBER], up A B [NUMBER], restart SWITCH, status"}


def status(switches: SoftwareSwitches) -> dict[str, Any]:
    """Return each switch's tables and ports in numbers."""
    network = switches.network
    names = {switch.datapath_id: switch.name for switch in network.topology.switches}
    found = {}
    for dpid, bridge in network.bridges.items():
        tables, counts = bridge.switch.tables, bridge.switch.port_counts
        ports = {
            port.name: {
                "up": port.up,
                "received": counts[number].received.packets if number in counts else 0,
                "sent": counts[number].sent.packets if number in counts else 0,
            }
            for number, port in bridge.ports.items()
        }
        found[names[dpid]] = {"entries": tables.entries, "buckets": tables.buckets, "ports": ports}
    return {"connected": switches.connected, "switches": found}
