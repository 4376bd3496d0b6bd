"""Arithmetic that is the same for one number and for an array of them, to the last bit.

The functions of this package use + - * /, // and % of integers, comparisons, and these. Nothing else: `exp` and the
like may differ in the last bit between Python and NumPy, and Spark's decisions must be those of OFGate's own decider.
"""

from __future__ import annotations

from typing import Any

Value = Any
"""A float or int, or a NumPy array of them; all arguments of one call are of one kind, or numbers."""


def where(condition: Value, yes: Value, no: Value) -> Value:
    """`yes` where the condition holds, else `no`."""
    if condition is True or condition is False:
        return yes if condition else no
    import numpy as np

    return np.where(condition, yes, no)


def larger(a: Value, b: Value) -> Value:
    """The larger of the two."""
    return where(a > b, a, b)


def lesser(a: Value, b: Value) -> Value:
    """The lesser of the two."""
    return where(a < b, a, b)


def between(low: Value, value: Value, high: Value) -> Value:
    """The value, or the bound that it is beyond."""
    return larger(low, lesser(value, high))


def ratio(part: Value, whole: Value) -> Value:
    """``part / whole``; 0 where `whole` is not positive."""
    return where(whole > 0, part / where(whole > 0, whole, 1.0), 0.0)
