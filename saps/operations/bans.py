"""Bans: clients, users and addresses that no broker of the mesh admits, until a time or until the ban is lifted.

Every broker has all bans. A change goes to all brokers by one call over the overlay. A broker that missed the change
learns of it when it compares its table with a neighbour's (`digest`). Of two changes of the same ban, the later one
holds at all brokers, so that tables with the same changes are equal.
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
"""Name of the agent at each broker; it needs no key in the overlay."""
MOST = 10_000
"""Most bans in a table, about 0.5 KiB each."""
REMEMBERED = 30 * 86400.0
"""Seconds for which a lifted ban is remembered. A broker that was away for longer brings the ban back."""
KINDS = ("client", "user", "address")
FUTURE = 86400.0
"""Seconds by which another broker's clock may be ahead; changes from further ahead are refused."""

Name = Annotated[str, Meta(min_length=1, max_length=65535)]
Text = Annotated[str, Meta(max_length=256)]


class Ban(msgspec.Struct, frozen=True, kw_only=True):
    """One ban, in force or lifted."""

    kind: Literal["client", "user", "address"]
    name: Name
    """Client identifier, user, or an IP address or network (``192.0.2.0/24``)."""
    until: float | None = None
    """End in seconds since 1970; None until the ban is lifted."""
    reason: Text = ""
    by: Text = ""
    """The user who ordered this change."""
    at: float
    """Time of this change in seconds since 1970. Of two changes the later one holds."""
    broker: str
    """The broker at which the change was ordered."""
    lifted: bool = False
    """Whether the ban has been lifted."""

    @property
    def key(self) -> tuple[str, str]:
        """The ban's kind and name, which identify it."""
        return self.kind, self.name

    def holds(self, now: float) -> bool:
        """Return whether the ban is in force at `now`, in seconds since 1970."""
        return not self.lifted and (self.until is None or self.until > now)

    def terms(self) -> dict[str, Any]:
        """Return what the audit log has of the ban beside its kind, its name and who ordered it."""
        return {"until": self.until, "reason": self.reason}

    def words(self) -> str:
        """Return a description of the ban for the log."""
        return f"the {self.kind} {self.name!r} is banned" + (f": {self.reason}" if self.reason else "")


class BanList(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of ``/v1/bans``."""

    at: float
    bans: list[Ban]


class BanOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An administrator's order to ban a client, a user or an address."""

    kind: Literal["client", "user", "address"]
    name: Name
    seconds: Annotated[float, Meta(gt=0, le=100 * 365 * 86400)] | None = None
    """Duration in seconds; None until the ban is lifted."""
    reason: Text = ""


class Banned(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an order to ban, or to lift a ban."""

    ban: Ban
    brokers: int
    """Brokers that have the change now."""
    disconnected: int
    """Clients disconnected by the ban."""
    complete: bool
    """Whether all brokers have answered; the others learn of the change soon."""


def named(kind: str, name: str) -> str:
    """Return the name in the form in which it is kept: addresses and networks in their shortest form. Raises
    `ValueError` for an invalid address."""
    if kind != "address":
        return name
    network = ip_network(name, strict=False)
    return str(network.network_address) if network.num_addresses == 1 else str(network)


class _Nets(NamedTuple):
    """Banned addresses and networks. `find` costs one lookup for each prefix length in use."""

    of: dict[tuple[int, int], dict[IPv4Address | IPv6Address, Ban]]
    """By IP version and prefix length, then by first address."""

    def add(self, ban: Ban) -> None:
        """Add a ban of an address or network."""
        network = ip_network(ban.name)
        self.of.setdefault((network.version, network.prefixlen), {})[network.network_address] = ban

    def find(self, text: str) -> Iterable[Ban]:
        """Yield the bans whose network contains an IP address, which may have a zone. An IPv4 address mapped to IPv6
        counts as IPv4. Text that is not an address matches none."""
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
    """One broker's table of bans."""

    def __init__(self, wall: Callable[[], float]) -> None:
        """`wall` returns seconds since 1970."""
        self._wall = wall
        self._all: dict[tuple[str, str], Ban] = {}
        self._nets = _Nets({})
        self._digest: bytes | None = None

    def __len__(self) -> int:
        return len(self._all)

    def all(self) -> list[Ban]:
        """Return all bans in the table, by kind and name: those in force, and those over but not forgotten yet."""
        return [self._all[key] for key in sorted(self._all)]

    def live(self) -> list[Ban]:
        """Return the bans in force, by kind and name."""
        now = self._wall()
        return [ban for ban in self.all() if ban.holds(now)]

    def get(self, kind: str, name: str) -> Ban | None:
        """Return the ban in force with this kind and name, or None."""
        ban = self._all.get((kind, name))
        return ban if ban is not None and ban.holds(self._wall()) else None

    def banned(self, client: str, user: str | None, address: str) -> Ban | None:
        """Return a ban in force that applies to a client, its user or its IP address, or None."""
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
        """Apply a change, unless the table has a later one of the same ban. Returns whether the table has changed.
        Raises `ValueError` if the address is not in its shortest form, the other clock is too far ahead (`FUTURE`), or
        the table is full."""
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
        """Forget the bans that are over, and those lifted more than `REMEMBERED` seconds ago."""
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
        """A hash of the table, equal for equal tables."""
        if self._digest is None:
            self._digest = blake2b(msgspec.msgpack.encode(self.all()), digest_size=16).digest()
        return self._digest


def _forgotten(ban: Ban, now: float) -> bool:
    if ban.lifted:
        return ban.at + REMEMBERED < now
    return ban.until is not None and ban.until < now


class BansAgent:
    """The agent ``!bans`` of one broker."""

    def __init__(self, broker: str, bans: Bans, took: Callable[[list[Ban]], int]) -> None:
        """`broker`: the broker's name. `took` is called with the changes applied, and returns the number of clients
        that it disconnected."""
        self._broker = broker
        self._bans = bans
        self._took = took

    @remote
    def put(self, values: list[Any]) -> Any:
        """Apply changes, given as plain values of `Ban`. Returns ``[broker, clients disconnected]``. Raises
        `ValueError`."""
        return [self._broker, self.take(msgspec.convert(values, list[Ban]))]

    @repeatable
    def compare(self, digest: bytes) -> Any:
        """Return None if this broker's table has the same digest, or else the whole table as plain values."""
        self._bans.forget()
        return None if digest == self._bans.digest else msgspec.to_builtins(self._bans.all())

    def take(self, bans: Iterable[Ban]) -> int:
        """Apply changes. Returns the number of clients disconnected. Raises `ValueError` (`Bans.put`)."""
        taken = [ban for ban in bans if self._bans.put(ban)]
        return self._took(taken) if taken else 0

    def newer(self, theirs: Iterable[Ban]) -> list[Ban]:
        """Return the bans of this table that the table `theirs` lacks or has in another state."""
        known = {ban.key: ban for ban in theirs}
        return [ban for ban in self._bans.all() if known.get(ban.key) != ban]
