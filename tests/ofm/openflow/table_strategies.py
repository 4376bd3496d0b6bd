"""Tables that a real switch takes: matches with what they require, actions that fit them."""

from __future__ import annotations

from hypothesis import strategies as st

from saps.ofm.flows.tables import (
    IN_PORT,
    NORMAL,
    WIDTHS,
    Action,
    Bucket,
    Flow,
    Group,
    GroupKind,
    Masked,
    Match,
    Meter,
    Output,
    SetField,
    SetQueue,
    Tables,
    ToGroup,
)

COOKIE = 0x5A95_0000_0000_0000
"""Of all flows made here, in the upper 16 bits."""
COOKIE_MASK = 0xFFFF << 48

MASKABLE = {"eth_src", "eth_dst", "ipv4_src", "ipv4_dst", "ipv6_src", "ipv6_dst"}
REQUIRED: dict[str, dict[str, int]] = {"4": {"eth_type": 0x0800}, "6": {"eth_type": 0x86DD}}
OPTIONAL = {
    "": ("in_port", "eth_src", "eth_dst"),
    "4": ("in_port", "eth_src", "eth_dst", "ip_dscp", "ipv4_src", "ipv4_dst"),
    "6": ("in_port", "eth_src", "eth_dst", "ip_dscp", "ipv6_src", "ipv6_dst"),
}
"""Fields that a match may have, by the version of IP."""


def values(field: str) -> st.SearchStrategy[int]:
    """A value of a field."""
    return st.integers(1, 50) if field == "in_port" else st.integers(0, (1 << WIDTHS[field]) - 1)


@st.composite
def masked(draw: st.DrawFn, field: str) -> Masked:
    full = (1 << WIDTHS[field]) - 1
    mask = draw(st.just(full) | st.integers(1, full)) if field in MASKABLE else full
    return Masked(draw(values(field)), mask)


@st.composite
def matches(draw: st.DrawFn) -> tuple[Match, str, bool]:
    """A match, the version of IP it requires ("" for none), and whether it requires UDP."""
    version = draw(st.sampled_from(["", "4", "6"]))
    udp = version != "" and draw(st.booleans())
    fields: dict[str, int | Masked] = {**REQUIRED.get(version, {}), **({"ip_proto": 17} if udp else {})}
    names = [*OPTIONAL[version], *(("udp_src", "udp_dst") if udp else ())]
    for name in draw(st.lists(st.sampled_from(names), unique=True)):
        fields[name] = draw(masked(name))
    return Match.of(**fields), version, udp


@st.composite
def rewrites(draw: st.DrawFn, version: str, udp: bool) -> SetField:
    names = [name for name in OPTIONAL[version] if name != "in_port"] + (["udp_src", "udp_dst"] if udp else [])
    name = draw(st.sampled_from(names))
    return SetField(name, draw(values(name)))


def action_lists(version: str, udp: bool, groups: tuple[int, ...] = ()) -> st.SearchStrategy[tuple[Action, ...]]:
    """Apply-actions for packets of this kind."""
    kinds: list[st.SearchStrategy[Action]] = [
        rewrites(version, udp),
        st.builds(Output, st.integers(1, 50) | st.sampled_from([IN_PORT, NORMAL])),
        st.builds(SetQueue, st.integers(0, 7)),
    ]
    if groups:
        kinds.append(st.builds(ToGroup, st.sampled_from(groups)))
    return st.lists(st.one_of(kinds), max_size=5).map(tuple)


@st.composite
def flows(draw: st.DrawFn, groups: tuple[int, ...] = (), meters: tuple[int, ...] = ()) -> Flow:
    match, version, udp = draw(matches())
    actions = draw(action_lists(version, udp, groups))
    priority, table = draw(st.integers(1, 60000)), draw(st.integers(0, 3))
    meter = draw(st.sampled_from([None, *meters]))
    goto = draw(st.none() | st.integers(table + 1, 9))
    return Flow(priority, match, actions, table, COOKIE | draw(st.integers(0, 1 << 32)), meter, goto)


@st.composite
def group_entries(draw: st.DrawFn, number: int) -> Group:
    kind = draw(st.sampled_from(GroupKind))
    weights = st.integers(1, 100) if kind is GroupKind.SELECT else st.just(0)
    actions = action_lists("4", True).filter(lambda actions: SetQueue not in map(type, actions))
    ports = st.integers(1, 50)
    either = st.none() | ports if kind is GroupKind.SELECT else st.none()
    watched = ports if kind is GroupKind.FAST_FAILOVER else either
    least, most = (1, 1) if kind is GroupKind.INDIRECT else (0, 5)
    buckets = st.lists(st.builds(Bucket, actions, weights, watched), min_size=least, max_size=most).map(tuple)
    return Group(number, draw(buckets), kind)


meter_entries = st.builds(Meter, st.integers(1, 0xEFFF_FFFF), st.integers(1, 100_000), st.integers(0, 100_000))


@st.composite
def tables(draw: st.DrawFn) -> Tables:
    """Tables with up to a few flows, groups and meters; flows use only groups and meters that are there."""
    numbers = tuple(draw(st.lists(st.integers(1, 0xFFFFFF00), unique=True, max_size=3)))
    entries = [draw(group_entries(number)) for number in numbers]
    meters = draw(st.lists(meter_entries, unique_by=lambda meter: meter.id, max_size=3))
    ids = tuple(meter.id for meter in meters)
    return Tables.of(draw(st.lists(flows(numbers, ids), max_size=6)), entries, meters)
