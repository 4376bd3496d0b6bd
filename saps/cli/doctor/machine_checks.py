"""The checks of `saps doctor` for this machine, independent of its brokers."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import re
import resource
import shutil
import subprocess
from collections.abc import Iterator

from saps.cli.doctor.findings import Finding, fault, good, note, warning
from saps.runtime.compiled import Modules, modules
from saps.version import __version__

NEEDED = ("aiohttp", "cryptography", "msgspec", "prometheus-client", "rich", "typer")
"""Distributions that a broker needs to run in full."""
OTHER_FILES = 1000
"""Open files of a broker besides its clients: links, storage, the Web port."""
OLDEST_JAVA = 17
"""Oldest version of Java that Spark 4 runs on."""
TIMEOUT = 10.0
"""Timeout of a query for a program's version in seconds."""
_TIME_ERROR = 5
"""Result of adjtimex(2) while the clock is not synchronised."""


def versions() -> Iterator[Finding]:
    """Report the versions of this program, Python and the system, and check the libraries in `NEEDED`."""
    here = f"saps {__version__}, Python {platform.python_version()}, {platform.system()} {platform.release()}"
    yield good("versions", here)
    missing = [name for name in NEEDED if _version(name) is None]
    if missing:
        yield fault("libraries", f"not installed: {', '.join(missing)}", f"pip install {' '.join(missing)}")
    else:
        yield good("libraries", ", ".join(f"{name} {_version(name)}" for name in NEEDED))


def event_loop() -> Iterator[Finding]:
    """Check for uvloop, which brokers use if it is installed."""
    found = _version("uvloop")
    if found is None:
        yield warning(
            "event loop", "uvloop is not installed: brokers run slower, on asyncio's own", "pip install uvloop"
        )
    else:
        yield good("event loop", f"uvloop {found}")


def compiled_modules() -> Iterator[Finding]:
    """Check whether the modules that handle every publication are compiled from the present sources."""
    if modules is Modules.STALE:
        yield warning("modules", "compiled from other sources than those here, which run instead, slower", "make setup")
    else:
        yield good("modules", modules)


def open_files(clients: int) -> Iterator[Finding]:
    """Check the hard limit of open files against the clients a broker may have.

    A broker raises the soft limit by itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = clients + OTHER_FILES
    if hard != resource.RLIM_INFINITY and hard < wanted:
        yield warning(
            "open files",
            f"at most {hard:,}, but {clients:,} clients may attach (limits.maximum_connections)",
            f"LimitNOFILE={wanted} in the unit, or ulimit -Hn {wanted}; or lower limits.maximum_connections",
        )
    else:
        shown = "no limit" if hard == resource.RLIM_INFINITY else f"at most {hard:,}"
        yield good("open files", f"{shown}; enough for {clients:,} clients")


def clock() -> Iterator[Finding]:
    """Check whether the clock is synchronised. It orders a broker's incarnations and retained messages."""
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(512))  # zeros: a query only
    except (OSError, AttributeError):
        state = -1
    if state == _TIME_ERROR:
        yield warning(
            "clock",
            "the kernel says that it is not synchronised; the later of two retained messages may lose",
            "run chrony or systemd-timesyncd (timedatectl set-ntp true)",
        )
    elif state < 0:
        yield note("clock", "the kernel does not say if it is synchronised", "see timedatectl, or chronyc tracking")
    else:
        yield good("clock", "synchronised")


def java() -> Iterator[Finding]:
    """Check for Java, which only the Spark job of `saps monitor` needs."""
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java")
    mend = f"install Java {OLDEST_JAVA} (openjdk-{OLDEST_JAVA}-jre-headless) to run the monitoring job on Spark"
    said = _asked(program, "-version") if program else None
    number = _major(said) if said is not None else None
    if number is None:
        yield note("Java", f"{program or 'java'} is not there, or does not tell its version", mend)
    elif number < OLDEST_JAVA:
        yield warning("Java", f"{program} is version {number}: Spark 4 does not start", mend)
    else:
        yield good("Java", f"version {number}")


def open_vswitch() -> Iterator[Finding]:
    """Check for Open vSwitch, which only OpenFlow multicast on this machine needs."""
    program = shutil.which("ovs-vsctl")
    if program is None:
        yield note(
            "Open vSwitch",
            "ovs-vsctl is not there",
            "install openvswitch-switch for OpenFlow on this machine; saps switches needs neither it nor root",
        )
        return
    said = _asked(program, "--timeout=3", "--no-wait", "get", "Open_vSwitch", ".", "ovs_version")
    if said is None:
        running = "its daemons do not run, or this user may not ask them"
        yield note("Open vSwitch", running, "systemctl start openvswitch-switch, or ask as root")
    else:
        yield good("Open vSwitch", f"version {said.strip().strip(chr(34)) or 'unknown'}, running")


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _asked(*command: str) -> str | None:
    """Run a program and return its output, or None if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout or done.stderr


def _major(said: str) -> int | None:
    """Return the major version of Java: 17 for ``openjdk version "17.0.9"``, 8 for ``java version "1.8.0_392"``.

    Returns None for other output."""
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None
