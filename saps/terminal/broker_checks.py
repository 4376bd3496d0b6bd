"""What `saps doctor` looks at for the broker that is to run, or runs, on this machine."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path

from saps.config import Address, BrokerSettings, SettingError
from saps.config.sources import faults_of_file, load
from saps.terminal.asking import Answer, AskError, WebPort
from saps.terminal.findings import Finding, fault, good, warning

MOST_SKEW = 2.0
"""Seconds between two clocks that are not worth a word: the header says whole seconds."""
REACH = 3.0
"""Seconds to connect to another broker."""


class Configured:
    """The settings a broker would have here, and what is wrong with them."""

    def __init__(self, file: Path | None, environ: Mapping[str, str]) -> None:
        """`file`: of ``--config``; `environ` as the broker would see it."""
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
    """The settings; without a name, which is often given by ``--name`` alone, those of a broker of any name."""
    try:
        return load({}, environ, file).settings
    except SettingError as error:
        if error.setting != "name" or error.source is not None:
            raise
    return load({"name": "unnamed"}, environ, file).settings


def listening(settings: BrokerSettings) -> dict[str, list[Address]]:
    """Where the broker would listen, by setting."""
    found = {"mqtt": [settings.mqtt], "overlay.listen": [settings.overlay.listen]}
    found["tls.listen"], found["web.listen"] = list(settings.tls.listen), list(settings.web.listen)
    return {setting: addresses for setting, addresses in found.items() if addresses}


def ports(settings: BrokerSettings, running: bool) -> Iterator[Finding]:
    """Can the broker listen where it is to? `running`: one runs here, so that its ports are taken by right."""
    for setting, addresses in listening(settings).items():
        for address in addresses:
            number = _refusal(address)
            if number is None:
                yield good("ports", f"{setting}: {address} is free")
            elif number == errno.EADDRINUSE and running:
                yield good("ports", f"{setting}: {address} is in use, and a broker runs")
            elif number == errno.EADDRINUSE:
                yield fault(
                    "ports",
                    f"{setting}: {address} is in use",
                    f"see who has it (ss -ltnp 'sport = :{address.port}') and end it, or set another {setting}",
                )
            else:
                mends = {
                    errno.EADDRNOTAVAIL: f"no interface has this address (ip addr): set another {setting}",
                    errno.EACCES: "take a port above 1023, or AmbientCapabilities=CAP_NET_BIND_SERVICE in the unit",
                }
                mend = mends.get(number, f"set another {setting}")
                yield fault("ports", f"{setting}: {address}: {os.strerror(number)}", mend)


def contacts(settings: BrokerSettings) -> Iterator[Finding]:
    """Does anybody listen at the addresses of `join`?"""
    if not settings.join:
        return
    dead = [f"{address} ({why})" for address in settings.join if (why := _unreachable(address)) is not None]
    if not dead:
        yield good("join", f"somebody listens at {', '.join(map(str, settings.join))}")
        return
    mend = "start that broker, look at its overlay.listen (loopback by default), and at firewalls in between"
    if len(dead) == len(settings.join):
        yield fault("join", f"nobody can be reached: {', '.join(dead)}", mend)
    else:
        yield warning("join", f"not reached: {', '.join(dead)}", mend)


def folders(settings: BrokerSettings) -> Iterator[Finding]:
    """Can the broker write where it keeps things?"""
    wanted = {"storage.file": settings.storage.file, "monitoring.directory": settings.monitoring.directory}
    for setting, path in wanted.items():
        if not path:
            continue
        folder = Path(path).absolute()
        while not folder.is_dir():
            folder = folder.parent
        if setting == "storage.file" and folder != Path(path).absolute().parent:
            yield fault(setting, f"there is no folder {Path(path).parent}", f"mkdir -p {Path(path).parent}")
        elif not os.access(folder, os.W_OK):
            yield fault(setting, f"this user may not write in {folder}", f"chown {folder} to the broker's user")
        else:
            yield good(setting, f"{folder} can be written")


class Probe:
    """A broker's Web port, asked once if it is ready."""

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
        """Somebody answers."""
        return self._answer is not None

    def findings(self) -> Iterator[Finding]:
        """Does a broker answer, is it ready, and is its clock ours?"""
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
        if -MOST_SKEW <= skew <= MOST_SKEW + 1.0:  # it cuts off the fraction
            return good("broker's clock", "as here")
        return warning("broker's clock", f"{abs(skew):.0f} s {'behind' if skew > 0 else 'ahead'}", "synchronise both")


def _refusal(address: Address) -> int | None:
    """Why nobody can listen there, as an errno; None if one can."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(place)
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
