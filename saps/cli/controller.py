"""The command `saps controller`.

Exit status: 0 after an orderly end, 1 after a failure, 2 for an unusable setting. In the last case a line on standard
error names the setting and the fault.
"""

from __future__ import annotations

from saps.cli.apps import command_app, settings_command
from saps.ofm.controller.driver.settings import PROGRAM, ControllerSettings

app = command_app("controller", completion=True)


@settings_command(app, PROGRAM)
def controller(settings: ControllerSettings) -> int:
    """Run the OpenFlow controller (OFC) until SIGTERM or SIGINT.

    It makes one shared tree for each topic that OFGate asks for, on OpenFlow 1.3 switches; everything else goes on as
    the switches forward it by themselves, with or without a controller.

        saps controller --listen 127.0.0.1:6653 --northbound 127.0.0.1:8181 --ofm-range 239.77.0.0/16:5000-5999
        curl http://127.0.0.1:8181/openapi.json

    With `--peer` it is one of two, and the switches are to connect to both: OFGate is given both northbound addresses.

        saps controller --listen 10.0.0.1:6653 --northbound 10.0.0.1:8181 --peer http://10.0.0.2:8181
        saps controller --listen 10.0.0.2:6653 --northbound 10.0.0.2:8181 --peer http://10.0.0.1:8181

    A line on standard output says when it listens.
    """
    # Here, so that --help does not pay for these imports.
    from saps.ofm.controller.program import run

    return run(settings)


if __name__ == "__main__":
    app(prog_name="saps controller")
