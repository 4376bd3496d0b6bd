"""Log lines of the programs: an exception comes with its traceback, on a terminal and elsewhere."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

FAILING = """
import logging
from saps.runtime.logs import configure_logging
configure_logging("info")
def inner():
    raise ValueError("out of range")
try:
    inner()
except ValueError:
    logging.getLogger("saps.test").exception("it failed")
"""
COMMAND = [sys.executable, "-c", FAILING]


def test_an_exception_in_a_log_that_is_no_terminal_is_one_line_with_its_traceback() -> None:
    (line,) = subprocess.run(COMMAND, capture_output=True, text=True, check=True, timeout=60).stderr.splitlines()
    assert re.match(r'timestamp=\S+ level=error event="it failed" ', line), "logfmt"
    assert "Traceback (most recent call last)" in line
    assert "in inner" in line
    assert "ValueError: out of range" in line


def test_an_exception_on_a_terminal_has_its_traceback() -> None:
    ours, theirs = pty.openpty()
    subprocess.run(COMMAND, stderr=theirs, check=True, timeout=60, env=os.environ | {"TERM": "dumb"})
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # the other end is closed, and all is read
        pass
    os.close(ours)
    first = re.sub(r"\x1b\[\d+m", "", shown.decode()).splitlines()[0]
    assert re.fullmatch(r"\d\d:\d\d:\d\d error +it failed", first), "short"
    assert b"Traceback" in shown
    assert b"inner" in shown
    assert b"out of range" in shown
