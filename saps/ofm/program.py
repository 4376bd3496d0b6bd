"""The controller as a process: switches on one side, OFGate on the other, until a signal ends it."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import ssl

from saps import process
from saps.config import Address, SettingError
from saps.logs import configure_logging
from saps.ofm.addresses import AddressRange
from saps.ofm.admission import Rules
from saps.ofm.budget import Budget
from saps.ofm.controller import Controller
from saps.ofm.events import PolicyChanged
from saps.ofm.northbound.server import NorthboundServer
from saps.ofm.openflow.server import OpenFlowServer, ServerSettings
from saps.ofm.plan import Loopback
from saps.ofm.saved import restore
from saps.ofm.service import ControllerService
from saps.ofm.settings import ControllerSettings
from saps.ofm.tree import Planners, SharedTree
from saps.policy.files import PolicyFiles

logger = logging.getLogger(__name__)

LOOPBACK_MAC = "02:5a:50:53:00:02"
"""The MAC address that loopback packets come from; no host has it."""


class OfcProgram:
    """The parts of one controller, from `start` to `stop`."""

    def __init__(self, settings: ControllerSettings) -> None:
        """Raises `SettingError`."""
        self.settings = settings
        self.machine = Controller(rules(settings), planners(settings))
        self.service = ControllerService(self.machine, grace=settings.grace, state=settings.state)
        self.policy: PolicyFiles | None = None
        if settings.policy:
            files = settings.policy.split(",")
            self.policy = PolicyFiles("policy", files, lambda policy: self.service.handle(PolicyChanged(policy)))
        self._restore()
        self.switches = OpenFlowServer(
            *settings.listen,
            self.service,
            ServerSettings(probe_interval=settings.probe_interval, grace=settings.grace),
            tls=tls(settings, "openflow_certificate", "openflow_clients"),
        )
        self.northbound = NorthboundServer(
            self.service,
            ip_version=self.machine.pool.range.network.version,
            token=settings.token,
            tls=northbound_tls(settings),
        )
        self.listen, self.asked = settings.listen, settings.northbound

    def _restore(self) -> None:
        path = self.settings.state
        if path is None:
            return
        try:
            restore(self.machine, path.read_bytes())
        except FileNotFoundError:
            if not path.parent.is_dir():
                raise SettingError("state", f"cannot write {path}: {path.parent} is no directory") from None
        except (OSError, ValueError) as error:
            raise SettingError("state", f"cannot read {path}: {error}") from None

    async def start(self) -> None:
        """Listen to both sides. Raises `SettingError`; then `stop` is still to be called."""
        try:
            self.listen = Address(self.listen.host, await self.switches.start())
        except OSError as error:
            raise SettingError("listen", process.refused(self.listen, error)) from None
        await self.service.start(self.switches)
        try:
            self.asked = Address(self.asked.host, await self.northbound.start(*self.asked))
        except OSError as error:
            raise SettingError("northbound", process.refused(self.asked, error)) from None

    async def stop(self) -> None:
        """Answer no more; the switches forward on as they are."""
        await self.northbound.close()
        await self.switches.close()
        await self.service.close()

    def ready_line(self) -> str:
        """What a script waits for."""
        return f"ready listen={self.listen} northbound={self.asked} ofm_range={self.machine.pool.range}"


def planners(settings: ControllerSettings) -> Planners:
    """What decides on trees. Raises `SettingError`."""
    if settings.planner == "steiner":
        return SharedTree()
    try:  # here, so that a controller of plain trees needs no numpy
        from saps.ofm.planner.fitted import NetworkPlanner
    except ModuleNotFoundError as missing:
        raise SettingError("planner", f"{missing.name} is not installed (pip install 'saps[research]')") from None
    return NetworkPlanner(settings.planner)


def rules(settings: ControllerSettings) -> Rules:
    """What the machine goes by. Raises `SettingError`."""
    try:
        addresses = AddressRange.parse(settings.ofm_range)
    except ValueError as error:
        raise SettingError("ofm_range", str(error)) from None
    try:
        loopback = Loopback(settings.loopback, LOOPBACK_MAC)
        version = ipaddress.ip_address(loopback.ip).version
    except ValueError as error:
        raise SettingError("loopback", str(error)) from None
    if version != addresses.network.version:
        raise SettingError("loopback", f"{settings.loopback} is IPv{version}, but ofm_range is {settings.ofm_range}")
    return Rules(settings.ofm_range, loopback, Budget(settings.flow_budget, settings.bucket_budget))


def tls(settings: ControllerSettings, certificate: str, clients: str) -> ssl.SSLContext | None:
    """The certificates that two settings name: one's own, and who may sign those of the peers, which they must have
    then. None: no TLS. Raises `SettingError`."""
    own, authorities = getattr(settings, certificate), getattr(settings, clients)
    if own is None:
        if authorities is not None:
            raise SettingError(clients, f"needs {certificate}: without TLS nobody shows a certificate")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(own)
    except (OSError, ssl.SSLError) as error:
        raise SettingError(certificate, f"cannot use {own}: {error}") from None
    if authorities is not None:
        try:
            context.load_verify_locations(authorities)
        except (OSError, ssl.SSLError) as error:
            raise SettingError(clients, f"cannot use {authorities}: {error}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def northbound_tls(settings: ControllerSettings) -> ssl.SSLContext | None:
    """The northbound's certificates: a client that has the token needs none of its own. Raises `SettingError`."""
    context = tls(settings, "certificate", "clients")
    if context is not None and settings.clients is not None and settings.token:
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def run(settings: ControllerSettings) -> int:
    """Run a controller until SIGTERM or SIGINT. Returns the exit status; raises `SettingError` if it cannot start."""
    configure_logging(settings.log_level)
    return process.run(lambda stop: _serve(settings, stop))


async def _serve(settings: ControllerSettings, stop: asyncio.Event) -> int:
    program = OfcProgram(settings)
    try:
        await program.start()
        if program.policy is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, program.policy.reload)
        print(program.ready_line(), flush=True)
        await stop.wait()
        logger.info("the controller stops")
    finally:
        await program.stop()
    return 0
