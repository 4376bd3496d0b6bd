"""The command `saps ofgate`.

Exit status: 0 after an orderly end, 1 after a failure, 2 for an unusable setting. In the last case a line on standard
error names the setting and the fault.
"""

from __future__ import annotations

from saps.cli.apps import command_app, settings_command
from saps.config.ofgate_io import PROGRAM, GatewaySettings

app = command_app("ofgate", completion=True)


@settings_command(app, PROGRAM)
def ofgate(settings: GatewaySettings) -> int:
    """Run OFGate, the gateway between the mesh and an OpenFlow controller, until SIGTERM or SIGINT.

    It is a node of the mesh without MQTT clients. It knows which brokers want which topic, has the controller make a
    tree where that is worth it, and tells the publishers when to use it. A second one takes over when the first dies.

        saps ofgate --controller http://127.0.0.1:8181 --join 127.0.0.1:7300

    Lines on standard input are orders: `exploit TOPIC`, `release TOPIC`, `renew TOPIC`, `status`, `brokers`. Each is
    answered by a line of JSON.
    """
    # Here, so that --help does not pay for the imports.
    from saps.agents.ofgate.program.gateway import run

    return run(settings)
