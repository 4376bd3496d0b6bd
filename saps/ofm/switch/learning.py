"""The forwarding of a plain learning switch."""

from __future__ import annotations

from saps.ofm.switch.packets import Packet

MOST = 8192
"""Most addresses learnt; beyond it the one not seen for longest is forgotten."""


class Learning:
    """The forwarding of a plain learning switch, for the output `NORMAL`. It floods over `ports`, which must close no
    loop with those of the other switches. Multicast is always flooded."""

    def __init__(self, ports: set[int]) -> None:
        self.ports = ports
        self._seen: dict[int, int] = {}
        """The port of each source, the one not seen for longest first."""

    def __call__(self, port: int, packet: Packet) -> list[int]:
        """Learn the source's port. Return the port of the destination if known, otherwise all other ports."""
        if port not in self.ports:
            return []
        if not packet.eth_src >> 40 & 1:  # a group address is no station's
            self._seen.pop(packet.eth_src, None)
            self._seen[packet.eth_src] = port
            if len(self._seen) > MOST:
                del self._seen[next(iter(self._seen))]
        known = self._seen.get(packet.eth_dst)
        if known is not None:
            return [known]
        return sorted(self.ports - {port})
