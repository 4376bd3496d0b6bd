"""A mesh on a lab: `saps broker` on every host, `saps controller` beside the switches, `saps ofgate` where asked.

What travels between brokers, by ALM or OFM, passes the lab's switches; OFGate reaches the controller by the management
network, which no counter counts. Clients attach to the broker of their own host, at `load.MQTT`.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.switchover.load import MQTT
from benchmarks.switchover.programs import TIMEOUT, Program, ProgramError
from lab import MANAGEMENT_GATE, Lab

CONTROLLER = ("127.0.0.1", 6653)
"""Where the switches of the lab must look for their controller: in their own namespace."""
NORTHBOUND = f"{MANAGEMENT_GATE}:8181"
OVERLAY, OFM, GATE = 7300, 7400, 7399
"""Ports of each host: for other brokers, for datagrams, and of an OFGate."""
BOTH = "both/#"
"""These topics use BOTH, all others EITHER."""
TOPICS = {"either": "either/ward1", "both": "both/ward1"}
"""A topic of each mode."""


class City:
    """A context manager; all its processes end with the block. `lab` stands, and has `CONTROLLER`."""

    def __init__(
        self,
        lab: Lab,
        *,
        gates: int = 1,
        lease: float = 10.0,
        controller: tuple[str, ...] = (),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`gates` OFGates, on the first hosts. `controller`: further options of it; `settings`: of the brokers."""
        self.lab = lab
        self.hosts = [host.name for host in lab.topology.hosts]
        self.brokers: dict[str, Program] = {}
        self.gates: dict[str, Program] = {}
        """By the host it is on; those that run."""
        self.controller: Program | None = None
        self._gates = gates
        self._lease = lease
        self._options = controller
        self._settings = dict(settings or {})
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="saps-city-")))
        self.token = self.folder / "token"
        """What the controller asks of OFGate."""
        self.token.write_text(secrets.token_hex(16) + "\n")
        self._stack.callback(self._end)
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start(self) -> None:
        self.start_controller()
        for host in self.hosts:
            self.start_broker(host)
            if host == self.hosts[0]:
                self.brokers[host].ready()
        for host in self.hosts[1:]:
            self.brokers[host].ready()
        for host in self.hosts[: self._gates]:
            self.start_gate(host)
        for gate in self.gates.values():
            gate.ready()
        self.until(lambda: self.leader is not None, "an OFGate leads")

    def _end(self) -> None:
        programs = [*self.gates.values(), *self.brokers.values()]
        for program in (*programs, *([self.controller] if self.controller else [])):
            if program.alive:
                program.kill()

    # --- processes ----------------------------------------------------------------------------------------------

    def start_controller(self) -> None:
        """Start the controller, with the state file of its earlier runs; returns when it listens."""
        state = str(self.folder / "ofc.json")
        options = ["--northbound", NORTHBOUND, "--state", state, "--log-level", "info", *self._options]
        options += ["--token-file", str(self.token)]
        listen = "{}:{}".format(*CONTROLLER)
        self.controller = Program(
            self.lab.switches, ["controller", "--listen", listen, *options], self.folder / "controller.log"
        )
        self.controller.ready()

    def start_broker(self, host: str) -> None:
        """Start a host's broker; it is not ready yet."""
        found = self.lab.topology.host(host)
        settings = {"ofm.listen": f"{found.ip}:{OFM}", "ofm.mode": "either", "ofm.exceptions": BOTH, **self._settings}
        settings["links.plain"] = "true"
        self.brokers[host] = Program(
            self.lab.host(host),
            [
                "broker",
                *("--name", host, "--cluster", found.cluster, "--mqtt", "{}:{}".format(*MQTT)),
                *("--overlay", f"{found.ip}:{OVERLAY}", *self._join(host)),
                *(word for name, value in settings.items() for word in ("--set", f"{name}={value}")),
            ],
            self.folder / f"broker-{host}.log",
        )

    def start_gate(self, host: str) -> None:
        """Start an OFGate on a host; it is not ready yet. Of several the one on the first host leads."""
        found = self.lab.topology.host(host)
        self.gates[host] = Program(
            self.lab.host(host),
            [
                "ofgate",
                *("--controller", f"http://{NORTHBOUND}", "--token-file", str(self.token)),
                *("--name", f"gate-{host}", "--cluster", found.cluster),
                *("--overlay", f"{found.ip}:{GATE}", "--mode", "either", "--except", BOTH, "--lease", str(self._lease)),
                *("--set", "links.plain=true"),
                *self._join(""),
            ],
            self.folder / f"ofgate-{host}.log",
        )

    def _join(self, host: str) -> list[str]:
        """The addresses of the other brokers."""
        others = [other.ip for other in self.lab.topology.hosts if other.name != host]
        first = not self.brokers
        return [] if first else [word for ip in others for word in ("--join", f"{ip}:{OVERLAY}")]

    # --- OFGate -------------------------------------------------------------------------------------------------

    @property
    def leader(self) -> Program | None:
        """The OFGate that leads, if one says so."""
        for gate in self.gates.values():
            if gate.alive and gate.ask("status")["leading"]:
                return gate
        return None

    def ask(self, order: str) -> Any:
        """An order to the OFGate that leads. Raises `ProgramError` if none does."""
        gate = self.leader
        if gate is None:
            raise ProgramError("no OFGate leads")
        return gate.ask(order)

    def topic(self, topic: str) -> dict[str, Any]:
        """What the leading OFGate says of a topic; status 'none' if it knows nothing."""
        gate = self.leader
        topics = gate.ask("status")["topics"] if gate is not None else []
        return next((found for found in topics if found["topic"] == topic), {"status": "none", "members": []})

    def construct(self, topic: str) -> float:
        """Have the topic's tree constructed. Returns the seconds that took, until OFGate says so."""
        began = time.monotonic()

        def there() -> bool:
            state = self.topic(topic)
            if state["status"] == "none":
                self.ask(f"exploit {topic}")
            return bool(state["status"] == "constructed")

        self.until(there, f"the tree of {topic} is constructed")
        return time.monotonic() - began

    def release(self, topic: str) -> float:
        """Have the topic's tree deleted. Returns the seconds that took."""
        began = time.monotonic()
        self.ask(f"release {topic}")
        self.until(lambda: self.topic(topic)["status"] == "none", f"the tree of {topic} is deleted")
        return time.monotonic() - began

    def counts(self, host: str) -> dict[str, Any]:
        """What became of one broker's publications (`OfmAgent.describe`); empty if it does not answer. Any OFGate that
        runs can be asked."""
        gate = next(gate for gate in self.gates.values() if gate.alive)
        return next((found for found in gate.ask("brokers") if found["broker"] == host), {})

    def until(self, true: Callable[[], bool], what: str, timeout: float = TIMEOUT) -> float:
        """Wait until it is true. Returns the seconds that took. Raises `ProgramError`, with what was waited for."""
        began = time.monotonic()
        while not true():
            if time.monotonic() - began > timeout:
                raise ProgramError(f"waited {timeout:.0f} s in vain until {what}")
            time.sleep(0.02)
        return time.monotonic() - began
