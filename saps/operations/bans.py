"""Bans: clients, users and addresses that no broker of the mesh lets in, until a time or until they are lifted.

Every broker has all of them. A change goes to all brokers by one call along the overlay; whoever missed it learns of it
when it compares its table with that of a neighbour (`digest`). Of two changes of the same ban the later one holds at
all brokers, so tables that have heard of the same changes are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from saps.agents.api import remote, repeatable

BANS = "bans"
"""Name of each broker's agent; it costs the overlay no key."""
MOST = 10_000
"""Bans in force, about 0.5 KiB each."""
REMEMBERED = 30 * 86400.0
"""Seconds for which it is remembered that a ban was lifted. A broker that was away for longer brings it back."""
KINDS = ("client", "user", "address")
FUTURE = 86400.0
"""Seconds by which another broker's clock may be ahead: what is further ahead is not taken."""

Name = Annotated[str, Meta(min_length=1, max_length=65535)]
Text = Annotated[str, Meta(max_length=256)]


class Ban(msgspec.Struct, frozen=True, kw_only=True):
    """One ban, or that it was lifted."""

    kind: Literal["client", "user", "address"]
    name: Name
    """Of an address: an IP address or a network, ``192.0.2.0/24``."""
    until: float | None = None
    """Seconds since 1970; None: until it is lifted."""
    reason: Text = ""
    by: Text = ""
    """The user who ordered it."""
    at: float
    """Seconds since 1970. Of two changes the later one holds."""
    broker: str
    """Where it was ordered."""
    lifted: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """What it is about."""
        return self.kind, self.name

    def holds(self, now: float) -> bool:
        """Is it in force?"""
        return not self.lifted and (self.until is None or self.until > now)

    def words(self) -> str:
        """For the log."""
        return f"the {self.kind} {self.name!r} is banned" + (f": {self.reason}" if self.reason else "")


class BanList(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of ``/v1/bans``."""

    at: float
    bans: list[Ban]


class BanOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an administrator wants."""

    kind: Literal["client", "user", "address"]
    name: Name
    seconds: Annotated[float, Meta(gt=0, le=100 * 365 * 86400)] | None = None
    """How long; None: until it is lifted."""
    reason: Text = ""


class Banned(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    ban: Ban
    brokers: int
    """That have it now."""
    disconnected: int
    """Clients."""
    complete: bool
    """All brokers have answered; those that have not learn of it soon."""


def named(kind: str, name: str) -> str:
    """The name as it is kept: addresses in their shortest form. Raises `ValueError`."""
    if kind != "address":
        return name
    network = ip_network(name, strict=False)
    return str(network.network_address) if network.num_addresses == 1 else str(network)


class _Nets(NamedTuple):
    """Banned networks by length of prefix, then by first address."""

    of: dict[tuple[int, int], dict[IPv4Address | IPv6Address, Ban]]

    def add(self, ban: Ban) -> None:
        network = ip_network(ban.name)
        self.of.setdefault((network.version, network.prefixlen), {})[network.network_address] = ban

    def find(self, text: str) -> Iterable[Ban]:
        try:
            address = ip_address(text.partition("%")[0])
        except ValueError:
            return
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        number, bits = int(address), address.max_prefixlen
        for (version, length), networks in self.of.items():
            if version == address.version:
                first = type(address)(number >> (bits - length) << (bits - length))
                if (ban := networks.get(first)) is not None:
                    yield ban


class Bans:
    """The table of one broker."""

    def __init__(self, wall: Callable[[], float]) -> None:
        """`wall`: seconds since 1970."""
        self._wall = wall
        self._all: dict[tuple[str, str], Ban] = {}
        self._nets = _Nets({})
        self._digest: bytes | None = None

    def __len__(self) -> int:
        return len(self._all)

    def all(self) -> list[Ban]:
        """Those in force, and those lifted that are remembered, by name."""
        return [self._all[key] for key in sorted(self._all)]

    def live(self) -> list[Ban]:
        """Those in force."""
        now = self._wall()
        return [ban for ban in self.all() if ban.holds(now)]

    def get(self, kind: str, name: str) -> Ban | None:
        """The ban in force with this name."""
        ban = self._all.get((kind, name))
        return ban if ban is not None and ban.holds(self._wall()) else None

    def banned(self, client: str, user: str | None, address: str) -> Ban | None:
        """The ban that keeps a client out, if there is one."""
        if not self._all:
            return None
        now = self._wall()
        found = [self._all.get(("client", client))]
        if user is not None:
            found.append(self._all.get(("user", user)))
        if self._nets.of:
            found += self._nets.find(address)
        return next((ban for ban in found if ban is not None and ban.holds(now)), None)

    def put(self, ban: Ban) -> bool:
        """Take a change, unless there is a later one. False if nothing changes by it. Raises `ValueError` for one
        that cannot be."""
        if named(ban.kind, ban.name) != ban.name:
            raise ValueError(f"{ban.name!r} is not the shortest form of the address")
        now, known = self._wall(), self._all.get(ban.key)
        if ban.at > now + FUTURE:
            raise ValueError(f"the clock of {ban.broker} is ahead by {ban.at - now:.0f} s")
        if known is not None and (known.at, known.broker, known.lifted) >= (ban.at, ban.broker, ban.lifted):
            return False
        if _forgotten(ban, now) and known is None:
            return False
        if known is None and len(self._all) >= MOST:
            self.forget()
            if len(self._all) >= MOST:
                raise ValueError(f"there are {MOST:,} bans")
        self._all[ban.key] = ban
        self._changed()
        return True

    def forget(self) -> None:
        """Forget bans that are over, and those lifted long ago."""
        now = self._wall()
        kept = {key: ban for key, ban in self._all.items() if not _forgotten(ban, now)}
        if len(kept) < len(self._all):
            self._all = kept
            self._changed()

    def _changed(self) -> None:
        self._digest = None
        self._nets = _Nets({})
        for ban in self._all.values():
            if ban.kind == "address":
                self._nets.add(ban)

    @property
    def digest(self) -> bytes:
        """Equal for equal tables."""
        if self._digest is None:
            self._digest = blake2b(msgspec.msgpack.encode(self.all()), digest_size=16).digest()
        return self._digest


def _forgotten(ban: Ban, now: float) -> bool:
    if ban.lifted:
        return ban.at + REMEMBERED < now
    return ban.until is not None and ban.until < now


class BansAgent:
    """Answers for one broker."""

    def __init__(self, broker: str, bans: Bans, took: Callable[[list[Ban]], int]) -> None:
        """`took` is told of changes that were taken; returns how many clients were disconnected."""
        self._broker = broker
        self._bans = bans
        self._took = took

    @remote
    def put(self, values: list[Any]) -> Any:
        """Take changes: ``[broker, clients disconnected]``."""
        return [self._broker, self.take(msgspec.convert(values, list[Ban]))]

    @repeatable
    def compare(self, digest: bytes) -> Any:
        """None if this broker's table has the same digest; else the table."""
        self._bans.forget()
        return None if digest == self._bans.digest else msgspec.to_builtins(self._bans.all())

    def take(self, bans: Iterable[Ban]) -> int:
        """Take changes. Returns how many clients were disconnected. Raises `ValueError`."""
        taken = [ban for ban in bans if self._bans.put(ban)]
        return self._took(taken) if taken else 0

    def newer(self, theirs: Iterable[Ban]) -> list[Ban]:
        """What this table has that others with that one lack."""
        known = {ban.key: ban for ban in theirs}
        return [ban for ban in self._bans.all() if known.get(ban.key) != ban]
