"""The settings of one broker: what can be set, in which unit, to what by default, and what raising it costs.

`saps.config.sources_io` fills `BrokerSettings` from flags, environment variables and a TOML file. The table in the
README is written from the declarations here.
"""

from __future__ import annotations

from saps.config.address import Address
from saps.config.knobs import SettingError
from saps.config.settings import BrokerSettings, LimitSettings, OverlaySettings

__all__ = ["Address", "BrokerSettings", "LimitSettings", "OverlaySettings", "SettingError"]
