"""A PostgreSQL server of its own, Debian's, in a temporary folder and on a free port of loopback; also to be killed."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

VERSIONS = Path("/usr/lib/postgresql")
USERS = ("postgres", "nobody")
"""Who may run the server, if this process is root, whom it refuses."""
TIMEOUT = 60.0


def programs() -> Path | None:
    """The folder of ``initdb`` and ``postgres``; None if they or psycopg are not installed, or nobody may run them."""
    if find_spec("psycopg") is None:
        return None
    found = shutil.which("initdb")
    folders = sorted(VERSIONS.glob("*/bin"), key=lambda folder: float(folder.parent.name), reverse=True)
    folders = [folder for folder in folders if (folder / "initdb").exists()]
    folders += [Path(found).resolve().parent] if found else []
    if os.geteuid() == 0 and _user() is None:
        return None
    return folders[0] if folders else None


class PostgresServer:
    """One server, with the database ``saps`` of the user ``saps``. It trusts all users but ``locked``, who has a
    password."""

    def __init__(self, fsync: bool = True) -> None:
        """`fsync`: False: commits end in the system's memory, for tests that never cut its power."""
        found = programs()
        assert found is not None, "is not installed"
        self._programs = found
        self._home = Path(tempfile.mkdtemp(prefix="saps-pg-"))
        self._fsync = fsync
        self._process: subprocess.Popen[bytes] | None = None
        self._schemas = 0
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"postgresql://saps@127.0.0.1:{self.port}/saps"

    def __enter__(self) -> Self:
        user = _user()
        if user is not None:
            os.chown(self._home, user.pw_uid, user.pw_gid)
        made = ["--pgdata", str(self._home / "data"), "--username=saps", "--auth=trust", "--no-sync", "--encoding=UTF8"]
        try:
            self._run("initdb", "--locale=C", *made)
            rules = self._home / "data" / "pg_hba.conf"
            rules.write_text(f"host all locked 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
            self.start()
            self.sql("CREATE DATABASE saps", url=self.url.rpartition("/")[0] + "/postgres")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.kill(signal.SIGQUIT)
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def runs(self) -> bool:
        """It has been started, and not been killed since."""
        return self._process is not None

    def start(self) -> None:
        """Returns when it takes connections; those of a server that was killed may take a moment to end. It ends with
        the thread that calls this."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self._home,
            "fsync": "on" if self._fsync else "off",
        }
        given = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        words = [str(self._programs / "postgres"), "-D", str(self._home / "data"), *given]
        if shutil.which("setpriv"):  # it ends with this process
            words = ["setpriv", "--pdeathsig", "QUIT", "--", *words]
        end = time.monotonic() + TIMEOUT
        while not self._started(words):
            if time.monotonic() > end:
                raise RuntimeError((self._home / "log").read_text())
            time.sleep(0.1)

    def _started(self, words: list[str]) -> bool:
        user = _user()
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self._home,
                user=None if user is None else user.pw_uid, group=None if user is None else user.pw_gid,
                extra_groups=None if user is None else [],
            )  # fmt: skip
        while not self._answers():
            if self._process.poll() is not None:
                return False
            time.sleep(0.05)
        return True

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End it; by default as ``kill -9`` of all its processes does."""
        process, self._process = self._process, None
        if process is None:
            return
        if number == signal.SIGKILL:
            process.send_signal(signal.SIGSTOP)  # it starts none anew meanwhile
            for backend in _children(process.pid):
                with suppress(ProcessLookupError):  # it has ended by itself
                    os.kill(backend, number)
        process.send_signal(number)
        process.wait(TIMEOUT)

    def sql(self, text: str, *values: object, url: str = "") -> list[tuple[Any, ...]]:
        """The rows of a statement. `url`: of a part of the database."""
        import psycopg  # here: an optional extra, which those who only ask for `programs` need not have

        with psycopg.connect(url or self.url, autocommit=True) as connection:
            cursor = connection.execute(text.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def schema(self) -> str:
        """The URL of a part of the database that nobody has used."""
        self._schemas += 1
        self.sql(f"CREATE SCHEMA s{self._schemas}")
        return f"{self.url}?options=-csearch_path%3Ds{self._schemas}"

    def _answers(self) -> bool:
        ready = self._programs / "pg_isready"
        words = [str(ready), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-d", "postgres", "-U", "saps"]
        return subprocess.run(words, check=False).returncode == 0

    def _run(self, program: str, *words: str) -> None:
        user = _user()
        done = subprocess.run(
            [str(self._programs / program), *words], capture_output=True, text=True, cwd=self._home, check=False,
            user=None if user is None else user.pw_uid, group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else [],
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stderr)


def _children(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(number) for number in found.split()]


def _user() -> pwd.struct_passwd | None:
    """Who runs the server; None: this user."""
    if os.geteuid() != 0:
        return None
    for name in USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None
