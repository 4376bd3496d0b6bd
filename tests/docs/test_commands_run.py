"""Commands of pages that need other addresses, or programs beside them, carried out in order: each scene in namespaces
of its own, whose interface has the pages' addresses. Each serves until it is ended, or succeeds.

Not here: commands of the tutorial, the README, and the pages that have a test of their own (`test_commands.py`); make's
targets and benchmarks, which are run as such; `saps drain`, by tests/network/test_drain_live.py; `saps lab`,
`saps monitor` and `saps reproduce`, by tests/lab, tests/monitoring and tests/research; helm, by tests/deploy;
`pip install` and the systemd unit, by `test_packages.py`. kubectl and podman have no cluster and no registry here.
Lines that end in ``...`` leave out what only a site knows.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.test_commands import FOUND
from tests.docs.test_docs import ROOT

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root"),
    pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed"),
]
PATIENCE = 600.0
NAMESPACES = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
BEGIN = """
set -em
started=0
ip link set lo up
for address in 10.0.0.1/8 10.0.0.2/8 10.0.1.1/8 10.0.1.2/8 10.0.1.8/8 10.0.1.9/8 fd00::1/64; do
  n=$((${n:-0} + 1))
  ip link add site$n type veth peer name far$n
  ip link set far$n up
  ip link set site$n up
  ip address add $address dev site$n
done
serve() {
  started=$((started + 1))
  "$@" > log.$started 2>&1 & last=$!
  until grep -q ^ready log.$started; do kill -0 $last || { cat log.$started; exit 1; }; sleep 0.1; done
}
succeed() { echo "+ $*" >&2; "$@" || { echo "status $?" >&2; exit 1; }; }
"""
END = """
for job in $(jobs -pr | tac); do kill $job; wait $job || { echo "ended with $?"; cat log.*; exit 1; }; done
! grep Traceback log.*
"""


class Step(NamedTuple):
    """A command of a page."""

    page: str
    begins: str
    """How it begins; the page has one that does."""
    serves: bool = False
    more: str = ""
    """In the place of ``...``."""
    given: str = ""
    """Assignments before it: what is another machine's on the page."""


class Scene(NamedTuple):
    """Commands that belong together."""

    steps: list[Step]
    before: str = ""
    """Typed first: files that the page supposes."""


def page(name: str) -> str:
    return f"docs/{name}.md"


