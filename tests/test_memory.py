"""Memory that a broker has freed is there for its next turn."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

ROUNDS = """
import resource, sys
from saps.memory import keep_freed
if sys.argv[1] == "kept":
    assert keep_freed()
def faults(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        held = [bytes(300_000) for _ in range(20)]
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults(2)
print(faults(20))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_is_not_given_back_and_taken_again() -> None:
    kept, given_back = (
        int(subprocess.run([sys.executable, "-c", ROUNDS, how], capture_output=True, check=True, text=True).stdout)
        for how in ("kept", "given back")
    )
    assert kept < 100 < given_back
