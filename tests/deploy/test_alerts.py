"""The alert rules of deploy/: each fires once, on metrics that there are, and the shipped Prometheus loads them."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = yaml.safe_load((DEPLOY / "prometheus-rules.yml").read_text())["groups"][0]["rules"]
TIMEOUT = 60.0
BROKER = 'job="saps", instance="b1:8080"'
FIRED: dict[str, dict[str, str]] = {
    "SapsBrokerDown": {f"up{{{BROKER}}}": "1 0x20"},
    "SapsBrokerAway": {f"saps_brokers_away{{{BROKER}}}": "0 1x20"},
    "SapsClockWrong": {f'saps_clock_ahead_seconds{{{BROKER}, broker="b3"}}': "-5x20"},
    "SapsNotReady": {f"saps_ready{{{BROKER}}}": "1 0x20"},
    "SapsPublishersHeld": {f'saps_publishers_held{{{BROKER}, by="links"}}': "0 1x20"},
    "SapsMessagesDropped": {f"saps_messages_dropped_total{{{BROKER}}}": "0+60x20"},
    "SapsMissedDropped": {f"saps_missed_dropped_total{{{BROKER}}}": "0x8 5x20"},
    "SapsClientsRefused": {f"saps_clients_refused_total{{{BROKER}}}": "0+600x20"},
    "SapsLoginsRefused": {f'saps_logins_refused_total{{{BROKER}, why="password"}}': "0+60x20"},
    "SapsPublicationsSlow": {
        f'saps_publication_latency_seconds_bucket{{{BROKER}, le="1"}}': "0+10x20",
        f'saps_publication_latency_seconds_bucket{{{BROKER}, le="2"}}': "0+100x20",
        f'saps_publication_latency_seconds_bucket{{{BROKER}, le="+Inf"}}': "0+100x20",
    },
    "SapsCertificateEnds": {f'saps_certificate_end_timestamp_seconds{{{BROKER}, of="links"}}': "100000x20"},
    "SapsReloadFailed": {f'saps_reload_successful{{{BROKER}, what="access"}}': "1 0x20"},
    "SapsRecordsDamaged": {f"saps_storage_records_damaged{{{BROKER}}}": "0 1x20"},
    "SapsStorageOlder": {f"saps_storage_transactions_missing{{{BROKER}}}": "0 7x20"},
    "SapsUpstreamAway": {f"saps_upstream_connected{{{BROKER}}}": "1 0x20"},
    "SapsFilesShort": {f"process_open_fds{{{BROKER}}}": "950x20", f"process_max_fds{{{BROKER}}}": "1000x20"},
    "SapsNoDecision": {
        'saps_monitor_last_decision_timestamp_seconds{instance="m:9"}': "0x20",
        'saps_monitor_window_seconds{instance="m:9"}': "60x20",
    },
}
"""What is scraped once a minute until the alert fires, by the alert."""
WELL = {
    f"up{{{BROKER}}}": "1x20", f"saps_brokers_away{{{BROKER}}}": "0x20", f"saps_ready{{{BROKER}}}": "1x20",
    f"saps_messages_dropped_total{{{BROKER}}}": "7x20", f'saps_reload_successful{{{BROKER}, what="access"}}': "1x20",
    f'saps_certificate_end_timestamp_seconds{{{BROKER}, of="links"}}': "1000000x20",
    f"saps_upstream_connected{{{BROKER}}}": "1x20",
}  # fmt: skip
"""A broker without a trouble."""


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian package prometheus)")
    return found


def fires(folder: Path, series: dict[str, str], alerts: list[str]) -> None:
    """After 15 minutes of these samples just these alerts fire; raises if not."""
    shutil.copy(DEPLOY / "prometheus-rules.yml", folder)
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "15m",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in alerts],
            }
        ],
    }
    file = folder / "fires.yml"
    file.write_text(yaml.safe_dump({"rule_files": ["prometheus-rules.yml"], "tests": [test]}))
    done = subprocess.run(
        [tool("promtool"), "test", "rules", file], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", [rule["alert"] for rule in RULES])
def test_each_alert_fires(name: str, tmp_path: Path) -> None:
    fires(tmp_path, FIRED[name], [name])


def test_a_mesh_without_trouble_raises_none(tmp_path: Path) -> None:
    fires(tmp_path, WELL, [])


def test_alerts_ask_for_metrics_that_are_on_the_page() -> None:
    page = (DEPLOY.parent / "docs/metrics.md").read_text()
    asked = {name for rule in RULES for name in re.findall(r"\bsaps_[a-z_]+", rule["expr"])}
    for name in asked - {"saps_monitor_last_decision_timestamp_seconds", "saps_monitor_window_seconds"}:
        assert f"| `{name.removesuffix('_bucket')}` |" in page, name


def test_the_shipped_prometheus_loads_them(tmp_path: Path) -> None:
    """The real one, on a free port, with the shipped configuration."""
    program = tool("prometheus")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        program, f"--config.file={DEPLOY}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            answer = rules_of(f"http://127.0.0.1:{port}/api/v1/rules", process)
        finally:
            process.terminate()
    (group,) = json.loads(answer)["data"]["groups"]
    assert [rule["name"] for rule in group["rules"]] == [rule["alert"] for rule in RULES]
    assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}


def rules_of(url: str, process: subprocess.Popen[bytes]) -> bytes:
    """The answer as soon as it listens."""
    ends = time.monotonic() + TIMEOUT
    while True:
        assert process.poll() is None, "it has ended"
        try:
            with urlopen(url, timeout=5) as response:
                found: bytes = response.read()
                return found
        except (URLError, OSError):
            assert time.monotonic() < ends
            time.sleep(0.1)
