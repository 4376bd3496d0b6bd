"""The Debian package in a minimal Debian of its own: installed, a broker as its unit starts it, a message, removed. The
container image, built on such a Debian.

Needs root, debootstrap, Debian's mirror, PyPI and podman; some minutes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.publish
import paho.mqtt.subscribe
import pytest

ROOT = Path(__file__).resolve().parents[2]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEBOOTSTRAP = shutil.which("debootstrap", path=f"{os.environ.get('PATH', '')}:{PATH}")
CLEAN = ["env", "-i", f"PATH={PATH}", "HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]
ANY = "127.0.0.1:0"
LIMITS = ["nofile=4096:4096", "nproc=4096:4096"]
"""Of containers: podman raises these, which not every root may."""
SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root"),
    pytest.mark.skipif(DEBOOTSTRAP is None, reason="debootstrap is not installed"),
]


@pytest.fixture
def debian(tmp_path: Path) -> Iterator[Path]:
    """A minimal Debian in a folder."""
    folder = tmp_path / "debian"
    assert DEBOOTSTRAP is not None
    subprocess.run([DEBOOTSTRAP, "--variant=minbase", SUITE, folder, MIRROR], check=True, stdout=subprocess.DEVNULL)
    shutil.copy("/etc/resolv.conf", folder / "etc")
    yield folder
    shutil.rmtree(folder)


def shell(debian: Path, script: str) -> str:
    """What a script says in there, with /proc and /dev, which go with it."""
    mounts = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev"'
    inside = f'{mounts} && exec chroot "$0" {" ".join(CLEAN)} sh -ec "$1"'
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", inside, str(debian), script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_debian_package_serves_in_a_clean_debian(debian: Path) -> None:
    built = subprocess.run(["scripts/build_deb.sh"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    shutil.copy(ROOT / built.split()[0], debian / "tmp" / "saps.deb")
    serve(debian)


def passes_messages(broker: list[str]) -> None:
    """What this command starts serves a publisher and a subscriber, and ends in order."""
    with subprocess.Popen(broker, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            port = re.search(r"mqtt=127\.0\.0\.1:(\d+)", ready)
            assert port is not None, ready
            number = int(port[1])
            paho.mqtt.publish.single("air/ward1", b"42", qos=1, retain=True, hostname="127.0.0.1", port=number)
            message = paho.mqtt.subscribe.simple("air/#", qos=1, hostname="127.0.0.1", port=number)  # type: ignore[no-untyped-call]
            assert (message.topic, message.payload) == ("air/ward1", b"42")
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0
        finally:
            process.kill()


def serve(debian: Path) -> None:
    """What a user does with /tmp/saps.deb."""
    shell(debian, "apt-get update -qq && apt-get install -qq -y --no-install-recommends /tmp/saps.deb")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert shell(debian, "saps --version").strip() == f"saps {version}"
    owners = shell(debian, "stat -c '%U:%G %a' /etc/saps /var/lib/saps").splitlines()
    assert owners == ["root:saps 750", "saps:saps 700"]
    assert "SAPS" in shell(debian, "zcat /usr/share/man/man1/saps.1.gz")

    content = (
        'name = "b1"\nmqtt = "127.0.0.1:0"\n[overlay]\nlisten = "127.0.0.1:0"\n'
        '[storage]\nfile = "/var/lib/saps/b1.db"\n'
    )
    (debian / "etc/saps/b1.toml").write_text(content)
    shell(debian, "saps check-config /etc/saps/b1.toml")
    unit = (debian / "lib/systemd/system/saps-broker@.service").read_text()
    start = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert start is not None
    broker = ["chroot", "--userspec=saps:saps", str(debian), *CLEAN, *start[1].replace("%i", "b1").split()]
    passes_messages(broker)
    removed = "apt-get remove -qq -y saps && ! test -e /opt/saps"
    shell(debian, f"{removed} && test -s /var/lib/saps/b1.db && test -e /etc/saps/b1.toml")


@pytest.fixture
def containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Images and containers in a folder of their own, in this machine's network."""
    images = tmp_path / "images"
    (tmp_path / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{images}"\nrunroot = "{tmp_path}/run"\n'
    )
    (tmp_path / "containers.conf").write_text(
        f'[containers]\nnetns = "host"\ndefault_ulimits = {LIMITS}\n[engine]\ncgroup_manager = "cgroupfs"\n'
        + ('runtime = "runc"\n' if shutil.which("runc") else "")
    )
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(tmp_path / "storage.conf"))
    monkeypatch.setenv("CONTAINERS_CONF", str(tmp_path / "containers.conf"))
    yield
    subprocess.run(["umount", images / "overlay"], check=False, capture_output=True)
    shutil.rmtree(images)


@pytest.mark.skipif(shutil.which("podman") is None, reason="podman is not installed")
@pytest.mark.usefixtures("containers")
def test_the_image_serves(debian: Path, tmp_path: Path) -> None:
    shell(debian, "apt-get update -qq && apt-get install -qq -y --no-install-recommends python3-venv")
    if trusted := os.environ.get("PIP_CERT"):
        shutil.copy(trusted, debian / "etc/trusted.pem")
        (debian / "etc/pip.conf").write_text("[global]\ncert = /etc/trusted.pem\n")
    imported = f"tar -C {debian} -c . | podman import - localhost/debian"
    subprocess.run(["bash", "-o", "pipefail", "-c", imported], check=True, capture_output=True)
    build = ["make", "image", "BASE=localhost/debian", "ARGS=--network host --isolation chroot"]
    built = subprocess.run(build, cwd=ROOT, check=False, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, 10001, 10001)
    run = ["podman", "run", "--rm", "--cap-drop", "ALL", "--read-only", "--volume", f"{data}:/var/lib/saps"]
    run += ["--env", "SAPS_STORAGE__FILE=/var/lib/saps/b1.db", "saps"]
    told = subprocess.run([*run, "--help"], check=True, capture_output=True, text=True).stdout
    assert "Usage: saps COMMAND" in told
    passes_messages([*run, "broker", "--name", "b1", "--mqtt", ANY, "--overlay", ANY])
    assert (data / "b1.db").stat().st_uid == 10001
