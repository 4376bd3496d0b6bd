"""Environment variables ``SAPS_...`` that are no settings."""

from __future__ import annotations

CONFIG_VARIABLE = "SAPS_CONFIG"
"""Names the TOML file of the settings, like ``--config``."""
URL_VARIABLE = "SAPS_URL"
"""Names the Web port that commands ask, like their ``--web``. Not a broker's `SAPS_WEB`, which is where it listens."""
