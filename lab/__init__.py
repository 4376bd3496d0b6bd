"""A test network on one machine: hosts in network namespaces, joined by Open vSwitch switches.

::

    with Lab("tree:4x2", controller=("127.0.0.1", 6653)) as lab:
        broker = lab.host("c1b1").popen(["saps", "broker", ...])
        before = lab.counters()
        with lab.host("c4b2").connect((lab.topology.host("c1b1").ip, 1883)) as client:
            ...
        print((lab.counters() - before).inter_cluster)

Callers use `Lab`. `build` makes a lab and clears it away, by the commands of `plan` (pure), for a topology from
`topologies` (pure). `openvswitch` runs the switches, `namespace` opens sockets and processes on a host, and `counters`
reads the traffic of the links. Other processes find a lab by its `state`; `commands` runs the system's programs.
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
