"""Values taken from bytes, so that a fuzzer which changes a byte changes a value: numbers, texts, and whole structs.

When the bytes are used up there are zeros, so every input means something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from msgspec import inspect

T = TypeVar("T")

NUMBERS = (
    0, 1, 2, 3, 4, 5, 7, 16, 63, 64, 65, 127, 128, 255, 256, 4096, 65535, 65536, -1, -2, -65, 1 << 20, (1 << 24) + 1,
    (1 << 31) - 1, 1 << 32, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
)  # fmt: skip
"""Where number ranges end."""
REALS = (0.0, 0.1, 1.0, 5.0, 3600.0, -1.0, 1e9, 1e308, float("inf"), float("nan"))
LONG = 40
"""Items of a long list."""
DEEPEST = 6
"""Levels of values inside values."""


class Supply:
    """The bytes of one input, used from the first to the last."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        """There are bytes left."""
        return self._at < len(self._data)

    def byte(self) -> int:
        """The next byte."""
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def one(self, of: Sequence[T]) -> T:
        """One of a few things."""
        return of[self.byte() % len(of)]

    def chunk(self) -> bytes:
        """Some of the bytes as they are; their number comes first."""
        size = self.byte()
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self) -> int:
        """A number, often one at which a range ends."""
        kind = self.byte()
        return NUMBERS[kind] if kind < len(NUMBERS) else kind % 8

    def text(self, known: Sequence[str]) -> str:
        """One of the known texts, or any other."""
        kind = self.byte()
        return known[kind] if kind < len(known) else self.chunk().decode("utf-8", "replace")


class Builder:
    """Makes values of any type that msgspec can describe. `pools`: for a type, values to choose from."""

    def __init__(
        self, supply: Supply, texts: Sequence[str], blobs: Sequence[bytes], pools: Mapping[Any, Sequence[Any]]
    ):
        self._supply = supply
        self._texts = texts
        self._blobs = blobs
        self._pools = pools

    def build(self, kind: inspect.Type, depth: int = 0) -> Any:
        """A value. Constraints of the type are not kept: who reads it has to look."""
        supply = self._supply
        match kind:
            case inspect.Metadata(inner):
                return self.build(inner, depth)
            case inspect.UnionType(types):
                return self.build(supply.one(types), depth)
            case inspect.StructType(cls, fields) | inspect.DataclassType(cls, fields):
                known = self._pools.get(cls, ())
                if known and supply.byte() % 8:
                    return supply.one(known)
                return cls(**{field.name: self.build(field.type, depth + 1) for field in fields})
            case inspect.NamedTupleType(cls, fields):
                known = self._pools.get(cls, ())
                if known and supply.byte() % 8:
                    return supply.one(known)
                return cls(*(self.build(field.type, depth + 1) for field in fields))
            case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                values = [self.build(item, depth + 1) for _ in range(self._length(depth))]
                return values if isinstance(kind, inspect.ListType) else tuple(values)
            case inspect.TupleType(item_types):
                return tuple(self.build(item, depth + 1) for item in item_types)
            case inspect.DictType(key, value):
                return {self.build(key, depth + 1): self.build(value, depth + 1) for _ in range(self._length(depth))}
            case _:
                return self._plain(kind, depth)

    def _length(self, depth: int) -> int:
        """How many items a list has."""
        wanted = self._supply.byte()
        return 0 if depth > DEEPEST or not self._supply else LONG if wanted == 255 else wanted % 4

    def _plain(self, kind: inspect.Type, depth: int) -> Any:
        supply = self._supply
        match kind:
            case inspect.IntType():
                return supply.number()
            case inspect.FloatType():
                return supply.one(REALS)
            case inspect.StrType():
                return supply.text(self._texts)
            case inspect.BytesType():
                return supply.one(self._blobs) if supply.byte() % 2 else supply.chunk()
            case inspect.BoolType():
                return bool(supply.byte() % 2)
            case inspect.NoneType():
                return None
            case inspect.LiteralType(values):
                return supply.one(values)
            case inspect.AnyType():
                return supply.one((None, True, supply.number(), supply.text(self._texts), [supply.number()], {}, 0.5))
            case _:
                raise TypeError(f"no values of {kind}")
