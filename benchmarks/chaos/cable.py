"""The one link between a lab's two clusters, and what can be done to it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from lab import Lab, LabError

TABLE = "saps_chaos"
"""Of the packet filter (nftables) of a host."""


class Cable:
    """The methods block for some milliseconds; what they give repairs the link."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        (link,) = lab.topology.links
        self._ends = (link.a, link.b) if link.a < link.b else (link.b, link.a)
        self._devices = {link.a: link.name, link.b: link.reverse}

    def cut(self) -> Callable[[], None]:
        """Nothing passes."""
        self._lab.set_link(*self._ends, up=False)
        return lambda: self._lab.set_link(*self._ends, up=True)

    def slow(self, bits: int, *, forth: bool) -> Callable[[], None]:
        """So many bits a second, one way."""
        a, b = self._ends if forth else self._ends[::-1]
        self._lab.set_rate(a, b, bits)
        return lambda: self._lab.set_rate(a, b, None)

    def lose(self, share: float, *, forth: bool) -> Callable[[], None]:
        """So much of what passes is lost at random, one way."""
        device = self._devices[self._ends[0] if forth else self._ends[1]]
        self._tc(f"qdisc add dev {device} clsact")
        self._tc(f"filter add dev {device} egress bpf direct-action bytecode", lottery(share))
        return lambda: self._tc(f"qdisc delete dev {device} clsact")

    def mangle(self, share: float, seed: int, *, forth: bool) -> Callable[[], None]:
        """So much of what passes one way comes twice, so much late, so much with a wrong bit. Raises `LabError`."""
        device = self._devices[self._ends[0] if forth else self._ends[1]]
        process = self._lab.switches.popen(
            [sys.executable, "-m", "benchmarks.chaos.mangler", device, str(share), str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            _, said = process.communicate()
            raise LabError(f"packets cannot be mangled: {said.decode(errors='replace')}")
        return lambda: self._end(process)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        process.communicate()

    def ring(self) -> Callable[[], None]:
        """Each host hears the next ones to both sides only, as many as make a majority with it."""
        hosts = sorted(self._lab.topology.hosts)
        for place, host in enumerate(hosts):
            deaf = unheard(place, len(hosts))
            rules = [f"add rule inet {TABLE} in ip saddr {hosts[other].ip} drop" for other in deaf]
            rules += [f"add rule inet {TABLE} in ip6 saddr {hosts[other].ipv6} drop" for other in deaf]
            chain = f"add chain inet {TABLE} in {{ type filter hook input priority 0 ; }}"
            self._nft(host.name, "\n".join([f"add table inet {TABLE}", chain, *rules]))

        def repair() -> None:
            for host in hosts:
                self._nft(host.name, f"delete table inet {TABLE}")

        return repair

    def _nft(self, host: str, rules: str) -> None:
        self._lab.host(host).run(["nft", "-f", "-"], input=rules.encode(), capture_output=True)

    def _tc(self, line: str, *more: str) -> None:
        self._lab.switches.run(["tc", *line.split(), *more], capture_output=True)


def lottery(share: float) -> str:
    """A packet filter (classic BPF, as `tc` takes it) that drops this share of the packets. `netem`, made for this, is
    not in every kernel; this is."""
    load, jump, give = 0x20, 0x35, 0x06
    passed, dropped = 0, 2  # TC_ACT_OK, TC_ACT_SHOT
    random_word = 0xFFFFF000 + 56  # SKF_AD_OFF + SKF_AD_RANDOM
    threshold = min(round(share * 2**32), 2**32 - 1)
    program = [(load, 0, 0, random_word), (jump, 0, 1, threshold), (give, 0, 0, passed), (give, 0, 0, dropped)]
    return ",".join([str(len(program)), *(" ".join(map(str, line)) for line in program)])


def unheard(place: int, count: int) -> list[int]:
    """Whom the broker at this place of a ring of so many does not hear: all but as many neighbours, half of them to
    each side, as make a majority with it."""
    near = count // 4 + (count % 4 > 1)
    return [other for other in range(count) if min((other - place) % count, (place - other) % count) > near]
