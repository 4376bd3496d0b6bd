"""Ctrl-C while the programs are loaded: they end at once, with status 130, and say nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

TIMEOUT = 300.0
"""Seconds a test waits for what must come."""
PROGRAMS = {
    "saps": [str(Path(sys.executable).with_name("saps")), "brokers"],
    "python -m saps": [sys.executable, "-m", "saps", "broker", "--name", "b1"],
}
MODULES = 150
"""Fewer than each of them imports after `saps.runtime.loading`."""


@contextmanager
def inherited(attention: Any) -> Iterator[None]:
    """What a process begins with that is started meanwhile: SIGINT is ignored or not. (In the background it is.)"""
    before = signal.signal(signal.SIGINT, attention)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_interrupt_while_a_program_is_loaded_ends_it_quietly(program: str, seed: int) -> None:
    rng = random.Random(seed)
    for moment in (2, rng.randrange(3, MODULES)):  # the first is `saps.cli` itself
        with inherited(signal.default_int_handler):
            process = subprocess.Popen(
                PROGRAMS[program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPROFILEIMPORTTIME": "1"},  # a line for each module that has been imported
            )
        assert process.stderr is not None
        for line in process.stderr:
            if line.rstrip().endswith("saps.runtime.loading"):
                break
        for _ in range(moment):
            assert process.stderr.readline().startswith("import time:")
        process.send_signal(signal.SIGINT)
        said, more = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, said) == (130, ""), more
        assert [line for line in more.splitlines() if not line.startswith("import time:")] == []


def test_where_an_interrupt_is_ignored_it_stays_so() -> None:
    program = """import os, signal
from saps.runtime.loading import Loading
with Loading(): os.kill(os.getpid(), signal.SIGINT)"""
    with inherited(signal.SIG_IGN):
        done = subprocess.run([sys.executable, "-c", program], timeout=TIMEOUT, check=False)
    assert done.returncode == 0
