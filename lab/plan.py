"""What has to be said to `ip` and `ovs-vsctl` so that a topology stands, as text: nothing is run here.

One interface pair for each link and host. The switches' ends are all in the switches' namespace, in one group, so that
one command deletes them all. Hosts know each other's MACs beforehand: no ARP request disturbs what the counters count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from saps.ofm.switch.topologies import MANAGEMENT_GATE, PREFIX, SWITCHES, Host, Link, Switch, Topology

GROUP = 77
"""The interface group of the switches' ends."""
DATA = "eth0"
"""A host's interface on the data network."""
MANAGEMENT = "mgmt0"
"""A host's interface on the management network; in the switches' namespace a Linux bridge, ``mgmt``, joins them."""
PROTOCOLS = "OpenFlow10,OpenFlow13,OpenFlow14,OpenFlow15"
MAC_AGING = 3600
"""Seconds a switch remembers where a host is, after which it floods; the largest value Open vSwitch takes."""


def namespace(lab: str, member: str) -> str:
    """The network namespace of a host, or of `SWITCHES`."""
    return f"{lab}.{member}"


def namespaces(lab: str, topology: Topology) -> list[str]:
    """All namespaces of a lab, that of the switches first."""
    return [namespace(lab, member) for member in (SWITCHES, *(host.name for host in topology.hosts))]


def wires(lab: str, topology: Topology) -> Iterator[str]:
    """`ip` lines, for the switches' namespace: all interface pairs, and the management bridge."""
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
    """`ip` lines, for the host's namespace: its addresses, and where the other hosts are."""
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
    """The interfaces of a switch and their OpenFlow port numbers."""
    for link in topology.links:
        if link.a == switch:
            yield link.name, link.a_port
        if link.b == switch:
            yield link.reverse, link.b_port
    for host in topology.hosts:
        if host.switch == switch:
            yield host.name, host.port


def spare_port(link: Link, switch: str) -> int:
    """The port of `link` at one of its ends."""
    return link.a_port if link.a == switch else link.b_port


def bridges(switches: Iterable[Switch], topology: Topology) -> list[str]:
    """`ovs-vsctl` arguments: one transaction that makes the switches with all their ports, and no controller yet.

    ``secure``: without a controller a switch keeps its flow entries. (``standalone`` would, after three probe
    intervals, put `NORMAL` above all of them and flush the tables when the controller is back.)"""
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
    """`tc` lines that limit what leaves an interface to `bits` a second.

    ``by_priority``: two classes, one for packets whose DSCP has a class selector above 0 (RFC 2474, 4.2.2), which goes
    first, and one for all others. That takes the place of the queues of an OpenFlow switch: the userspace datapath
    takes the action SET_QUEUE and sends everything through queue 0 (measured, see decision 034)."""
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
    """`ovs-vsctl` arguments: one transaction that takes the switches away."""
    return [argument for switch in switches for argument in ("--", "--if-exists", "del-br", switch.name)]


def controllers(switches: Iterable[Switch], targets: str, *, max_backoff: int, probe: int) -> list[str]:
    """`ovs-vsctl` arguments: connect the switches to the controllers at `targets`, separated by spaces, and to no
    others; both times in ms."""
    arguments: list[str] = []
    for switch in switches:
        rows = []
        for number, target in enumerate(targets.split()):
            rows.append(f"@{switch.name}.{number}")
            arguments += ["--", f"--id={rows[-1]}", "create", "Controller", f'target="{target}"']
            arguments += ["connection_mode=out-of-band", f"max_backoff={max_backoff}", f"inactivity_probe={probe}"]
        arguments += ["--", "set", "Bridge", switch.name, f"controller={','.join(rows)}"]
    return arguments
