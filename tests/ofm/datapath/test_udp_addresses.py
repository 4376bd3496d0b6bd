"""The MAC address that belongs to an address of this machine (`saps.ofm.datapath.driver.udp.mac_of`)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

BEGIN = """
ip link set lo up
ip link add site type veth peer name far
ip link set site address 02:00:00:00:00:07 up
ip link set far up
ip address add 10.9.0.1/24 dev site
ip address add 10.9.0.2/24 dev site
ip address add 10.9.1.1/24 dev site label site:1
ip address add 10.9.2.1 peer 10.9.2.2 dev site
"""
SHOW = """
import json, sys
from saps.ofm.datapath.driver.udp import mac_of
print(json.dumps([mac_of(address) for address in sys.argv[1:]]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace needs root")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
def test_the_interface_is_found_by_each_of_its_addresses() -> None:
    """Its first one, a second one of the same network, one with a label, one of a point-to-point link."""
    addresses = ["10.9.0.1", "10.9.0.2", "10.9.1.1", "10.9.2.1", "10.9.2.2", "127.0.0.1"]
    script = f'set -e\n{BEGIN}\nexec "$0" -c "$@"'
    command = ["unshare", "--net", "sh", "-c", script, sys.executable, SHOW, *addresses]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    site = "02:00:00:00:00:07"
    assert json.loads(done.stdout) == [site, site, site, site, None, "00:00:00:00:00:00"]
