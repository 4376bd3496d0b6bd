"""The command ``saps passwd`` as a user meets it: in a pipe, at a terminal, beside others."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from saps.frontend.mqtt.access.users import parse_users
from saps.frontend.mqtt.driver.access_files import edit_users

COMMAND = [sys.executable, "-m", "saps", "passwd"]


def passwd(*arguments: str | Path, typed: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *map(str, arguments)], input=typed, capture_output=True, check=False)


def test_in_a_pipe_the_password_is_the_first_line(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    done = passwd(file, "ann", typed="sécret \r\nmore\n".encode())
    assert (done.returncode, done.stdout) == (0, f"{file}: added ann\n".encode())
    assert parse_users(file.read_text())["ann"].matches("sécret ".encode())
    assert file.stat().st_mode & 0o777 == 0o600
    assert passwd(file, "ann", typed=b"other").stdout == f"{file}: changed ann\n".encode()
    assert parse_users(file.read_text())["ann"].matches(b"other")
    assert passwd(file, "ann", "--delete").stdout == f"{file}: removed ann\n".encode()
    assert file.read_text() == ""


@pytest.mark.parametrize(
    ("arguments", "typed", "before", "said"),
    [
        (("a:b",), b"x", None, "must not have a colon"),
        (("ann",), b"", None, "the password is empty"),
        (("ann",), b"x" * 65536, None, "the password is longer than 65535 bytes"),
        (("ann", "--delete"), b"", "# nobody\n", "has no user 'ann'"),
        (("ann",), b"x", "bob:plain\n", ":1: not a password hash of a known kind"),
        (("ann",), b"x", "#\n# \udcff\n", "passwords:2: not UTF-8"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line_and_changes_nothing(
    tmp_path: Path, arguments: tuple[str, ...], typed: bytes, before: str | None, said: str
) -> None:
    file = tmp_path / "passwords"
    if before is not None:
        file.write_text(before, errors="surrogateescape")
    done = passwd(file, *arguments, typed=typed)
    assert done.returncode == 2
    line = done.stderr.decode()
    assert line.startswith("saps: ")
    assert said in line
    assert line.count("\n") == 1
    assert (file.read_text(errors="surrogateescape") if file.exists() else None) == before
    assert os.listdir(tmp_path) == ([] if before is None else ["passwords"])


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    done = passwd(tmp_path / "nowhere" / "passwords", "ann", typed=b"x")
    assert (done.returncode, b"No such file or directory" in done.stderr) == (2, True)


@pytest.mark.parametrize(("again", "status"), [(b"secret", 0), (b"secrat", 2)])
def test_at_a_terminal_the_password_is_asked_for_twice_and_not_shown(tmp_path: Path, again: bytes, status: int) -> None:
    file = tmp_path / "passwords"
    child, terminal = pty.fork()
    if not child:
        os.execv(sys.executable, [*COMMAND, str(file), "ann"])
    said = b""
    for prompt, answer in ((b"Password of ann: ", b"secret"), (b"Once more: ", again)):
        while not said.endswith(prompt):
            said += os.read(terminal, 1024)
        os.write(terminal, answer + b"\n")
    while chunk := _read(terminal):
        said += chunk
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status
    assert b"secr" not in said
    assert file.exists() == (status == 0)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1024)
    except OSError:  # Linux: the other side has gone
        return b""


def test_edits_at_the_same_time_lose_nobody(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    everyone = {f"user{number}" for number in range(12)}
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda name: edit_users(file, name, name.encode()), everyone)) == {"added"}
    assert set(parse_users(file.read_text())) == everyone
    assert os.listdir(tmp_path) == ["passwords"]


def test_a_link_stays_a_link_and_the_mode_stays(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("# kept\n")
    real.chmod(0o640)
    link.symlink_to(real)
    edit_users(link, "ann", b"x")
    assert link.is_symlink()
    assert real.read_text().startswith("# kept\nann:$scrypt$")
    assert real.stat().st_mode & 0o777 == 0o640
