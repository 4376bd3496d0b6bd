"""Generates the commands for `ip`, `tc` and `ovs-vsctl` that build a topology, as text; nothing is run here.

Each link and host has one interface pair. The switches' ends are all in the switches' namespace and in one group, so
that one command deletes them all. Hosts know each other's MACs in advance, so that no ARP request disturbs the
counters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from saps.ofm.switch.topologies import MANAGEMENT_GATE, PREFIX, SWITCHES, Host, Link, Switch, Topology

GROUP = 77
"""Interface group of the switches' ends."""
DATA = "eth0"
"""A host's interface on the data network."""
MANAGEMENT = "mgmt0"
"""A host's interface on the management network. In the switches' namespace a Linux bridge, ``mgmt``, joins them."""
PROTOCOLS = "OpenFlow10,OpenFlow13,OpenFlow14,OpenFlow15"
MAC_AGING = 3600
"""Seconds for which a switch remembers a host's port before it floods; Open vSwitch's largest value."""


def namespace(lab: str, member: str) -> str:
    """Return the name of the network namespace of a host, or of `SWITCHES`."""
    return f"{lab}.{member}"


def namespaces(lab: str, topology: Topology) -> list[str]:
    """Return the names of all namespaces of a lab, that of the switches first."""
    return [namespace(lab, member) for member in (SWITCHES, *(host.name for host in topology.hosts))]


def wires(lab: str, topology: Topology) -> Iterator[str]:
    """Yield the `ip` lines, for the switches' namespace, that make all interface pairs and the management bridge."""
    group = f"group {GROUP}"
    yield "link set lo up"
    yield "link add mgmt type bridge forward_delay 0"
    yield f"address add {MANAGEMENT_GATE}/{PREFIX} dev mgmt"
    yield "link set mgmt up"
    for link in topology.links:
        yield f"link add {link.name} {group} up type veth peer name {link.reverse}"
        yield f"link set {link.reverse} {group} up"
    for host in topology.hosts:
        there = namespace(lab, host.name)
        yield f"link add {host.name} {group} up type veth peer name {DATA} address {host.mac} netns {there}"
        yield f"link add m-{host.name} {group} up master mgmt type veth peer name {MANAGEMENT} netns {there}"


def host_addresses(host: Host, topology: Topology, *, ipv6: bool) -> Iterator[str]:
    """Yield the `ip` lines, for the host's namespace, that set its addresses and the other hosts' MACs."""
    yield "link set lo up"
    yield f"address add {host.ip}/{PREFIX} brd + dev {DATA}"
    yield f"address add {host.management}/{PREFIX} brd + dev {MANAGEMENT}"
    if ipv6:
        yield f"address add {host.ipv6}/64 dev {DATA} nodad"
    yield f"link set {DATA} up"
    yield f"link set {MANAGEMENT} up"
    for other in topology.hosts:
        if other is not host:
            yield f"neighbour add {other.ip} lladdr {other.mac} dev {DATA} nud permanent"
            if ipv6:
                yield f"neighbour add {other.ipv6} lladdr {other.mac} dev {DATA} nud permanent"


def ports(switch: str, topology: Topology) -> Iterator[tuple[str, int]]:
    """Yield the interfaces of a switch with their OpenFlow port numbers."""
    for link in topology.links:
        if link.a == switch:
            yield link.name, link.a_port
        if link.b == switch:
            yield link.reverse, link.b_port
    for host in topology.hosts:
        if host.switch == switch:
            yield host.name, host.port


def spare_port(link: Link, switch: str) -> int:
    """Return the port number of `link` at one of its ends."""
    return link.a_port if link.a == switch else link.b_port


def bridges(switches: Iterable[Switch], topology: Topology) -> list[str]:
    """Return the `ovs-vsctl` arguments of one transaction that makes the switches with all ports but no controller.

    With ``secure`` a switch without a controller keeps its flow entries. (``standalone`` would, after three probe
    intervals, put `NORMAL` above all of them, and flush the tables once the controller is back.)"""
    arguments: list[str] = []
    for switch in switches:
        arguments += ["--", "add-br", switch.name, "--", "set", "Bridge", switch.name]
        arguments += ["datapath_type=netdev", "fail_mode=secure", f"protocols={PROTOCOLS}"]
        arguments += [f"other_config:datapath-id={switch.datapath_id:016x}", "other_config:disable-in-band=true"]
        arguments += [f"other_config:mac-aging-time={MAC_AGING}"]
        for interface, number in ports(switch.name, topology):
            arguments += ["--", "add-port", switch.name, interface]
            arguments += ["--", "set", "Interface", interface, f"ofport_request={number}"]
    return arguments


def shaping(device: str, bits: int, latency_ms: int, *, by_priority: bool) -> Iterator[str]:
    """Yield the `tc` lines that limit the traffic leaving an interface to `bits` a second.

    Packets that would wait longer than `latency_ms` are dropped. With `by_priority` there are two classes: packets
    whose DSCP has a class selector above 0 (RFC 2474, 4.2.2) go before all others. The classes replace the queues of an
    OpenFlow switch, because the userspace datapath accepts the action SET_QUEUE and still sends everything through
    queue 0 (measured, see decision 034)."""
    if not by_priority:
        burst = max(bits // 8 // 250, 2 * 1514)
        yield f"qdisc replace dev {device} root tbf rate {bits}bit burst {burst} latency {latency_ms}ms"
        return
    yield f"qdisc replace dev {device} root handle 1: htb default 10"
    yield f"class replace dev {device} parent 1: classid 1:1 htb rate {bits}bit"
    yield f"class replace dev {device} parent 1:1 classid 1:10 htb rate {bits * 9 // 10}bit ceil {bits}bit prio 0"
    yield f"class replace dev {device} parent 1:1 classid 1:20 htb rate {bits // 10}bit ceil {bits}bit prio 1"
    waiting = max(bits * latency_ms // 8000, 2 * 1514)
    for number in (10, 20):
        yield f"qdisc replace dev {device} parent 1:{number} bfifo limit {waiting}"
    yield f"filter replace dev {device} parent 1: protocol ip prio 1 u32 match ip dsfield 0x00 0xe0 flowid 1:20"


def removal(switches: Iterable[Switch]) -> list[str]:
    """Return the `ovs-vsctl` arguments of one transaction that removes the switches."""
    return [argument for switch in switches for argument in ("--", "--if-exists", "del-br", switch.name)]


def controllers(switches: Iterable[Switch], targets: str, *, max_backoff: int, probe: int) -> list[str]:
    """Return the `ovs-vsctl` arguments that connect the switches to the controllers at `targets`, and to no others.

    `targets` are separated by spaces; `max_backoff` and `probe` are in ms."""
    arguments: list[str] = []
    for switch in switches:
        rows = []
        for number, target in enumerate(targets.split()):
            rows.append(f"@{switch.name}.{number}")
            arguments += ["--", f"--id={rows[-1]}", "create", "Controller", f'target="{target}"']
            arguments += ["connection_mode=out-of-band", f"max_backoff={max_backoff}", f"inactivity_probe={probe}"]
        arguments += ["--", "set", "Bridge", switch.name, f"controller={','.join(rows)}"]
    return arguments