def blocks(name: str, kind: str) -> list[str]:
    """Fenced blocks of a page."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", (ROOT / page(name)).read_text(), re.MULTILINE | re.DOTALL)


def written(file: str, content: str) -> str:
    return f"cat > {file} <<'THAT'\n{content}\nTHAT\n"


OFM, LOOK, SECURITY = page("ofm"), page("terminal"), page("security")
PLAIN = "SAPS_LINKS__PLAIN=true"
"""Links of 10.0.0.0/8 without an identity."""
TOKENS = "umask 077; echo 0123456789abcdef0123456789abcdef | tee secret > token; umask 022\n"
GATE = "--join 10.0.1.1:7300 --overlay 10.0.1.9:7399 --name gate"
NETWORK = '{"nodes": ["a", "b", "c"], "links": [{"a": "a", "b": "b", "capacity": 1e6}, {"a": "b", "b": "c"}]}'
DEMANDS = '[{"topic": "city/traffic", "members": ["a", "c"], "senders": ["a"], "rate": 1000}]'

SCENES = {
    "machines with OpenFlow": Scene(
        [
            Step(
                OFM, "saps controller --listen 10.0.0.1:6653 --northbound 10.0.0.1:8181 --token-file /etc", serves=True
            ),
            Step(OFM, "saps broker --name b1 --overlay 10.0.1.1:7300", serves=True, given=PLAIN),
            Step(
                OFM, "saps broker --name b2 --overlay 10.0.1.2", serves=True, given=f"{PLAIN} SAPS_MQTT=127.0.0.2:1883"
            ),
            Step(OFM, "saps ofgate --name gate1", serves=True, given=PLAIN),
            Step(OFM, "saps ofgate --name gate2", serves=True, given=PLAIN),
        ],
        TOKENS,
    ),
    "a standby controller": Scene(
        [
            Step(OFM, "saps controller --listen 10.0.0.1:6653 --northbound 10.0.0.1:8181 --peer", serves=True),
            Step(OFM, "saps controller --listen 10.0.0.2", serves=True),
            Step(OFM, "saps broker --name b1 --overlay 10.0.1.1:7300", serves=True, given=PLAIN),
            Step(
                OFM, "saps ofgate --controller http://10.0.0.1:8181 --controller", serves=True, more=GATE, given=PLAIN
            ),
            Step(OFM, "curl -H"),
        ],
        TOKENS,
    ),
    "switches in software": Scene(
        [
            Step(OFM, "saps controller --listen 127.0.0.1:6653", serves=True),
            Step(OFM, "saps switches --topology tree:3x2", serves=True),
            Step(OFM, "saps broker --name b1 --set ofm.listen=10.77.1.1:7400 --set", serves=True),
            Step(OFM, "saps broker --name b2 --mqtt", serves=True),
        ]
    ),
    "domains": Scene(
        [
            Step(
                OFM,
                "saps broker --name b1 --cluster tokyo/ward1 --set ofm.domains",
                True,
                "--overlay 10.0.1.1:7300",
                PLAIN,
            ),
            Step(OFM, "saps ofgate --name gate-tokyo", True, "--join 10.0.1.1:7300 --overlay 10.0.1.8:7399", PLAIN),
            Step(OFM, "saps ofgate --name gate-osaka", True, "--join 10.0.1.1:7300 --overlay 10.0.1.9:7399", PLAIN),
        ]
    ),
    "policies": Scene(
        [
            Step(page("policies"), "saps controller", serves=True),
            Step(page("policies"), "saps broker", serves=True),
            Step(page("policies"), "saps ofgate", serves=True),
        ],
        written("city.xml", blocks("policies", "xml")[0]) + written("hospitals.toml", blocks("policies", "toml")[0]),
    ),
    "topic codes": Scene(
        [
            Step(page("topic-codes"), "saps controller", serves=True),
            Step(page("topic-codes"), "saps broker", serves=True),
        ],
        written("topics.toml", blocks("topic-codes", "toml")[0]),
    ),
    "plans": Scene(
        [
            Step(page("planner"), "saps plan make"),
            Step(page("planner"), "saps plan explain"),
            Step(page("planner"), "saps plan draw"),
            Step(page("planner"), "saps controller --parallel-links", serves=True),
        ],
        written("network.json", NETWORK) + written("demands.json", DEMANDS),
    ),
    "counts": Scene(
        [
            Step(page("monitoring"), "saps broker", serves=True),
            Step(page("monitoring"), "saps ofgate --controller", serves=True),
        ]
    ),
    "an upstream broker": Scene(
        [Step(page("upstream"), "saps broker", serves=True)],
        "mosquitto -p 1884 > mosquitto.log 2>&1 & sleep 1\n",
    ),
    "a mesh of one site": Scene(
        [
            Step(page("mqtt"), "saps broker --name b1 --cluster", serves=True),
            Step(page("mqtt"), "saps broker --name b2 --cluster", serves=True),
        ]
    ),
    "a Web port": Scene([Step(page("web"), "saps broker --name b1 --web", serves=True), Step(LOOK, "saps brokers")]),
    "traces": Scene([Step(page("tracing"), "saps broker", serves=True)]),
    "certificates": Scene(
        [
            Step(SECURITY, "saps ca init"),
            Step(SECURITY, "saps ca issue b1"),
            Step(SECURITY, "saps ca revoke b1"),
            Step(SECURITY, "saps ca list"),
            Step(SECURITY, "saps ca secret"),
            Step(page("running"), "saps ca secret", given="rm mesh.secret;"),
        ]
    ),
    "users": Scene(
        [
            Step(SECURITY, "saps passwd passwords sensor-1", given="echo correct-horse |"),
            Step(SECURITY, "saps passwd passwords sensor-2", given="echo correct-horse |"),
            Step(SECURITY, "saps passwd passwords pump-8", given="echo correct-horse |"),
            Step(SECURITY, "saps passwd passwords sensor-2 --delete"),
        ]
    ),
    "storage": Scene(
        [
            Step(page("storage"), "saps storage verify", more="b1.db"),
            Step(page("storage"), "saps storage export", more="b1.db"),
            Step(page("storage"), "saps storage backup", more="b1.db copy.db"),
            Step(page("storage"), "saps storage repair", more="copy.db repaired.db"),
        ],
        "serve saps broker --name b1 --set storage.file=b1.db\n"
        "mosquitto_pub -t a -m 1 -q 1 -r; kill $last; wait $last\n",
    ),
    "at the terminal": Scene(
        [
            Step(LOOK, "saps broker --name b1 --web", serves=True),
            Step(LOOK, "saps brokers"),
            Step(LOOK, "saps topics", more="air/#"),
            Step(LOOK, "saps clients", more="sensor-7"),
            Step(LOOK, "saps client ", more="sensor-7"),
            Step(LOOK, "saps audit", more=""),
            Step(LOOK, "saps follow", more="--filter air/# --seconds 1"),
            Step(LOOK, "saps trace", more="air/ward1"),
            Step(LOOK, "saps top ", more="--rounds 1"),
            Step(page("running"), "curl -f"),
            Step(page("web"), "curl -d"),
            Step(SECURITY, "saps ban client"),
            Step(SECURITY, "saps ban address"),
            Step(SECURITY, "saps ban user guest", given="saps ban user guest;"),
            Step(SECURITY, "saps ban"),
            Step(LOOK, "saps doctor ...", more="--config b1.toml"),
            Step(page("running"), "saps doctor --config /etc/saps/b1.toml"),
            Step(page("settings"), "saps check-config FILE ...", more="b1.toml"),
        ],
        written("b1.toml", 'name = "b1"\n[web]\nlisten = ["127.0.0.1:8080"]')
        + "keep() { until mosquitto_sub -i sensor-7 -c -q 1 -t air/# -E; do sleep 0.1; done; }; keep & disown\n",
    ),
}


def text(step: Step) -> str:
    """The command of the page; of several that begin so, the shortest."""
    found = [shlex.join(command) for where, command in FOUND if where == step.page]
    found = sorted((each for each in found if each.startswith(step.begins.removesuffix(" ..."))), key=len)
    assert found, step
    command = found[0]
    if command.endswith(" ..."):
        command = re.sub(r"( '?\[[^']*\]'?| [A-Z]+)* \.\.\.$", "", command) + f" {step.more}"
    command = re.sub(r"'([^']*\$\(.*?\))'", r'"\1"', command)  # what a shell is to put in
    return command.replace("/etc/saps/", "").replace("/var/lib/saps/", "")


def script(scene: Scene) -> str:
    lines = [BEGIN, scene.before]
    for step in scene.steps:
        if step.given.endswith((";", "|")):
            lines.append(f"{step.given} {text(step)}")
        else:
            lines.append(f"{step.given} {'serve' if step.serves else 'succeed'} {text(step)}")
    return "\n".join([*lines, END])


@pytest.mark.parametrize("name", SCENES)
def test_the_commands_of_the_pages_do_what_they_are_for(name: str, tmp_path: Path) -> None:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SAPS_")}
    environ = clean | {"PATH": f"{Path(sys.executable).parent}:/usr/sbin:{os.environ['PATH']}", "COLUMNS": "160"}
    done = subprocess.run(
        [*NAMESPACES, "bash", "-c", script(SCENES[name])],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
