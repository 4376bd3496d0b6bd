"""The stream between brokers: every frame goes through unchanged, another MessagePack reads it, rubbish is refused."""

from __future__ import annotations

import types
from contextlib import suppress
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

import msgpack  # type: ignore[import-untyped]
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.overlay.frames.base import Frame
from saps.overlay.frames.framing import (
    LOWEST_VERSION,
    MAGIC,
    MAX_FRAME,
    VERSION,
    FrameReader,
    Hello,
    WireError,
    agree,
    encode_into,
    hello,
)
from saps.overlay.frames.kinds import AnyFrame
from saps.overlay.ring.keys import BrokerRef
from tests.drawn import schedules

KINDS: tuple[type[Frame], ...] = get_args(AnyFrame)
ME = BrokerRef("b1", 1_700_000_000_000, "127.0.0.1:7300", "tokyo/ward1")
HELLO = hello(ME, "alm-la")

# --- strategies: values of every declared type ------------------------------------------------------------

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.binary(max_size=8)
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    Any: anything,
    int: st.integers(-(2**63), 2**64 - 1),
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    str: st.text(max_size=12),
    bytes: st.binary(max_size=40),
    type(None): st.none(),
}


@cache
def values(declared: Any) -> st.SearchStrategy[Any]:
    """Values of a type as the frames declare them."""
    if declared in SIMPLE:
        return SIMPLE[declared]
    origin, arguments = get_origin(declared), get_args(declared)
    if origin is Annotated:
        return within(*arguments)
    if origin in (Union, types.UnionType):
        return st.one_of([values(argument) for argument in arguments])
    if origin is list:
        return st.lists(values(arguments[0]), max_size=3)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return st.lists(values(arguments[0]), max_size=3).map(tuple)
        return st.tuples(*(values(argument) for argument in arguments))
    hints = get_type_hints(declared, include_extras=True)
    names = declared._fields if issubclass(declared, tuple) else declared.__struct_fields__
    return st.builds(declared, **{name: values(hints[name]) for name in names})


def within(kind: Any, bounds: msgspec.Meta) -> st.SearchStrategy[Any]:
    """Values of a bounded type, up to its bounds."""
    if kind is int:
        most = (1 << 64) - 1 if bounds.le is None else bounds.le
        return st.integers(bounds.ge, most if bounds.lt is None else bounds.lt - 1)  # type: ignore[arg-type]
    if kind is float:
        return st.floats(bounds.ge, bounds.le)
    if get_origin(kind) is list:
        return st.lists(values(get_args(kind)[0]), min_size=bounds.min_length or 0, max_size=3)
    return values(kind)  # short enough


frames = st.one_of([values(kind) for kind in KINDS])


def written(*some: Frame) -> bytes:
    """The frames as they leave on a link, without the hello."""
    buffer = bytearray()
    for frame in some:
        encode_into(buffer, frame)
    return bytes(buffer)


