"""Reads the rules for topics from a TOML file (`saps controller --topics`), in the form that the registry takes.

topics = ["city", "city/alerts"]         # registered from the start, in this order

[[quota]]                                # as many as you like
prefix = "city"                          # without: all topics
topics = 10_000                          # below the prefix, on all levels
children = 50                            # of the prefix and of each topic below it
levels = 3                               # below the prefix
open = true                              # registered by their first use
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from saps.ofm.topics.registry import Quota


class TopicRules(NamedTuple):
    """The content of a file of topic rules."""

    topics: tuple[str, ...]
    quotas: tuple[Quota, ...]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    topics: list[str] = []
    quota: list[Quota] = []


def topic_rules(data: bytes) -> TopicRules:
    """Return the rules in a file. Raises `ValueError` that says where the file is wrong."""
    try:
        read = msgspec.toml.decode(data, type=_File)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not rules for topics: {error}") from None
    return TopicRules(tuple(read.topics), tuple(read.quota))
