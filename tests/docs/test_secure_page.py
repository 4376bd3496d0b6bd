"""The page "Secure your mesh in ten minutes", command by command, on loopback addresses of its own."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs/secure.md").read_text()
TIMEOUT = 300.0


@pytest.mark.network
@pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="mosquitto's clients are not installed")
@pytest.mark.skipif(sys.platform != "linux", reason="all of 127.0.0.0/8 is this machine on Linux only")
def test_every_command_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    rng = random.SystemRandom()
    net, own = (f"127.{rng.randint(2, 254)}.{rng.randint(0, 254)}" for _ in range(2))
    script = "set -em\n" + "".join(blocks).replace("127.0.1.", f"{net}.").replace("127.0.0.$n", f"{own}.$n")
    script = f"trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}"
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SAPS_")}
    environ = clean | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    logs = "".join((tmp_path / f"b{n}.log").read_text() for n in (1, 2, 3) if (tmp_path / f"b{n}.log").exists())
    assert done.returncode == 0, done.stdout + done.stderr + logs
    heard = (tmp_path / "heard").read_text().splitlines()
    assert sorted(heard) == ["air/gate-7/co2 412", "air/sensor-1/pm25 21.5"]
    assert all(f"`{line}`" in PAGE for line in heard)
    assert "3 brokers in 1 cluster" in done.stdout
    assert "Traceback" not in logs, logs