def plain(value: Any) -> Any:
    """A frame as an independent reader sees it: nested lists, a tagged struct's tag first."""
    if isinstance(value, msgspec.Struct):
        tag = value.__struct_config__.tag
        return ([] if tag is None else [tag]) + [plain(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """The bytes in several reads."""
    bounds = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[low:high] for low, high in pairwise(bounds)]


def read(chunks: list[bytes]) -> tuple[Hello | None, list[Frame]]:
    """What a reader makes of some reads. Raises `WireError`."""
    reader = FrameReader()
    frames: list[Frame] = []
    for chunk in chunks:
        frames += reader.feed(chunk)
    return reader.peer, frames


cuttings = st.lists(st.integers(0, 1 << 16), max_size=12)


# --- frames --------------------------------------------------------------------------------------------------


def test_every_frame_of_the_protocol_is_tested_and_has_a_tag_of_its_own() -> None:
    defined = {kind for kind in Frame.__subclasses__() if kind.__struct_config__.tag is not None}
    defined |= {leaf for kind in Frame.__subclasses__() for leaf in kind.__subclasses__()}
    assert set(KINDS) == defined
    assert len({kind.__struct_config__.tag for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@schedules(20)
@given(data=st.data())
def test_a_frame_goes_through_unchanged(kind: type[Frame], data: st.DataObject) -> None:
    frame = data.draw(values(kind))
    assert read([HELLO, written(frame)])[1] == [frame]


@given(some=st.lists(frames, max_size=6), cuts=cuttings)
def test_how_the_stream_is_cut_makes_no_difference(some: list[Frame], cuts: list[int]) -> None:
    peer, got = read(pieces(HELLO + written(*some), cuts))
    assert got == some
    assert peer == Hello(MAGIC, LOWEST_VERSION, VERSION, "alm-la", ME)


@given(frame=frames)
def test_msgpack_reads_what_is_written(frame: Frame) -> None:
    data = written(frame)
    assert int.from_bytes(data[:4]) == len(data) - 4
    assert msgpack.unpackb(data[4:], strict_map_key=False) == plain(frame)


@given(frame=frames)
def test_what_msgpack_writes_is_read(frame: Frame) -> None:
    body = cast(bytes, msgpack.packb(plain(frame)))
    assert read([HELLO, len(body).to_bytes(4) + body])[1] == [frame]


def test_msgpack_reads_the_hello() -> None:
    assert int.from_bytes(HELLO[:4]) == len(HELLO) - 4
    assert msgpack.unpackb(HELLO[4:]) == ["SAPS", LOWEST_VERSION, VERSION, "alm-la", plain(ME), False]


# --- rubbish ---------------------------------------------------------------------------------------------------


@given(rubbish=st.binary(max_size=200), cuts=cuttings, greeted=st.booleans())
def test_any_bytes_raise_nothing_but_wire_error(rubbish: bytes, cuts: list[int], greeted: bool) -> None:
    with suppress(WireError):
        read(pieces((HELLO if greeted else b"") + rubbish, cuts))


@given(body=st.binary(max_size=100), greeted=st.booleans())
def test_a_well_framed_body_of_any_bytes_raises_nothing_but_wire_error(body: bytes, greeted: bool) -> None:
    with suppress(WireError):
        read([HELLO if greeted else b"", len(body).to_bytes(4) + body])


@given(value=anything, greeted=st.booleans())
def test_any_messagepack_value_raises_nothing_but_wire_error(value: Any, greeted: bool) -> None:
    body = cast(bytes, msgpack.packb(value))
    with pytest.raises(WireError):
        read([HELLO if greeted else b"", len(body).to_bytes(4) + body])


@given(frame=frames, data=st.data())
def test_a_damaged_frame_raises_nothing_but_wire_error(frame: Frame, data: st.DataObject) -> None:
    damaged = bytearray(HELLO + written(frame))
    for at in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[at] = data.draw(st.integers(0, 255))
    with suppress(WireError):
        read([bytes(damaged)])


def test_deep_nesting_is_refused() -> None:
    deep = b"\x91" * 100_000 + b"\xc0"
    answer = b"\x94\x03\xa1a" + deep + b"\xc0"  # Answer("a", value, None) in Gathered(1, [answer], True, 1)
    body = b"\x95\x0d\x01\x91" + answer + b"\xc3\x01"
    with pytest.raises(WireError):
        read([HELLO, len(body).to_bytes(4) + body])


@pytest.mark.parametrize(("greeting", "size"), [(b"", 4097), (HELLO, MAX_FRAME + 1), (HELLO, 0xFFFFFFFF)])
def test_too_long_a_frame_is_refused_before_it_is_received(greeting: bytes, size: int) -> None:
    with pytest.raises(WireError, match=f"{size} bytes is too long"):
        read([greeting + size.to_bytes(4)])


def test_the_longest_frame_is_waited_for() -> None:
    assert read([HELLO + MAX_FRAME.to_bytes(4) + b"x"])[1] == []


def test_an_mqtt_client_at_the_wrong_port_is_refused() -> None:
    connect = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x01c"
    with pytest.raises(WireError):
        read([connect])


# --- who speaks with whom ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lowest", "highest"), [(1, VERSION), (1, VERSION + 9), (0, VERSION), (VERSION, VERSION + 1), (VERSION, VERSION)]
)
def test_the_highest_common_version_is_taken(lowest: int, highest: int) -> None:
    assert agree(Hello(MAGIC, lowest, highest, "alm", ME), "alm") == min(highest, VERSION)


@pytest.mark.parametrize(("lowest", "highest"), [(VERSION + 1, VERSION + 3), (1, LOWEST_VERSION - 1), (0, 0), (-1, 0)])
def test_without_a_common_version_there_is_no_link(lowest: int, highest: int) -> None:
    with pytest.raises(
        WireError, match=f"b1 speaks versions {lowest} to {highest} of the protocol, this one {LOWEST_VERSION} to"
    ):
        agree(Hello(MAGIC, lowest, highest, "alm", ME), "alm")


def test_another_protocol_is_refused() -> None:
    with pytest.raises(WireError, match="not a SAPS broker"):
        agree(Hello("NATS", 1, 1, "alm", ME), "alm")


def test_a_mesh_with_another_key_order_is_refused() -> None:
    with pytest.raises(WireError, match="'alm-la', this one by 'alm'"):
        agree(Hello(MAGIC, VERSION, VERSION, "alm-la", ME), "alm")


def test_a_later_hello_may_say_more() -> None:
    """A newer broker may append fields: they are ignored."""
    body = cast(bytes, msgpack.packb(["SAPS", 1, VERSION + 1, "alm", plain(ME), False, {"later": True}]))
    peer, _ = read([len(body).to_bytes(4) + body])
    assert peer is not None
    assert agree(peer, "alm") == VERSION
