"""The pool of OFM addresses: one owner an address, the same one each time, and clear words about bad ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.ofm.controller.addresses import AddressPool, AddressRange, OfmAddress, PoolExhaustedError

RANGES = st.sampled_from(["239.77.0.0/30:5000-5001", "239.77.0.0/31:5000", "[ff05:77::/126]:5000-5002"])


@pytest.mark.parametrize(
    ("text", "size", "first", "last"),
    [
        ("239.77.0.0/16:5000-5999", 65_536_000, "239.77.0.0:5000", "239.77.255.255:5999"),
        ("239.77.0.1:5000", 1, "239.77.0.1:5000", "239.77.0.1:5000"),
        (" [ff05:77::/112]:5000-5001 ", 131_072, "[ff05:77::]:5000", "[ff05:77::ffff]:5001"),
    ],
)
def test_a_range_is_read(text: str, size: int, first: str, last: str) -> None:
    found = AddressRange.parse(text)
    assert (len(found), str(found[0]), str(found[size - 1])) == (size, first, last)
    assert AddressRange.parse(str(found)) == found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected NETWORK:PORT"),
        ("239.77.0.0/16", "expected NETWORK:PORT"),
        ("239.77.0.0/16:", "expected NETWORK:PORT"),
        ("239.77.0.0/16:5000-", "expected NETWORK:PORT"),
        ("ff05::/112:5000", "expected NETWORK:PORT"),
        ("[239.77.0.0/16]:5000", "brackets are for IPv6"),
        ("239.77.0.1/16:5000", "has host bits set"),
        ("239.77.0.0/33:5000", "239.77.0.0/33"),
        ("city:5000", "'city'"),
        ("239.77.0.0/16:5999-5000", "ports must rise"),
        ("239.77.0.0/16:0-5", "ports must rise"),
        ("239.77.0.0/16:1-65536", "ports must rise"),
        ("239.0.0.0/8:1-65535", "take a longer prefix"),
        ("[ff05::/64]:5000", "take a longer prefix"),
        ("224.0.0.0/16:5000", "local network control"),
        ("127.0.0.0/24:5000", "never leaves the host"),
        ("[ff02::/112]:5000", "link-local scope"),
    ],
)
def test_a_bad_range_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        AddressRange.parse(text)


@pytest.mark.parametrize("text", ["239.77.0.1", "239.77.0.1:0", "239.77.0.1:x", "239.77.0:5", "[ff05::g]:5"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        OfmAddress.parse(text)


@given(RANGES, st.data())
def test_addresses_and_their_numbers_are_one_to_one(text: str, data: st.DataObject) -> None:
    found = AddressRange.parse(text)
    addresses = [found[number] for number in range(len(found))]
    assert len(set(addresses)) == len(found)
    assert [found.number(address) for address in addresses] == list(range(len(found)))
    assert [OfmAddress.parse(str(address)) for address in addresses] == addresses
    with pytest.raises(IndexError):
        found[len(found)]


@given(RANGES, st.lists(st.tuples(st.text(max_size=2), st.booleans()), max_size=40))
def test_no_address_has_two_owners_and_a_restart_changes_nothing(text: str, steps: list[tuple[str, bool]]) -> None:
    pool = AddressPool.parse(text)
    held: dict[str, OfmAddress] = {}
    for owner, take in steps:
        if not take:
            assert pool.release(owner) == held.pop(owner, None)
        elif owner not in held and len(held) == len(pool.range):
            with pytest.raises(PoolExhaustedError):
                pool.allocate(owner)
        else:
            assert pool.allocate(owner) == held.setdefault(owner, pool.allocate(owner))
        assert pool.held == held
        assert len(set(held.values())) == len(held)
    again = AddressPool.parse(text)
    for owner, address in held.items():
        again.reserve(owner, address)
        again.reserve(owner, address)
    assert {owner: again.allocate(owner) for owner in held} == held


def test_the_address_follows_from_the_topic() -> None:
    one, other = (AddressPool.parse("239.77.0.0/16:5000-5999") for _ in range(2))
    one.allocate("another/topic")
    assert one.allocate("city/air") == other.allocate("city/air")
    assert one.number(one.allocate("city/air")) == other.number(other.allocate("city/air"))


def test_a_reservation_that_contradicts_is_refused() -> None:
    pool = AddressPool.parse("239.77.0.0/24:5000")
    pool.reserve("a", OfmAddress("239.77.0.1", 5000))
    with pytest.raises(ValueError, match="belongs to 'a'"):
        pool.reserve("b", OfmAddress("239.77.0.1", 5000))
    with pytest.raises(ValueError, match="'a' has"):
        pool.reserve("a", OfmAddress("239.77.0.2", 5000))
    for outside in (OfmAddress("239.77.1.0", 5000), OfmAddress("239.77.0.1", 5001), OfmAddress("ff05::1", 5000)):
        with pytest.raises(ValueError, match="is not in"):
            pool.reserve("c", outside)
