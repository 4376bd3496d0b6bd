"""The one link between a lab's two clusters, and what can be done to it."""

from __future__ import annotations

from collections.abc import Callable

from lab import Lab


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
