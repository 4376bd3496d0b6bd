"""The command `saps broker`.

Exit status: 0 after an orderly end, 1 if the broker failed, 2 for an unusable setting. In the last case a line on
standard error names the setting, where it was set, and the fault.
"""

from __future__ import annotations

from saps.cli import run_broker
from saps.cli.apps import command_app, settings_command
from saps.config import BrokerSettings
from saps.config.sources_io import BROKER

app = command_app("broker")


@settings_command(app, BROKER)
def broker(settings: BrokerSettings) -> int:
    r"""Run one broker of the mesh until SIGTERM or SIGINT.

    Two brokers on this machine, a subscriber on one and a publisher on the other:

        saps broker --name b1 --cluster tokyo/ward1 &
        saps broker --name b2 --cluster tokyo/ward2 --join 127.0.0.1:7300 \
                    --mqtt 127.0.0.1:1884 --overlay 127.0.0.1:7301 &
        mosquitto_sub -p 1884 -t 'air/#' -v &
        mosquitto_pub -p 1883 -t air/ward1 -m 21.5

    A line on standard output says when the broker has joined and listens. SIGTERM lets it leave in order.

    Settings come from flags, then environment variables (`SAPS_NAME`, `SAPS_OVERLAY__HEARTBEAT_INTERVAL`),
    then the file of `--config`. Repeat `--join` to give several addresses: if no broker there is in a mesh yet, those
    that are starting agree which one begins it.
    """
    return run_broker(settings)
