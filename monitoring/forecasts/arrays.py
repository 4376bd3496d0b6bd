"""Arithmetic that gives equal results, to the last bit, for a number and for an array of numbers.

The functions of this package use only + - * /, // and % of integers, comparisons, and the functions of this module.
`exp` and the like may differ in the last bit between Python and NumPy, and Spark's decisions must equal those of
OFGate's own decider.
"""

from __future__ import annotations

from typing import Any

Value = Any
"""A float or int, or a NumPy array of them. The arrays in one call have one shape; numbers may go with them."""


def where(condition: Value, yes: Value, no: Value) -> Value:
    """Return `yes` where the condition holds, else `no`."""
    if condition is True or condition is False:
        return yes if condition else no
    import numpy as np

    return np.where(condition, yes, no)


def larger(a: Value, b: Value) -> Value:
    """Return the larger of two values."""
    return where(a > b, a, b)


def lesser(a: Value, b: Value) -> Value:
    """Return the lesser of two values."""
    return where(a < b, a, b)


def between(low: Value, value: Value, high: Value) -> Value:
    """Return the value, limited to the bounds `low` and `high`."""
    return larger(low, lesser(value, high))


def ratio(part: Value, whole: Value) -> Value:
    """Return ``part / whole``, or 0 where `whole` is not positive."""
    return where(whole > 0, part / where(whole > 0, whole, 1.0), 0.0)
