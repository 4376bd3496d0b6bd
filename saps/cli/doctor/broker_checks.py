"""The checks of `saps doctor` for the broker that runs or shall run on this machine."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

from saps.cli.doctor import file_checks, machine_checks
from saps.cli.doctor.file_checks import UNNAMED
from saps.cli.doctor.findings import Finding, Verdict, fault, good, warning
from saps.cli.look.http_client import Answer, AskError, WebPort
from saps.config import Address, BrokerSettings, SettingError
from saps.config.sources_io import TABLES, faults_of_file, load, read_file
from saps.frontend.mqtt.access.logins.urls import is_url
from saps.identity.plain import sealed
from saps.links import LinkError, Links
from saps.overlay.ring.keys import BrokerRef

MOST_SKEW = 2.0
"""Greatest difference between two clocks, in seconds, without a warning. The header gives whole seconds."""
REACH = 3.0
"""Timeout of a connection to another broker in seconds."""


class Configured:
    """The settings that a broker would have here, and their faults."""

    def __init__(self, file: Path | None, environ: Mapping[str, str]) -> None:
        """`file` is that of ``--config``, and `environ` the environment as the broker would see it."""
        self.settings: BrokerSettings | None = None
        where = f"{file} and the environment" if file is not None else "the environment (no --config was given)"
        faults: list[SettingError] = faults_of_file(file) if file is not None else []
        try:
            if not faults:
                self.settings = _settings(file, environ)
        except SettingError as error:
            faults = [error]
        mend = "docs/settings.md says what each setting may be"
        self.findings = [fault("configuration", str(each), mend) for each in faults] or [
            good("configuration", f"{where}: no fault found")
        ]


def _settings(file: Path | None, environ: Mapping[str, str]) -> BrokerSettings:
    """Return the settings. If they lack a name, `UNNAMED` stands in, because ``--name`` often gives it.

    Raises `SettingError`."""
    try:
        return load({}, environ, file).settings
    except SettingError as error:
        if error.setting != "name" or error.source is not None:
            raise
    return load({"name": UNNAMED}, environ, file).settings


def settled(settings: BrokerSettings, running: bool, alone: Verdict = "fault") -> Iterator[Finding]:
    """Yield the findings of all checks of these settings, for `saps doctor` and `saps check-config`.

    `running` says that a broker runs here. `alone` is the verdict if nobody answers at any address of `join`.
    """
    yield from file_checks.files(settings)
    yield from file_checks.certificates(settings)
    yield from file_checks.folders(settings)
    yield from ports(settings, running or runs_here(settings))
    yield from reachable(settings, alone)


def complaints(file: Path) -> tuple[list[SettingError], list[SettingError]]:
    """Return the faults and the warnings of a file whose settings are valid, each with the place of its setting.

    A file without a broker's settings belongs to another program and has neither.
    """
    given = read_file(file)
    if given and all(name.partition(".")[0] in TABLES for name in given):
        return [], []
    loaded = load({}, {}, file) if "name" in given else load({"name": UNNAMED}, {}, file)
    found: dict[str, list[SettingError]] = {"fault": [], "warning": []}
    for finding in (*settled(loaded.settings, False, "warning"), *machine_checks.clock()):
        if finding.verdict in found:
            error = SettingError(finding.check, f"{finding.says} -> {finding.mend}")
            found[finding.verdict].append(loaded.locate(error))
    return found["fault"], found["warning"]


def listening(settings: BrokerSettings) -> dict[str, list[Address]]:
    """Return the addresses at which the broker would listen, by setting."""
    found = {"mqtt": [settings.mqtt], "overlay.listen": [settings.overlay.listen]}
    found["tls.listen"], found["web.listen"] = list(settings.tls.listen), list(settings.web.listen)
    found["proxy.listen"] = list(settings.proxy.listen)
    if settings.ofm.listen and not settings.ofm.attach:
        found["ofm.listen"] = [Address.parse(settings.ofm.listen)]
    return {setting: addresses for setting, addresses in found.items() if addresses}


def ports(settings: BrokerSettings, running: bool) -> Iterator[Finding]:
    """Check whether the broker can listen at its addresses.

    With `running` a broker runs here, and an address in use is no fault."""
    for setting, addresses in listening(settings).items():
        for address in addresses:
            number = _refusal(address, socket.SOCK_DGRAM if setting == "ofm.listen" else socket.SOCK_STREAM)
            if number is None:
                yield good(setting, f"{address} is free")
            elif number == errno.EADDRINUSE and running:
                yield good(setting, f"{address} is in use, and a broker runs")
            elif number == errno.EADDRINUSE:
                yield fault(
                    setting,
                    f"{address} is in use",
                    f"see who has it (ss -ltnp 'sport = :{address.port}') and end it, or set another {setting}",
                )
            else:
                mends = {
                    errno.EADDRNOTAVAIL: f"no interface has this address (ip addr): set another {setting}",
                    errno.EACCES: "take a port above 1023, or AmbientCapabilities=CAP_NET_BIND_SERVICE in the unit",
                }
                mend = mends.get(number, f"set another {setting}")
                yield fault(setting, f"{address}: {os.strerror(number)}", mend)


def reachable(settings: BrokerSettings, alone: Verdict) -> Iterator[Finding]:
    """Check whether brokers answer at the addresses of `join`, and whether the broker's other servers can be reached.

    The addresses of `join` are asked as the broker asks; `alone` is the verdict if nobody answers at any of them."""
    if settings.join:
        yield _contacts({address: asked(settings, address) for address in settings.join}, alone)
    wanted = {
        "upstream.url": settings.upstream.url,
        "web.controller": settings.web.controller if settings.web.listen else "",
        "web.ofgate": settings.web.ofgate if settings.web.listen else "",
        "tracing.endpoint": settings.tracing.endpoint,
        "auth.http.login": settings.auth.http.login,
        "auth.http.rights": settings.auth.http.rights,
        "auth.http.topics": settings.auth.http.topics,
        "auth.jwt.keys": settings.auth.jwt.keys if is_url(settings.auth.jwt.keys) else "",
    }
    for setting, url in wanted.items():
        if url:
            parts = urlsplit(url)
            port = parts.port or {"https": 443, "http": 80, "mqtts": 8883}.get(parts.scheme, 1883)
            why = _unreachable(Address(parts.hostname or "", port))
            if why is None:
                yield good(setting, f"somebody listens at {parts.hostname}:{port}")
            else:
                mend = "the broker starts without it and goes on trying; see that it runs, and what is in between"
                yield warning(setting, f"{parts.hostname}:{port}: {why}", mend)


def asked(settings: BrokerSettings, address: Address) -> BrokerRef | str:
    """Return the broker at an overlay address, or why it does not identify itself to the broker of these settings."""

    async def ask() -> BrokerRef:
        me = BrokerRef(settings.name, 0, "", settings.cluster)
        links = Links(
            me,
            settings.overlay.key_order().value,
            on_congestion=lambda congested: None,
        )
        links.side.speaks = settings.links.highest_version
        if sealed(settings):
            from saps.identity.chosen import link_identity  # here: plain links need none of it

            links.side.identity = link_identity(settings)
        return await links.meet(*address)

    try:
        return asyncio.run(ask())
    except (LinkError, SettingError) as error:
        return str(error)


def runs_here(settings: BrokerSettings) -> bool:
    """Return whether the broker of these settings runs on this machine, so that its own ports are in use."""
    host, port = settings.overlay.listen
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    found = asked(settings, Address(here, port)) if port else ""
    return not isinstance(found, str) and settings.name in (found.name, UNNAMED)


def _contacts(answers: Mapping[Address, BrokerRef | str], alone: Verdict) -> Finding:
    """Return the finding about `join`: `answers` has the broker at each address, or why there is none.

    It is a fault if somebody listens without an answer, because that broker does not let this one in. An address where
    nobody listens is at most a warning if another answers, because brokers may start later."""
    there = [
        f"{found.name or 'a broker that is starting'} at {address}"
        for address, found in answers.items()
        if not isinstance(found, str)
    ]
    silent = {address: found for address, found in answers.items() if isinstance(found, str)}
    if not silent:
        return good("join", f"reached {', '.join(there)}")
    says = f"not reached: {'; '.join(f'{address}: {why}' for address, why in silent.items())}"
    mend = "start that broker, look at its overlay.listen (loopback by default), its certificate, and firewalls"
    if any(not _unreachable(address) for address in silent):
        return fault("join", says, mend)
    if there:
        return warning("join", says, mend)
    lonely = f"{says}; a broker that starts now begins a mesh of its own"
    return Finding(
        check="join", verdict=alone, says=lonely, mend=f"{mend}; nothing, if this is the mesh's first broker"
    )


class Probe:
    """A broker's Web port, asked once whether the broker is ready."""

    def __init__(self, port: WebPort) -> None:
        self._url = port.url
        self._answer: Answer | None = None
        self._cause = ""
        try:
            self._answer = port.ask("/readyz")
            self._at = time.time()
        except AskError as error:
            self._cause = str(error)

    @property
    def running(self) -> bool:
        """Whether anybody answers at the Web port."""
        return self._answer is not None

    def findings(self) -> Iterator[Finding]:
        """Check whether a broker answers, whether it is ready, and whether its clock agrees with this machine's."""
        answer = self._answer
        if answer is None:
            yield warning("broker", self._cause, "start one with --web HOST:PORT, or name its Web port with --web")
            return
        if answer.status == 200:
            yield good("broker", f"{self._url} is ready")
        elif answer.status == 503:
            words = answer.body.decode(errors="replace")
            yield fault("broker", f"{self._url} is not ready: {words}", "wait if it has just begun; else see its log")
        else:
            yield fault(
                "broker", f"{self._url} answers {answer.status}: it is no broker", "name another one with --web"
            )
        date = answer.headers["Date"]
        if answer.status in (200, 503) and date is not None:
            yield self._skew(date)

    def _skew(self, date: str) -> Finding:
        try:
            skew = self._at - parsedate_to_datetime(date).timestamp()
        except ValueError:
            return warning("broker's clock", f"it does not tell its time: {date!r}", "look at what is in between")
        if -MOST_SKEW <= skew <= MOST_SKEW + 1.0:  # the header cuts off the fraction
            return good("broker's clock", "as here")
        return warning("broker's clock", f"{abs(skew):.0f} s {'behind' if skew > 0 else 'ahead'}", "synchronise both")


def _refusal(address: Address, kind: socket.SocketKind) -> int | None:
    """Return the errno with which a socket cannot listen at an address, or None if it can."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=kind, flags=socket.AI_PASSIVE)
        family, _, protocol, _, place = found[0]
        with socket.socket(family, kind, protocol) as trial:
            if kind is socket.SOCK_STREAM:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(place)
            if kind is socket.SOCK_STREAM:
                trial.listen(1)
    except socket.gaierror:
        return errno.EADDRNOTAVAIL
    except OSError as error:
        return error.errno or errno.EINVAL
    return None


def _unreachable(address: Address) -> str | None:
    try:
        with socket.create_connection((address.host, address.port), timeout=REACH):
            return None
    except OSError as error:
        return error.strerror or str(error)
