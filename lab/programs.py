"""Runs SAPS's own programs on the hosts of a lab: brokers, and for OFM the controller and OFGate.

::

    with Lab("tree:4x2") as lab, Mesh(lab, order="la", ofm=True) as mesh:
        mesh.exploit(["alert/fire"])
        with lab.host("c1b1").inside():
            client = connect("127.0.0.1", MQTT)

Every broker is named after its host. It talks to the other brokers over the data network, which is counted, and to
clients at the addresses in `Mesh.clients`. Controller and OFGate talk over the management network. OFGate runs on the
first broker's host, as a node of its own.
"""

from __future__ import annotations

import json
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab.lab import Lab
from lab.namespace import Namespace
from lab.state import LabError
from saps.ofm.switch.topologies import MANAGEMENT_GATE

SAPS = Path(sys.executable).with_name("saps")
MQTT, OVERLAY, UDP, GATE, NORTHBOUND, OPENFLOW = 1883, 7300, 7400, 7399, 8181, 6653
"""Ports of the programs. Every host has its own namespace, so they conflict with no others."""
CONTROLLERS = ("controller", "controller2")
"""Names of the controllers' programs; the second runs only as a standby."""
TIMEOUT = 180.0
"""Seconds that a program may take to be ready or to carry out an order."""
GRACE = 8.0
"""Seconds between SIGTERM and SIGKILL."""
AT_ONCE = 8
"""Brokers that start at the same time; each takes about half a second of processor time."""
CALM: Mapping[str, str] = {
    "overlay.heartbeat_interval": "2",
    "overlay.suspect_after": "30",
    "overlay.dead_after": "10",
    "overlay.join_timeout": "60",
    "ofm.loopback_timeout": "0.5",
}
"""Settings for more brokers than the machine has processors for, so that a slow broker is not declared dead and a slow
loopback does not count as lost."""


