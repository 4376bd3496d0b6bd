"""A network to try things in, on one machine: hosts in network namespaces, Open vSwitch switches between them.

::

    with Lab("tree:4x2", controller=("127.0.0.1", 6653)) as lab:
        broker = lab.host("c1b1").popen(["saps", "broker", ...])
        before = lab.counters()
        with lab.host("c4b2").connect((lab.topology.host("c1b1").ip, 1883)) as client:
            ...
        print((lab.counters() - before).inter_cluster)

From outside to inside: `Lab` is what one uses; `build` makes and clears away, along the lines of `plan` (pure), for a
topology from `topologies` (pure); `openvswitch` is the switches, `namespace` the door to a host, `counters` what
crossed the links; `state` is how another process finds a lab, `commands` runs the system's programs.
"""

from lab.commands import obstacle
from lab.counters import Counters, Traffic
from lab.lab import Lab, take_down
from lab.namespace import Namespace
from lab.state import DIRECTORY, LabError
from saps.ofm.switch.topologies import MANAGEMENT_GATE, Host, Link, Switch, Topology, TopologyError

__all__ = [
    "DIRECTORY", "MANAGEMENT_GATE", "Counters", "Host", "Lab", "LabError", "Link", "Namespace", "Switch", "Topology",
    "TopologyError", "Traffic", "obstacle", "take_down",
]  # fmt: skip
