"""`/metrics`, `/healthz`, `/readyz`, and the Grafana board, which asks for nothing that is not there."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import WSServerHandshakeError
from prometheus_client.parser import text_string_to_metric_families

import saps
from saps.frontend.mqtt.driver.access_files import edit_users
from saps.frontend.mqtt.systree import SysTree
from tests.batches import frame as publication
from tests.frontend.web.conftest import TIMEOUT, Site, Start, authorization
from tests.frontend.web.test_web_mesh import mesh_of
from tests.frontend.web.test_web_topics import subscribed

BOARD = Path(__file__).resolve().parents[3] / "deploy/grafana/saps-brokers.json"


async def metrics(site: Site) -> dict[str, list[Any]]:
    async with site.session.get(f"{site.url}/metrics") as response:
        assert response.status == 200
        families = text_string_to_metric_families(await response.text())
        return {sample.name: [*family.samples] for family in families for sample in family.samples}


def value(found: dict[str, list[Any]], name: str) -> float:
    (sample,) = found[name]
    return float(sample.value)


async def test_metrics_count_what_has_happened_and_have_no_label_that_grows(site: Site) -> None:
    before = await metrics(site)
    for number in range(20):
        await subscribed(site, f"a/{number}")
        await site.publish(f"a/{number}", b"x", qos=1)
    after = await metrics(site)
    assert value(after, "saps_messages_published_total") - value(before, "saps_messages_published_total") == 20
    assert value(after, "saps_messages_delivered_total") - value(before, "saps_messages_delivered_total") == 20
    assert value(after, "saps_subscriptions") == 20
    assert {name: len(samples) for name, samples in after.items()} == {n: len(s) for n, s in before.items()}
    labels = {(name, key) for name, samples in after.items() for sample in samples for key in sample.labels}
    assert {key for name, key in labels if name.startswith("saps_")} <= {
        "broker",
        "cluster",
        "version",
        "modules",
        "by",
        "mode",
        "what",
        "why",
        "of",
        "le",
    }


async def test_openmetrics_is_given_to_whoever_asks_for_it(site: Site) -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    async with site.session.get(f"{site.url}/metrics", headers=accept) as response:
        assert response.content_type == "application/openmetrics-text"
        assert (await response.text()).endswith("# EOF\n")


def test_the_board_asks_for_metrics_that_are_there_and_for_all_of_them() -> None:
    listed = (BOARD.parents[2] / "docs/metrics.md").read_text()
    there = {*re.findall(r"^\| `(\w+)`", listed, re.MULTILINE), "saps_publication_latency_seconds_bucket"}
    board = json.loads(BOARD.read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    asked = {name for text in expressions for name in re.findall(r"\b(?:saps|process)_[a-z_]+", text)}
    assert {name for name in asked if name.startswith("saps_")} <= there
    assert there - asked == {"saps_publication_latency_seconds"}, "a metric is on no panel"
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


async def test_a_broker_that_cannot_serve_says_why_and_lives(site: Site) -> None:
    async def status(path: str) -> tuple[int, str]:
        async with site.session.get(site.url + path) as response:
            return response.status, await response.text()

    assert await status("/healthz") == (200, "ok\n")
    assert await status("/readyz") == (200, "ready\n")
    site.broker.server.frontend.storage.broken = True
    assert (await status("/readyz"))[0] == 503
    assert "stored" in (await status("/readyz"))[1]
    assert (await status("/healthz"))[0] == 200


async def test_what_is_kept_for_brokers_taken_for_dead_is_told_everywhere(site: Site) -> None:
    kept = site.broker.mesh.node.delivery.multicast.missed
    for seq in (1, 2):
        kept.append(0.0, publication("t", seq, 0, bytes(50), 1), [()], [])
    kept.dropped = 3
    expected = {"messages": 2, "bytes": kept.bytes, "dropped": 3}
    assert 100 < kept.bytes < 300
    found = await metrics(site)
    assert value(found, "saps_missed_messages") == expected["messages"]
    assert value(found, "saps_missed_bytes") == expected["bytes"]
    assert value(found, "saps_missed_dropped_total") == expected["dropped"]
    (row,) = (await site.json("/v1/brokers"))["brokers"]
    assert {name: row[f"missed_{name}"] for name in expected} == expected
    status = site.broker.server.frontend.status
    assert isinstance(status, SysTree)
    told = status.values()
    assert {name: int(told[f"$SYS/saps/missed/{name}"]) for name in expected} == expected
    kept.end()
    assert value(await metrics(site), "saps_missed_messages") == 0


async def test_who_is_turned_away_is_counted_and_said(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edit_users(tmp_path / "passwords", "ann", b"secret")
    site = await start(auth__passwords=tmp_path / "passwords")
    for _ in range(2):
        async with site.session.get(f"{site.url}/v1/brokers", headers=authorization(("ann", "guess"))) as response:
            assert response.status == 401
    page = {"Origin": "https://elsewhere.example"}
    for path in ("/v1/brokers", "/v1/topics/a"):
        async with site.session.get(site.url + path, headers=page) as response:
            assert response.status == 403
    with pytest.raises(WSServerHandshakeError):
        await site.session.ws_connect(f"{site.url}/mqtt", headers=page, protocols=["mqtt"])
    found = await metrics(site)
    refused = {sample.labels["why"]: sample.value for sample in found["saps_logins_refused_total"]}
    assert refused == {"password": 2.0, "backed_off": 0.0, "busy": 0.0, "unavailable": 0.0}
    assert value(found, "saps_origins_refused_total") == 3
    told = [record.getMessage() for record in caplog.records if "web.origins" in record.getMessage()]
    assert told == [
        f"pages of origin https://elsewhere.example are refused at {site.url.removeprefix('http://')}: "
        "add it to web.origins if they are yours"
    ]


async def test_a_reload_that_is_refused_is_told_until_it_is_mended(start: Start, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "b.pem")
    edit_users(tmp_path / "passwords", "ann", b"secret")
    tls = {"tls__listen": "127.0.0.1:0", "tls__certificate": tmp_path / "b.pem"}
    site = await start(auth__passwords=tmp_path / "passwords", **tls)
    end = value(await metrics(site), "saps_certificate_end_timestamp_seconds")
    assert end > time.time()

    async def taken() -> float:
        reloading = site.broker.access.reload(site.broker.server.frontend, renewed)
        await reloading
        return value(await metrics(site), "saps_reload_successful")

    async def renewed(context: object) -> None:
        pass

    users = (tmp_path / "passwords").read_text()
    (tmp_path / "passwords").write_text("no line of a password file\n")
    assert await taken() == 0.0
    (tmp_path / "passwords").write_text(users)
    assert await taken() == 1.0


async def test_an_upstream_that_is_away_is_seen(start: Start) -> None:
    site = await start(upstream__url="mqtt://127.0.0.1:1")
    assert value(await metrics(site), "saps_upstream_connected") == 0.0
    (row,) = (await site.json("/v1/brokers"))["brokers"]
    assert row["upstream"] == "away"


async def test_the_time_until_all_have_confirmed_is_a_histogram(start: Start) -> None:
    sites = await mesh_of(start, 2)
    await subscribed(sites[1], "air/#")
    for _ in range(5):
        await sites[0].publish("air/x", b"x", qos=1)
    text = await (await sites[0].session.get(f"{sites[0].url}/metrics")).text()
    assert "saps_publication_latency_seconds_count 5.0" in text
    assert 'saps_publication_latency_seconds_bucket{le="+Inf"} 5.0' in text
    (waited,) = re.findall(r"^saps_publication_latency_seconds_sum (\S+)", text, re.MULTILINE)
    assert 0 < float(waited) < TIMEOUT


async def test_the_pages_are_served_from_a_package_behind_symbolic_links(tmp_path: Path) -> None:
    package, linked = Path(saps.__file__).parent, tmp_path / "saps"
    linked.mkdir()
    for each in package.iterdir():
        (linked / each.name).symlink_to(each)
    code = """
        import asyncio, sys
        from aiohttp.test_utils import make_mocked_request
        from saps.frontend.web import frontend
        from saps.frontend.web.http.problems import ProblemError

        def status(file):
            request = make_mocked_request("GET", "/static/" + file, match_info={"file": file})
            try:
                return asyncio.run(frontend._static(request)).status
            except ProblemError as error:
                return error.problem.status

        print(frontend.__file__, *map(status, ["app.js", "../frontend.py", "/etc/hosts", "x/../app.js"]))
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    assert said.decode().split() == [f"{linked}/frontend/web/frontend.py", "200", "404", "404", "200"]
