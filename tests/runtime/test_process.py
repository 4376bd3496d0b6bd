"""The frame of every program: saps.runtime.process."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_line_is_one_write(unbuffered: str) -> None:
    reading, writing = os.pipe2(os.O_DIRECT)  # a read returns what one write wrote: pipe(2)
    program = "from saps.runtime.process import say; say('ready name=b1')"
    subprocess.run(
        [sys.executable, "-c", program],
        stdout=writing,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        timeout=60,
        check=True,
    )
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        assert pipe.read(1000) == b"ready name=b1\n"
