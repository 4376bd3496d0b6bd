"""Manages OFM addresses that are the topics' codes (SDNPS 2016, 3.2), with the interface of `AddressPool`.

To get an address, a topic must be registered, or stand below an open prefix; a refusal names its reason. The word of a
topic is the same on all ports. So a second tree of the topic gets another port, and in the published code so does
another topic with the same word.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeAlias

from saps.ofm.controller.addresses import AddressRange, OfmAddress, PoolExhaustedError
from saps.ofm.flows.plan import GROUPS
from saps.ofm.topics.address import RANGE, EventType, address, identifier
from saps.ofm.topics.coding import TopicCode
from saps.ofm.topics.delimited import DelimitedCode, numbers
from saps.ofm.topics.registry import Quota, Registry
from saps.ofm.topics.shared_entries import Coded
from saps.ofm.topics.sibling import SiblingCode
from saps.ofm.topics.tree import father_of

CodeName: TypeAlias = Literal["delimited", "published"]
"""Codes that a running controller can have. Weighted codes are excluded, since they change addresses that are in
use."""
_NUMBERS = 1 << 28


@dataclass(frozen=True, slots=True)
class Coding:
    """How topics get their addresses."""

    code: CodeName = "delimited"
    first: int = 5000
    last: int = 5003
    """UDP ports, first and last. A moving tree needs two; in the published code, each further topic with the same word
    needs one more."""
    topics: tuple[str, ...] = ()
    """Topics registered from the start, in this order."""
    quotas: tuple[Quota, ...] = (Quota(open=True),)


class CodedPool:
    """The owners of coded addresses. An owner is a topic, or a topic's second tree (`moves.second_of`)."""

    def __init__(self, coding: Coding) -> None:
        """Register the topics of `coding`. Raises `TopicRefusedError` if one of them breaks a quota."""
        self.range = AddressRange(RANGE, coding.first, coding.last)
        self._coding = coding
        self.registry = Registry(coding.quotas)
        self.code: TopicCode = (DelimitedCode if coding.code == "delimited" else SiblingCode)(self.registry.tree)
        self.registry.codes.append(self.code)
        for topic in coding.topics:
            self.registry.register(topic)
        self._permanent = frozenset(self.registry.tree)
        self._by_owner: dict[str, OfmAddress] = {}
        self._owners: dict[OfmAddress, str] = {}
        self._numbers: dict[OfmAddress, int] = {}
        self._last = 0
        self.words: dict[int, Coded] = {}
        """Codes of all addresses in use, by group id."""
        self.version = 0
        """Number of changes of `words`."""

    def allocate(self, owner: str) -> OfmAddress:
        """Return the owner's address; an owner without one gets a new one. Raises `PoolExhaustedError` if all ports of
        the word are taken, `TopicRefusedError` if the topic may not be used."""
        if (held := self._by_owner.get(owner)) is not None:
            return held
        topic = owner.removesuffix("\0")
        self.registry.admit(topic)
        ip = str(address(EventType.PUBLISH, self.code.word(topic)))
        for port in range(self._coding.first, self._coding.last + 1):
            if (found := OfmAddress(ip, port)) not in self._owners:
                return self._give(owner, found)
        self._forget(topic)
        raise PoolExhaustedError(f"{ip}, the code of {topic!r}, is in use on all ports")

    def reserve(self, owner: str, address: OfmAddress) -> None:
        """Give the owner this address, which it had before. Its topic gets back the numbers that the address consists
        of.

        Raises `ValueError` if that is impossible, as with the published code, whose addresses do not reveal the
        numbers."""
        ip = ipaddress.IPv6Address(address.ip)
        if ip not in RANGE or not self.range.first <= address.port <= self.range.last:
            raise ValueError(f"{address} is not in {self.range}")
        if address in self._owners or owner in self._by_owner:
            raise ValueError(f"{address} or {owner!r} is taken")
        if not isinstance(self.code, DelimitedCode):
            raise ValueError("only the delimited code can be read back")
        word = identifier(ip).word
        self.registry.readmit(owner, [number for number, _ in numbers(word)])
        if self.code.word(owner) != word:
            raise ValueError(f"{address} is not the code of {owner!r}")
        self._give(owner, address)

    def release(self, owner: str) -> OfmAddress | None:
        """Release the owner's address. Return it, or None if the owner has none. A topic that was registered only by
        its use is removed."""
        address = self._by_owner.pop(owner, None)
        if address is not None:
            del self._owners[address]
            self.version += 1
            del self.words[GROUPS | self._numbers.pop(address)]
            self._forget(owner.removesuffix("\0"))
        return address

    def exchange(self, one: str, other: str) -> None:
        """See `AddressPool.exchange`."""
        first, second = self._by_owner[one], self._by_owner[other]
        self._by_owner |= {one: second, other: first}
        self._owners |= {second: one, first: other}

    def number(self, address: OfmAddress) -> int:
        """Return the number of an address in use, which stays the same as long as the address is in use. Raises
        `KeyError` for any other address."""
        return self._numbers[address]

    @property
    def held(self) -> Mapping[str, OfmAddress]:
        """See `AddressPool.held`."""
        return self._by_owner

    def _give(self, owner: str, address: OfmAddress) -> OfmAddress:
        self._last = next(
            n for n in chain(range(self._last + 1, _NUMBERS), range(_NUMBERS)) if GROUPS | n not in self.words
        )
        self._by_owner[owner], self._owners[address], self._numbers[address] = address, owner, self._last
        self.version += 1
        self.words[GROUPS | self._last] = Coded(identifier(ipaddress.IPv6Address(address.ip)).word, address.port)
        return address

    def _forget(self, topic: str) -> None:
        """Remove a topic from the tree, and those above it, as far as nobody needs them. With the published code they
        stay, since later siblings would get other addresses."""
        at: str | None = topic
        while at is not None and at in self.registry.tree and isinstance(self.code, DelimitedCode):
            used = at in self._by_owner or f"{at}\0" in self._by_owner
            if used or at in self._permanent or self.registry.tree.count(at):
                return
            self.registry.remove(at)
            at = father_of(at)
