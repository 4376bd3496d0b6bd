"""Writes docs/metrics.md from what a broker exposes.

Usage: python scripts/metrics_page.py [--check]. With --check it writes nothing; exit status 1 if it would.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import trustme
from prometheus_client import Metric

from saps.broker.broker import Broker
from saps.broker.metrics import samples
from saps.config import BrokerSettings
from saps.config.sources_io import load
from saps.frontend.web.http.exposition import BrokerCollector

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
HEAD = """# Metrics

A broker's `/metrics` ([monitoring](web.md#monitoring)), as `scripts/metrics_page.py` finds them. Process metrics
(`process_...`) come with them. Names with `_total` are counters, all others gauges, but for one histogram. No label
grows with topics or clients. The [alarms](running.md#alarms) use them.

| metric | what it is |
| --- | --- |
"""
ANY = "127.0.0.1:0"


def settings(folder: Path) -> BrokerSettings:
    """Of a broker that has everything there is, with its files."""
    pem = folder / "b.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
    (folder / "secret").write_text("x" * 40)
    (folder / "secret").chmod(0o600)
    (folder / "policy.toml").write_text("version = 1\n")
    given = {
        "name": "b", "mqtt": ANY, "overlay.listen": ANY, "web.listen": ANY, "web.tls": "true", "log_level": "error",
        "tls.certificate": str(pem), "links.secret_file": f"{folder}/secret", "policy.file": f"{folder}/policy.toml",
        "storage.file": f"{folder}/b.db",
        "ofm.listen": ANY, "ofm.mac": "02:00:00:00:00:01", "upstream.url": "mqtt://127.0.0.1:1",
    }  # fmt: skip
    return load(given, {}).settings


async def families(broker: Broker) -> list[Metric]:
    """What it exposes once it has started."""
    await broker.start()
    try:
        about = {"broker": "b", "cluster": "c", "version": "v", "modules": "m"}
        return list(BrokerCollector(lambda: samples(broker, ready=True, origins_refused=0), about).collect())
    finally:
        await broker.stop()


def rows(found: list[Metric]) -> Iterator[str]:
    for family in found:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        keys = sorted({key for sample in family.samples for key in sample.labels} - {"le"})
        values = sorted({sample.labels[key] for sample in family.samples for key in keys})
        label = " Labels: " + ", ".join(f"`{key}`" for key in keys) + "." if keys else ""
        if len(keys) == 1:
            label = f" `{keys[0]}`: {', '.join(values)}."
        yield f"| `{name}` | {family.documentation}{label} |\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        wanted = settings(Path(folder))

        async def found() -> list[Metric]:
            return await families(Broker(wanted))

        page = HEAD + "".join(rows(asyncio.run(found())))
    if "--check" not in sys.argv:
        PAGE.write_text(page)
    elif not PAGE.exists() or PAGE.read_text() != page:
        sys.exit(f"{PAGE.name} is not what a broker exposes: python scripts/metrics_page.py")


if __name__ == "__main__":
    main()
