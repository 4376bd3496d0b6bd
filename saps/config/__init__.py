"""Settings: what can be set, in which unit, to what by default, and what raising it costs, declared once.

`saps.config.sources_io` fills them from flags, environment variables and a TOML file. Options, `--help` and
docs/settings.md come from the declarations.
"""

from __future__ import annotations

from saps.config.address import Address
from saps.config.knobs import SettingError
from saps.config.limits import LimitSettings
from saps.config.settings import BrokerSettings, OverlaySettings

__all__ = ["Address", "BrokerSettings", "LimitSettings", "OverlaySettings", "SettingError"]
