"""SAPS: SDN-aware publish/subscribe.

Devices speak MQTT to the nearest broker (`saps.frontend`). Brokers form a Skip Graph overlay without a master
(`saps.overlay`). A publication travels over it to exactly the brokers with a matching subscriber.

`Broker` runs a broker in your own program (`docs/embedding.md`). It and its companions here are loaded on first use, so
that ``import saps`` is cheap.
"""

from __future__ import annotations

import saps.runtime.compiled  # noqa: F401 - before all other modules: it settles whether they run compiled
from saps.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from saps.config import SettingError
    from saps.embedded.broker import Broker
    from saps.embedded.messages import ClosedError, Messages, TooSlowError
    from saps.messages import Message, Properties, Reached

__all__ = [
    "Broker",
    "ClosedError",
    "Message",
    "Messages",
    "Properties",
    "Reached",
    "SettingError",
    "TooSlowError",
    "__version__",
]

_FROM = {
    "Broker": "saps.embedded.broker",
    "ClosedError": "saps.embedded.messages",
    "Message": "saps.messages",
    "Messages": "saps.embedded.messages",
    "Properties": "saps.messages",
    "Reached": "saps.messages",
    "SettingError": "saps.config",
    "TooSlowError": "saps.embedded.messages",
}


def __getattr__(name: str) -> Any:
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_FROM[name]), name)
    return value