class Program:
    """A process in the lab, with its standard error in a log file."""

    def __init__(self, name: str, space: Namespace, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        environment = {key: value for key, value in space.environment.items() if not key.startswith("SAPS_")}
        with self._log.open("wb") as errors:
            self._process = space.popen(
                [str(SAPS), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )

    @property
    def words(self) -> str:
        """The last 20 lines of the program's standard error."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def ready(self) -> dict[str, str]:
        """Wait for the ready line, and return its fields. Raises `LabError` if the program ends or takes too long."""
        line = self.line()
        if not line.startswith("ready "):
            raise LabError(f"{self.name} said {line!r} instead of being ready")
        return dict(part.split("=", 1) for part in line.split()[1:])

    def ask(self, order: str) -> Any:
        """Write an order to standard input, and return the answer, a line of JSON. Raises `LabError`."""
        assert self._process.stdin is not None
        self._process.stdin.write(order.encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self.line())

    def line(self) -> str:
        """Return the next line of output. Raises `LabError` if the program ends first, or after `TIMEOUT` seconds."""
        output = self._process.stdout
        assert output is not None
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            if not selector.select(TIMEOUT):
                raise LabError(f"{self.name} did not answer within {TIMEOUT:.0f} s; its last output:\n{self.words}")
        line: bytes = output.readline()
        if not line:
            raise LabError(f"{self.name} ended with status {self._process.wait()}; its last output:\n{self.words}")
        return line.decode().strip()

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal if it runs."""
        if self.running:
            self._process.send_signal(number)

    def end(self, deadline: float) -> int:
        """Wait for the process to end until `deadline` (`time.monotonic`), then kill it. Returns the exit status."""
        try:
            return self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()


class Mesh:
    """Brokers on hosts of a lab, which run inside the block. OFM uses IPv6 if the lab's hosts have it.

    Entering the block raises `LabError` if a program does not start."""

    def __init__(
        self,
        lab: Lab,
        hosts: Iterable[str] | None = None,
        *,
        order: str = "cluster",
        ofm: bool = False,
        management: bool = False,
        settings: Mapping[str, str] | None = None,
        prefix: str = "",
        standby: bool = False,
        join: Sequence[str] = (),
        domains: Sequence[str] = (),
        controller: Sequence[str] = (),
    ) -> None:
        """`hosts` get a broker each; None: all hosts. `order` is that of the keys, `overlay.alm_order`.

        With `management`, clients come over the management network, else from inside the host. `settings` are further
        settings of the brokers. `prefix` begins the names of brokers and OFGate. With `ofm` and `standby` there is a
        second controller. `join` has the addresses of brokers elsewhere whose mesh the first broker joins. `domains`
        are all OpenFlow domains of that mesh (`ofm.domains`). `controller` has more options of the controller."""
        self.lab = lab
        self.hosts = tuple(host.name for host in lab.topology.hosts) if hosts is None else tuple(hosts)
        self._order, self._ofm, self._prefix, self._management = order, ofm, prefix, management
        self._settings = {"links.plain": "true", **(settings or {})}
        if domains:
            self._settings["ofm.domains"] = ",".join(domains)
        self._join, self._domains, self._more = tuple(join), tuple(domains), tuple(controller)
        self._controllers = CONTROLLERS[: 1 + standby]
        self._folder = tempfile.TemporaryDirectory(prefix="saps-mesh-")
        self.programs: dict[str, Program] = {}
        """The programs: brokers by their host's name, ``controller``, with a standby ``controller2``, and
        ``ofgate``."""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def clients(self) -> dict[str, tuple[str, int]]:
        """Addresses at which clients connect, by host: from inside the host, or from the switches' namespace."""
        return {host: (self._client_side(host), MQTT) for host in self.hosts}

    def failed(self) -> list[str]:
        """Return a text for each program that has ended by itself."""
        return [f"{name} ended: {program.words}" for name, program in self.programs.items() if not program.running]

    def exploit(self, topics: Iterable[str], timeout: float = TIMEOUT) -> None:
        """Have OFGate use OFM for these topics, and wait until their trees are constructed. Raises `LabError`."""
        wanted = set(topics)
        for topic in sorted(wanted):
            self.order(f"exploit {topic}")
        self.until(lambda status: _with_status(status, "constructed") >= wanted, "trees", timeout)

    def release(self, topics: Iterable[str], timeout: float = TIMEOUT) -> None:
        """Have OFGate give these topics back to ALM, and wait until their trees are gone. Raises `LabError`."""
        unwanted = set(topics)
        for topic in sorted(unwanted):
            self.order(f"release {topic}")
        self.until(lambda status: not {each["topic"] for each in status["topics"]} & unwanted, "no trees", timeout)

    def order(self, order: str) -> Any:
        """Give OFGate an order (`saps ofgate`), and return its answer. Raises `LabError`."""
        return self.programs["ofgate"].ask(order)

    def until(self, true: Callable[[Any], bool], what: str, timeout: float = TIMEOUT) -> None:
        """Wait until OFGate's status satisfies `true`. Raises `LabError`, naming `what`, after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not true(status := self.order("status")):
            if time.monotonic() > deadline:
                raise LabError(f"no {what} after {timeout:.0f} s: {status}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End all programs in order: OFGate, then the brokers one after the other, then the controllers."""
        deadline = time.monotonic() + GRACE
        for name in ("ofgate", *reversed(self.hosts), *CONTROLLERS):
            program = self.programs.pop(name, None)
            if program is not None:
                program.signal(signal.SIGTERM)
                program.end(deadline)
        self._folder.cleanup()

    def kill(self) -> None:
        """Kill all programs at once, from any thread, so that every wait for them fails. `stop` is still due."""
        for program in list(self.programs.values()):
            program.signal(signal.SIGKILL)

    # --- starting ---------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._ofm:
            self._start_controllers()
        first, *others = self.hosts
        self._start_brokers([first])
        for number in range(0, len(others), AT_ONCE):
            self._start_brokers(others[number : number + AT_ONCE])
        if self._ofm:
            self._start_ofgate()

    def _start_brokers(self, hosts: Sequence[str]) -> None:
        for host in hosts:
            self.programs[host] = self._run(host, host, ["broker", *self._options(host)])
        for host in hosts:
            self.programs[host].ready()

    def _options(self, name: str) -> list[str]:
        host = self.lab.topology.host(name)
        options = ["--name", self._prefix + name, "--cluster", host.cluster, "--alm", self._order]
        options += ["--overlay", f"{host.ip}:{OVERLAY}", "--mqtt", f"{self._client_side(name)}:{MQTT}"]
        contacts = self._join if name == self.hosts[0] else (self.contact,)
        options += [word for contact in contacts for word in ("--join", contact)]
        values = {"log_level": "warning"}
        if self._management:
            values["auth.anonymous"] = "always"
        if self._ofm:
            values["ofm.listen"] = f"[{host.ipv6}]:{UDP}" if self.lab.ipv6 else f"{host.ip}:{UDP}"
        for setting, value in (values | self._settings).items():
            options += ["--set", f"{setting}={value}"]
        return options

    def _client_side(self, host: str) -> str:
        return self.lab.topology.host(host).management if self._management else "127.0.0.1"

    @property
    def contact(self) -> str:
        """The first broker's overlay address, at which other brokers join."""
        return f"{self.lab.topology.host(self.hosts[0]).ip}:{OVERLAY}"

    def _start_controllers(self) -> None:
        self.token.write_text(secrets.token_hex(16) + "\n")
        self.token.chmod(0o600)
        for name in self._controllers:
            self.programs[name] = self._controller(name)
        for name in self._controllers:
            self.programs[name].ready()
        self.lab.set_controller([("127.0.0.1", OPENFLOW + place) for place in range(len(self._controllers))])

    def restart_controller(self, name: str) -> None:
        """Start a controller that has ended, and wait until it listens. Raises `LabError`."""
        self.programs[name] = self._controller(name)
        self.programs[name].ready()

    def _controller(self, name: str) -> Program:
        place = self._controllers.index(name)
        options = ["--listen", f"127.0.0.1:{OPENFLOW + place}", "--northbound", _northbound(place)]
        options += ["--token-file", str(self.token), "--log-level", "warning"]
        network = self.lab.topology.network
        if self.lab.ipv6:
            options += ["--loopback", f"fd{network}::ffff", "--ofm-range", "[ff05:77::/112]:5000-5999", *self._more]
        else:
            options += ["--loopback", f"10.{network}.255.254", *self._more]
        if len(self._controllers) > 1:
            options += ["--peer", f"http://{_northbound(1 - place)}"]
        return self._run(name, None, ["controller", *options])

    @property
    def northbounds(self) -> list[str]:
        """The controllers' northbound URLs, reachable from the hosts and from the switches' namespace."""
        return [f"http://{_northbound(place)}" for place in range(len(self._controllers))]

    def _start_ofgate(self) -> None:
        host = self.lab.topology.host(self.hosts[0])
        options = ["--name", f"{self._prefix}ofgate", "--cluster", host.cluster, "--overlay", f"{host.ip}:{GATE}"]
        options += ["--join", self.contact]
        options += [word for domain in self._domains for word in ("--domain", domain)]
        options += [word for url in self.northbounds for word in ("--controller", url)]
        options += ["--token-file", str(self.token), "--config", str(self._write_config())]
        self.programs["ofgate"] = self._run("ofgate", host.name, ["ofgate", *options])
        self.programs["ofgate"].ready()
        self.until(lambda status: bool(status["leading"]), "leading OFGate", TIMEOUT)

    def _write_config(self) -> Path:
        """Write a file with OFGate's settings, which are those it must share with the brokers, and return its path."""
        path = Path(self._folder.name) / "ofgate.toml"
        shared = {"overlay.alm_order": self._order} | {
            setting: value
            for setting, value in self._settings.items()
            if setting.startswith(("links.", "overlay.", "priority."))
        }
        sections: dict[str, list[str]] = {}
        for setting, value in shared.items():
            section, _, name = setting.partition(".")
            sections.setdefault(section, []).append(f"{name} = {_toml(value)}")
        path.write_text("".join(f"[{name}]\n" + "\n".join(lines) + "\n" for name, lines in sections.items()))
        return path

    @property
    def token(self) -> Path:
        """Path of the file with the controllers' token."""
        return Path(self._folder.name) / "token"

    def _run(self, name: str, host: str | None, command: Sequence[str]) -> Program:
        space = self.lab.switches if host is None else self.lab.host(host)
        return Program(name, space, command, Path(self._folder.name))


def _northbound(place: int) -> str:
    return f"{MANAGEMENT_GATE}:{NORTHBOUND + place}"


def _with_status(status: Any, wanted: str) -> set[str]:
    return {each["topic"] for each in status["topics"] if each["status"] == wanted}


def _toml(value: str) -> str:
    if value in ("true", "false"):
        return value
    try:
        float(value)
    except ValueError:
        return json.dumps(value.split(",") if "," in value else value)
    return value
