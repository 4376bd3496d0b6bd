"""The smart city on the lab: the play on real switches, how it ends early, and what it says where there is no lab."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples.lab_city.acts import Play
from examples.lab_city.result import Load, outcome, sound
from examples.smart_city.recorder import Tally
from examples.smart_city.summary import counts
from examples.smart_city.watching import status_lines
from lab import Lab, obstacle
from lab.namespace import NAMED

COMMAND = [sys.executable, "-m", "examples.lab_city", "--plain"]
FIELDS = {
    "published", "delivered", "lost", "duplicated", "out_of_order", "inter_cluster_packets_per_publication", "max_hops",
    "p50_ms", "p99_ms",
}  # fmt: skip
TIMEOUT = 300.0


def test_a_fault_in_any_act_is_found() -> None:
    fine, faulty = Tally(), Tally()
    for tally in (fine, faulty):
        tally.published = tally.expected = 3
        tally.delivered = 3
    faulty.duplicated = 1
    good = outcome(counts(fine), Load(3, 12.0, 3000.0))
    assert (good.inter_cluster_packets_of_any_kind, good.inter_cluster_bytes) == (4.0, 1000.0)
    assert sound({"ALM": good, "OFM": good})
    assert not sound({"ALM": good, "OFM": outcome(counts(faulty), Load(3, 0.0, 0.0))})


def test_the_scene_is_on_the_hosts_of_the_lab(tmp_path: Path) -> None:
    play = Play(Lab("tree:3x2", directory=tmp_path), 1.0, 1, 1, lambda run, title: status_lines(run))
    assert len(play.topics) == 6 * 17 + 3 * 3
    assert {topic.split("/")[1] for topic in play.topics} == {"c1", "c2", "c3"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
def test_without_root_it_says_so() -> None:
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", *COMMAND], capture_output=True, text=True, check=False
    )
    if "Permission denied" in done.stderr or "No module named 'examples'" in done.stderr:
        pytest.skip("nobody may not read the interpreter, or this folder")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("lab_city: the lab makes network namespaces and needs root")


@pytest.mark.network
@pytest.mark.xdist_group("processes")
@pytest.mark.timeout(TIMEOUT)
class TestOnSwitches:
    @pytest.fixture(autouse=True)
    def _possible(self) -> None:
        if why := obstacle():
            pytest.skip(why)

    def test_all_acts_lose_nothing_and_ofm_needs_no_more_hops(self, tmp_path: Path) -> None:
        file = tmp_path / "result.json"
        options = ["--topology", "tree:2x1", "--seconds", "1", "--moves", "2", "--json", str(file)]
        done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        result = json.loads(file.read_text())
        assert list(result) == ["ALM", "ALM-LA", "OFM", "switching"]
        for act in result.values():
            assert act.keys() >= FIELDS
            assert act["lost"] == act["duplicated"] == act["out_of_order"] == 0
            assert act["delivered"] > act["published"] > 0
        # Two clusters: every copy crosses the two links between them once, whatever the way.
        assert {result[act]["max_hops"] for act in ("ALM", "ALM-LA", "OFM")} == {2}
        assert (result["switching"]["moves"], result["switching"]["topics"]) == (2, 40)

    def test_ctrl_c_ends_it_in_order_and_leaves_nothing(self) -> None:
        process = subprocess.Popen([*COMMAND, "--topology", "tree:2x1"], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines = iter(process.stdout)
        assert any("published" in line for line in lines)
        process.send_signal(signal.SIGINT)
        rest = "".join(lines)
        assert process.wait(TIMEOUT) == 130
        assert "ALM " in rest
        assert not list(NAMED.glob(f"lab{process.pid}.*"))
