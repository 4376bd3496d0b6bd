"""Runs the controller as a process, between switches and OFGate, until a signal ends it."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import ssl
from dataclasses import replace
from typing import TYPE_CHECKING

from saps.config import Address, SettingError
from saps.config.sources_io import token
from saps.frontend.mqtt.access.origin import is_loopback
from saps.ofm.controller.addresses import AddressRange
from saps.ofm.controller.admission import Rules
from saps.ofm.controller.coded_pool import CodedPool, Coding
from saps.ofm.controller.controller import Controller
from saps.ofm.controller.driver.service import ControllerService
from saps.ofm.controller.driver.settings import ControllerSettings
from saps.ofm.controller.driver.standby_service import PairedController
from saps.ofm.controller.events import PolicyChanged
from saps.ofm.controller.saved import restore
from saps.ofm.flows.budget import Budget
from saps.ofm.flows.plan import Loopback
from saps.ofm.network.traffic import Traffic
from saps.ofm.network.traffic_files_io import TrafficFiles
from saps.ofm.northbound.driver.pair import PeerClient
from saps.ofm.northbound.driver.server import NorthboundServer
from saps.ofm.openflow.driver.server import OpenFlowServer, ServerSettings
from saps.ofm.topics.address import RANGE
from saps.ofm.topics.files import topic_rules
from saps.ofm.topics.registry import TopicRefusedError
from saps.ofm.trees.tree import Planners, SharedTree
from saps.policy.files_io import PolicyFiles
from saps.policy.model import Policy
from saps.runtime import process
from saps.runtime.logs import configure_logging

if TYPE_CHECKING:
    from saps.identity.https import Visitors

logger = logging.getLogger(__name__)

LOOPBACK_MAC = "02:5a:50:53:00:02"
"""Source MAC address of loopback packets; no host has it."""


class OfcProgram:
    """The parts of one controller, from `start` to `stop`."""

    def __init__(self, settings: ControllerSettings) -> None:
        """Make the parts of a controller. Raises `SettingError`."""
        self.settings = settings
        self._rules = rules(settings)
        self._files = TrafficFiles.of(settings)
        self._range = addresses(settings)
        self.policy: PolicyFiles | None = None
        state = self._stored()
        self._token = token("token_file", settings.token_file)
        self.service = self._paired(state) if settings.peer else self._alone(state)
        if settings.policy:
            self.policy = PolicyFiles("policy", settings.policy.split(","), self._obey)
        pair = self.service if isinstance(self.service, PairedController) else None
        self.switches = OpenFlowServer(
            *settings.listen,
            self.service,
            ServerSettings(probe_interval=settings.probe_interval, grace=settings.grace),
            tls=tls(settings, "openflow_certificate", "openflow_clients"),
            roles=pair,
        )
        if not (is_loopback(settings.northbound.host) or settings.token_file or settings.clients):
            raise SettingError(
                "northbound",
                "beyond loopback it needs --token-file, or --certificate and --clients, as requests change trees",
            )
        self._tls, self._visitors = northbound_tls(settings), visitors(settings)
        self.northbound = NorthboundServer(
            self.service,
            ip_version=self._range.network.version,
            token=self._token,
            tls=self._tls,
            pair=pair,
            visitors=self._visitors,
        )
        self.listen, self.asked = settings.listen, settings.northbound

    @property
    def machine(self) -> Controller:
        """The machine at work; a standby has none."""
        service = self.service.service if isinstance(self.service, PairedController) else self.service
        assert service is not None
        return service.machine

    def _stored(self) -> bytes:
        """Return the content of the state file, empty if there is none yet. Raises `SettingError`."""
        path = self.settings.state
        if path is None:
            return b""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            if not path.parent.is_dir():
                raise SettingError("state", f"cannot write {path}: {path.parent} is no directory") from None
            return b""
        except OSError as error:
            raise SettingError("state", f"cannot read {path}: {error}") from None

    def _alone(self, state: bytes) -> ControllerService:
        try:
            return self._begin(state)
        except ValueError as error:
            raise SettingError("state", f"cannot read {self.settings.state}: {error}") from None

    def _paired(self, state: bytes) -> PairedController:
        settings = self.settings
        try:
            peer = PeerClient(settings.peer, token=self._token or None, tls=peer_tls(settings))
            return PairedController(self._take_over, peer, settings.takeover, state)
        except ValueError as error:
            raise SettingError("state", f"cannot read {settings.state}: {error}") from None

    def _begin(self, state: bytes) -> ControllerService:
        """Return a controller that continues from a state, unless this is empty. Raises `ValueError` for a malformed
        state."""
        traffic = self._files.traffic()
        machine = Controller(self._rules, planners(self.settings, self._files, traffic), traffic)
        if state:
            restore(machine, state)
        return ControllerService(machine, grace=self.settings.grace, state=self.settings.state)

    def _take_over(self, state: bytes) -> ControllerService:
        """Return a controller that continues from a standby's state, with the policy in force. Raises `ValueError` for
        a malformed state."""
        service = self._begin(state)
        if self.policy is not None:
            service.handle(PolicyChanged(self.policy.policy))
        return service

    def _obey(self, policy: Policy) -> None:
        service = self.service.service if isinstance(self.service, PairedController) else self.service
        if service is not None:
            service.handle(PolicyChanged(policy))

    async def start(self) -> None:
        """Listen on both sides. Raises `SettingError`; call `stop` in this case, too."""
        try:
            self.listen = Address(self.listen.host, await self.switches.start())
        except OSError as error:
            raise SettingError("listen", process.refused(self.listen, error)) from None
        await self.service.start(self.switches)
        try:
            self.asked = Address(self.asked.host, await self.northbound.start(*self.asked))
        except OSError as error:
            raise SettingError("northbound", process.refused(self.asked, error)) from None

    def reload(self) -> None:
        """Read the policy files and the northbound's certificates again (SIGHUP). Errors are logged, and the old ones
        stay."""
        if self.policy is not None:
            self.policy.reload()
        try:
            if self._tls is not None and self.settings.certificate is not None:
                self._tls.load_cert_chain(self.settings.certificate)
            if self._visitors is not None:
                self._visitors.reload()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError, CertificateError a ValueError
            logger.error("new certificates of the northbound refused, the old ones stay: %s", error)

    async def stop(self) -> None:
        """Stop serving; the switches continue to forward."""
        await self.northbound.close()
        await self.switches.close()
        await self.service.close()

    def ready_line(self) -> str:
        """Return the line that a script waits for."""
        return f"ready listen={self.listen} northbound={self.asked} ofm_range={self._range}"


def planners(settings: ControllerSettings, files: TrafficFiles, traffic: Traffic) -> Planners:
    """Return the planners that the settings name. Raises `SettingError`."""
    if files.clusters and settings.planner != "balanced":
        raise SettingError("clusters", "is only for the planner balanced")
    if settings.planner == "steiner":
        return SharedTree()
    try:  # imported here, so that a controller of plain trees needs no numpy
        from saps.ofm.planner.fitted import NetworkPlanner
        from saps.ofm.planner.two_level import TwoLevelPlanner
    except ModuleNotFoundError as missing:
        raise SettingError("planner", f"{missing.name} is not installed (pip install 'saps[research]')") from None

    def version() -> int:
        return traffic.version

    capacity, rate, spread = traffic.capacity, traffic.rate, settings.parallel_links != "topic"
    if files.clusters:
        planner: NetworkPlanner = TwoLevelPlanner(
            files.clusters, capacity=capacity, rate=rate, version=version, spread=spread
        )
    else:
        planner = NetworkPlanner(settings.planner, capacity=capacity, rate=rate, version=version, spread=spread)
    planner.warm()
    return planner


def addresses(settings: ControllerSettings) -> AddressRange:
    """Return the range of all possible OFM addresses. Raises `SettingError`."""
    try:
        parsed = AddressRange.parse(settings.ofm_range)
    except ValueError as error:
        raise SettingError("ofm_range", str(error)) from None
    return parsed if settings.addresses == "allocated" else AddressRange(RANGE, parsed.first, parsed.last)


def coding(settings: ControllerSettings, addressed: AddressRange) -> Coding | None:
    """Return how topics are coded as addresses; None: addresses are allocated. Raises `SettingError`."""
    if settings.addresses == "allocated":
        if settings.topics is not None:
            raise SettingError("topics", "is only for addresses that are codes (addresses: coded)")
        return None
    plain = Coding(settings.topic_code, addressed.first, addressed.last)
    if settings.topics is None:
        return plain
    try:
        read = topic_rules(settings.topics.read_bytes())
        ruled = replace(plain, topics=read.topics, quotas=read.quotas)
        CodedPool(ruled)
    except (OSError, ValueError, TopicRefusedError) as error:
        raise SettingError("topics", f"cannot use {settings.topics}: {error}") from None
    return ruled


def rules(settings: ControllerSettings) -> Rules:
    """Return the rules that the machine follows. Raises `SettingError`."""
    addressed = addresses(settings)
    try:
        loopback = Loopback(settings.loopback, LOOPBACK_MAC)
        version = ipaddress.ip_address(loopback.ip).version
    except ValueError as error:
        raise SettingError("loopback", str(error)) from None
    if version != addressed.network.version:
        raise SettingError("loopback", f"{settings.loopback} is IPv{version}, but OFM addresses are {addressed}")
    if settings.meter and settings.addresses == "coded":
        raise SettingError("meter", "is not for addresses that are codes: there entries serve many topics")
    if settings.parallel_links != "topic" and settings.addresses == "coded":
        raise SettingError(
            "parallel_links", "only topic is for addresses that are codes: there entries serve many topics"
        )
    if settings.spanning_tree != "switches" and settings.addresses == "coded":
        raise SettingError("spanning_tree", "only switches is for addresses that are codes")
    return Rules(
        settings.ofm_range,
        loopback,
        Budget(settings.flow_budget, settings.bucket_budget),
        limit=settings.meter,
        coding=coding(settings, addressed),
        spread=settings.parallel_links != "topic",
        failover=settings.parallel_links == "failover",
        move_share=settings.move_share,
        move_overlap=settings.move_overlap,
        planes=settings.planes,
        spanning_tree=settings.spanning_tree == "controller",
    )


def tls(settings: ControllerSettings, certificate: str, clients: str) -> ssl.SSLContext | None:
    """Return a TLS context with the certificates of two settings: the server's own, and the authorities of its clients.
    With authorities, a client must show a certificate. None: no TLS. Raises `SettingError`."""
    own, authorities = getattr(settings, certificate), getattr(settings, clients)
    if own is None:
        if authorities is not None:
            raise SettingError(clients, f"needs {certificate}: clients show certificates under TLS only")
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
    """Return the northbound's TLS context, or None. A client that has the token needs no certificate. Raises
    `SettingError`."""
    context = tls(settings, "certificate", "clients")
    if context is not None:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if context is not None and settings.clients is not None and settings.token_file:
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def visitors(settings: ControllerSettings) -> Visitors | None:
    """Return what checks clients' certificates beyond their signatures; None: no further check. Raises
    `SettingError`."""
    names = [name for name in settings.client_names.split(",") if name]
    if settings.clients is None:
        for setting in ("client_names", "revoked"):
            if getattr(settings, setting):
                raise SettingError(setting, "needs clients: without it no certificate is asked for")
        return None
    from saps.identity.https import Visitors  # imported here, so that a controller without TLS does not load it

    try:
        return Visitors(names, settings.clients, settings.revoked)
    except (OSError, ValueError) as error:
        raise SettingError("revoked", f"cannot use {settings.revoked}: {error}") from None


def peer_tls(settings: ControllerSettings) -> ssl.SSLContext | None:
    """Return the TLS context for a peer with an ``https`` address. The authorities of clients also sign the peer's
    certificate, and this controller shows its own. None: no TLS. Raises `SettingError`."""
    if not settings.peer.startswith("https:"):
        return None
    context = ssl.create_default_context()
    for setting, use in (("clients", context.load_verify_locations), ("certificate", context.load_cert_chain)):
        file = getattr(settings, setting)
        try:
            if file is not None:
                use(file)
        except (OSError, ssl.SSLError) as error:
            raise SettingError(setting, f"cannot use {file}: {error}") from None
    return context


def run(settings: ControllerSettings) -> int:
    """Run a controller until SIGTERM or SIGINT. Return the exit status. Raises `SettingError` if it cannot start."""
    configure_logging(settings.log_level)
    return process.run(lambda stop: _serve(settings, stop))


async def _serve(settings: ControllerSettings, stop: asyncio.Event) -> int:
    program = OfcProgram(settings)
    try:
        await program.start()
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, program.reload)
        process.calm_garbage_collector()
        process.say(program.ready_line())
        await stop.wait()
        logger.info("the controller stops")
    finally:
        await program.stop()
    return 0
