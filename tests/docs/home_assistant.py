"""Home Assistant's core with its MQTT integration and nothing else, as a program: prints each state of each entity.

Arguments: an empty folder for its configuration, and the broker's port. It runs until it is killed.
"""

# mypy: ignore-errors
from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from homeassistant import auth, bootstrap, loader
from homeassistant.config_entries import ConfigEntries
from homeassistant.const import EVENT_STATE_CHANGED
from homeassistant.core import Event, HomeAssistant
from homeassistant.setup import async_setup_component

ENTRY = {"entry_id": "mqtt", "domain": "mqtt", "title": "SAPS", "source": "user", "unique_id": None, "options": {}}
SWITCHES = {"pref_disable_new_entities": False, "pref_disable_polling": False, "disabled_by": None}
VERSION = {"version": 1, "minor_version": 1}


def told(event: Event) -> None:
    state = event.data["new_state"]
    print(event.data["entity_id"], state and state.state, flush=True)


async def main(folder: Path, port: int) -> None:
    """What a user's click on "MQTT" leaves behind, then the start."""
    entry = ENTRY | SWITCHES | VERSION | {"data": {"broker": "127.0.0.1", "port": port, "protocol": "5"}}
    (folder / ".storage").mkdir()
    stored = VERSION | {"key": "core.config_entries", "data": {"entries": [entry]}}
    (folder / ".storage" / "core.config_entries").write_text(json.dumps(stored))
    (folder / "configuration.yaml").write_text("")
    home = HomeAssistant(str(folder))
    home.config.skip_pip = True
    home.config_entries = ConfigEntries(home, {})
    loader.async_setup(home)
    await bootstrap.async_load_base_functionality(home)
    home.auth = await auth.auth_manager_from_config(home, [], [])
    home.bus.async_listen(EVENT_STATE_CHANGED, told)
    await async_setup_component(home, "mqtt", {})
    await home.async_start()
    await asyncio.Event().wait()


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
