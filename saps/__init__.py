"""SAPS: SDN-aware publish/subscribe.

Devices speak MQTT to the nearest broker (`saps.frontend`); brokers form a Skip Graph overlay without a master
(`saps.overlay`) over which a publication travels to exactly the brokers that have a matching subscriber.

`Broker` is one in a program of your own (`docs/embedding.md`); what goes with it is here, too. It is loaded when it is
first asked for, so that ``import saps`` costs next to nothing.
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
