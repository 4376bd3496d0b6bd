"""Commands of pages that need other addresses, or programs beside them, carried out in order: each scene in namespaces
of its own, whose interface has the pages' addresses. Each serves until it is ended, or succeeds.

`test_commands_accounted.py` says who runs the others. Lines that end in ``...`` leave out what only a site knows.
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
TIMEOUT = 600.0
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
    """Assignments before it, what is another machine's on the page; or commands, which end in ``;`` or ``|``."""


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
TOPOLOGY = """
serve saps controller; controller=$last
serve saps switches --topology tree:3x2
until curl -s http://127.0.0.1:8181/v1/topology > topology.json && test $(grep -o '"dpid"' topology.json | wc -l) -gt 2
do sleep 0.1; done
kill $last $controller; wait $last $controller
echo '{"0000000000000001": "west", "0000000000000002": "east", "0000000000000003": "east"}' > clusters.json
"""
"""A network's topology, as its controller tells it, and its clusters."""
AWAY = """
SAPS_OVERLAY__SUSPECT_AFTER=1 SAPS_OVERLAY__DEAD_AFTER=2 serve saps broker --name b1 --web 127.0.0.1:8080
serve saps broker --name b2 --mqtt 127.0.0.1:1884 --overlay 127.0.0.1:7301 --join 127.0.0.1:7300
kill -9 $last; wait $last || true
until saps brokers --json | grep -q '"away":\\[{'; do sleep 0.5; done
"""
"""A broker that has died, and one that knows it."""
PAIR = """
serve saps broker --name b2 --mqtt 127.0.0.1:1884 --overlay 127.0.0.1:7301
serve saps broker --name b1 --web 127.0.0.1:8080 --join 127.0.0.1:7301
"""
"""A broker to be drained, and one that takes its clients."""
SOURCES = f"mkdir .venv; ln -s {Path(sys.executable).parent} .venv/bin; export PYTHONPATH={ROOT}\n"
"""For what is typed in the source checkout."""
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
    "a network's plan": Scene(
        [
            Step(page("planner"), "saps plan network"),
            Step(page("planner"), "saps controller --planner", serves=True),
        ],
        TOPOLOGY + written("demands.json", '[{"topic": "city/traffic", "rate": 1000}]'),
    ),
    "meters": Scene(
        [
            Step(OFM, "saps controller --meter", serves=True, more="1000"),
            Step(OFM, "saps switches ...", True, "--topology tree:3x1"),
        ]
    ),
    "counts": Scene(
        [
            Step(page("monitoring"), "saps broker", serves=True),
            Step(page("monitoring"), "saps ofgate --controller", serves=True),
        ]
    ),
    "decisions without Spark": Scene(
        [
            Step(page("monitoring"), "saps broker", serves=True),
            Step(
                page("monitoring"),
                "saps ofgate --decide",
                True,
                "--controller http://127.0.0.1:8181 --join 127.0.0.1:7300",
            ),
            Step(
                page("monitoring"),
                "saps ofgate --switch-counts",
                True,
                "counts --controller http://127.0.0.1:8181 --join 127.0.0.1:7300 --name gate --overlay 127.0.0.1:7398",
            ),
        ]
    ),
    "a drain": Scene([Step(page("running"), "saps drain b1 --web")], PAIR),
    "a drain by the usual port": Scene([Step(page("running"), "saps drain b1")], PAIR),
    "a broker that is away": Scene(
        [
            Step(page("running"), "saps brokers --forget", more="b2"),
            Step(page("running"), "saps topics --sort", more=""),
            Step(page("running"), "saps trace", more="air/ward1 --web 127.0.0.1:8080"),
        ],
        AWAY,
    ),
    "forecasts": Scene([Step(page("for-data-engineers"), "python -m monitoring.forecasts")], SOURCES),
    "programs that end soon": Scene(
        [
            Step(OFM, "python -m benchmarks.domains"),
            Step(SECURITY, "python -m scripts.fuzz --list"),
            Step(page("for-network-engineers"), ".venv/bin/saps lab --help"),
        ],
        SOURCES,
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
            Step(SECURITY, "saps ca issue controller", more="127.0.0.1"),
            Step(SECURITY, "saps ca client", more="gate-7"),
            Step(SECURITY, "saps ca server", more="127.0.0.1"),
            Step(
                SECURITY,
                "saps controller --certificate",
                True,
                "",
                "cp ca/issued/controller.pem ca/authority.pem ca/revoked.pem .;",
            ),
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
            Step(page("storage"), "saps broker", serves=True),
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


def shown(step: Step) -> str:
    """The command as the page has it; of several that begin so, the shortest."""
    found = [shlex.join(command) for where, command in FOUND if where == step.page]
    found = sorted((each for each in found if each.startswith(step.begins.removesuffix(" ..."))), key=len)
    assert found, step
    return found[0]


def text(step: Step) -> str:
    """The command as it is run."""
    command = shown(step)
    if command.endswith(" ..."):
        command = re.sub(r"( '?\[[^']*\]'?| [A-Z]+)* \.\.\.$", "", command) + f" {step.more}"
    command = re.sub(r"'([^']*\$\(.*?\))'", r'"\1"', command)  # what a shell is to put in
    return command.replace("/etc/saps/", "").replace("/var/lib/saps/", "")


def script(scene: Scene) -> str:
    lines = [BEGIN, scene.before]
    for step in scene.steps:
        how = "" if step.given.endswith("|") else "serve " if step.serves else "succeed "
        lines.append(f"{step.given} {how}{text(step)}")
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
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
