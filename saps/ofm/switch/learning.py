"""The forwarding of a plain learning switch."""

from __future__ import annotations

from saps.ofm.switch.packets import Packet


class Learning:
    """The forwarding of a plain learning switch, for the output `NORMAL`. It floods over `ports`, which must close no
    loop with those of the other switches. Multicast is always flooded."""

    def __init__(self, ports: set[int]) -> None:
        self.ports = ports
        self._seen: dict[int, int] = {}

    def __call__(self, port: int, packet: Packet) -> list[int]:
        """Learn the source's port. Return the port of the destination if known, otherwise all other ports."""
        if port not in self.ports:
            return []
        self._seen[packet.eth_src] = port
        known = self._seen.get(packet.eth_dst)
        if known is not None:
            return [known]
        return sorted(self.ports - {port})
