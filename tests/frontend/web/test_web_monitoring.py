"""`/metrics`, `/healthz`, `/readyz`, and the Grafana board, which asks for nothing that is not there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from saps.overlay.keys import BrokerRef
from saps.overlay.missed import EACH
from tests.batches import frame as publication
from tests.frontend.web.conftest import Site, Start
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
    }


async def test_openmetrics_is_given_to_whoever_asks_for_it(site: Site) -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    async with site.session.get(f"{site.url}/metrics", headers=accept) as response:
        assert response.content_type == "application/openmetrics-text"
        assert (await response.text()).endswith("# EOF\n")


async def test_the_board_asks_for_metrics_that_are_there(start: Start) -> None:
    site = await start(ofm__listen="127.0.0.1:0", ofm__mac="02:00:00:00:00:01")
    there = set(await metrics(site))
    board = json.loads(BOARD.read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    asked = {name for text in expressions for name in re.findall(r"\b(?:saps|process)_[a-z_]+", text)}
    assert asked <= there
    assert {name for name in there if name.startswith("saps_")} <= asked, "a metric is on no panel"
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


async def test_a_broker_that_cannot_serve_says_why_and_lives(site: Site) -> None:
    async def status(path: str) -> tuple[int, str]:
        async with site.session.get(site.url + path) as response:
            return response.status, await response.text()

    assert await status("/healthz") == (200, "ok\n")
    assert await status("/readyz") == (200, "ready\n")
    site.broker.server.frontend.broken = True
    assert (await status("/readyz"))[0] == 503
    assert "stored" in (await status("/readyz"))[1]
    assert (await status("/healthz"))[0] == 200


async def test_what_is_kept_for_brokers_taken_for_dead_is_told_everywhere(site: Site) -> None:
    kept, gone = site.broker.mesh.node.multicast.missed, BrokerRef("gone", 1, "gone:1", "c")
    one = publication("t", 1, 0, bytes(50), 1)
    kept.died(gone, [one, one])
    kept.dropped = 3
    expected = {"messages": 2, "bytes": 2 * (50 + EACH), "dropped": 3}
    found = await metrics(site)
    assert value(found, "saps_missed_messages") == expected["messages"]
    assert value(found, "saps_missed_bytes") == expected["bytes"]
    assert value(found, "saps_missed_dropped_total") == expected["dropped"]
    (row,) = (await site.json("/v1/brokers"))["brokers"]
    assert {name: row[f"missed_{name}"] for name in expected} == expected
    status = site.broker.server.frontend.status
    assert status is not None
    told = status.values()
    assert {name: int(told[f"$SYS/saps/missed/{name}"]) for name in expected} == expected
    kept.back(gone)
    assert value(await metrics(site), "saps_missed_messages") == 0
