"""Starts the broker of one pod: its name, its address, and whom it is to join.

The first broker (number 0) joins those of its peers that serve, and begins the mesh if none does; the others join any
peer, and end if there is none, to be started again. So a mesh begins once, and goes on after all pods were away.
"""

import os
import socket
import ssl
import sys
import time
import urllib.request
from pathlib import Path

PATIENCE = 60.0
"""Seconds for this pod's own name to be known."""


def known(host: str) -> bool:
    """Does the host have an address yet?"""
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True


def serves(host: str, port: str) -> bool:
    """Is the broker there in the mesh? (Its certificate names the service for clients; nothing secret is sent.)"""
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    for scheme in ("http", "https"):
        try:
            with urllib.request.urlopen(f"{scheme}://{host}:{port}/readyz", timeout=2, context=unverified):
                return True
        except (OSError, ValueError):
            pass
    return False


def main() -> None:
    """Become the broker."""
    peers, name = os.environ.pop("PEERS").split(","), os.environ["SAPS_NAME"]
    port, web = os.environ.pop("OVERLAY_PORT"), os.environ.pop("WEB_PORT")
    me = next(peer for peer in peers if peer.partition(".")[0] == name)
    give_up = time.monotonic() + PATIENCE
    while not known(me) and time.monotonic() < give_up:
        time.sleep(0.5)
    others = [peer for peer in peers if peer != me and known(peer)]
    if me == peers[0]:
        others = [peer for peer in others if serves(peer, web)]
    if secret := os.environ.pop("MESH_SECRET", ""):
        own = Path("/run/saps/mesh.secret")  # Kubernetes lets the group read what it mounts
        own.touch(mode=0o600)
        own.write_text(Path(secret).read_text())
        os.environ["SAPS_LINKS__SECRET_FILE"] = str(own)
    os.environ["SAPS_OVERLAY"] = f"{me}:{port}"
    if others or me != peers[0]:
        os.environ["SAPS_JOIN"] = ",".join(f"{peer}:{port}" for peer in others or peers[:1])
    os.execvp("saps", ["saps", "broker", *sys.argv[1:]])


if __name__ == "__main__":
    main()
