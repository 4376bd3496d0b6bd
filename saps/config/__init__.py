"""The settings, each declared once with its unit, its default, and the cost of raising it.

`saps.config.sources_io` reads their values from flags, environment variables and a TOML file. Options, `--help` and
docs/settings.md are generated from the declarations.
"""

from __future__ import annotations

from saps.config.address import Address
from saps.config.knobs import SettingError
from saps.config.limits import LimitSettings
from saps.config.settings import BrokerSettings, OverlaySettings

__all__ = ["Address", "BrokerSettings", "LimitSettings", "OverlaySettings", "SettingError"]
