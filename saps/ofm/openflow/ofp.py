"""Imports the codec library, here and nowhere else, so that it can be exchanged: os-ken's classes for OpenFlow 1.3.

The library has no types, so its modules are `Any`. Importing it takes about half a second and 40 MB, which is why
brokers do not. FAUCET's fork `c65of` has the same classes in other modules.
"""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

ofproto: Any = import_module("os_ken.ofproto.ofproto_v1_3")
"""Constants and layouts, by the names of the specification's C headers."""
parser: Any = import_module("os_ken.ofproto.ofproto_v1_3_parser")
"""Message classes."""
datapath: Any = SimpleNamespace(ofproto=ofproto, ofproto_parser=parser)
"""The part of a switch that the message classes need: the protocol's version."""
