"""The Helm chart, rendered: by Helm where it is, and as it was rendered last, for machines that have no Helm.

``python -m tests.deploy.chart`` renders it anew, after every change of the chart. It needs ``helm``, or Helm as a
library
(``.venv/bin/uv pip install helm-python-sdk``), which is no dependency of the project (docs/decisions/110).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped,unused-ignore]

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "saps"
RENDERED = Path(__file__).with_name("rendered")
RELEASE, NAMESPACE = "city", "iot"
SEALED: dict[str, Any] = {"links": {"existingSecret": "saps-mesh"}}
CASES: dict[str, dict[str, Any]] = {
    "plain": {"links": {"plain": True}, "storage": {"enabled": False}},
    "sealed": SEALED,
    "all": SEALED
    | {
        "replicas": 5,
        "cluster": "tokyo/ward1",
        "auth": {"existingSecret": "saps-users"},
        "tls": {"existingSecret": "saps-tls"},
        "settings": {"priority.topics": "alert/#", "limits.maximum_connections": 20000, "overlay.dead_after": 2.5},
        "env": {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer x"},
        "storage": {"size": "10Gi", "storageClass": "fast"},
        "service": {"type": "LoadBalancer", "annotations": {"a": "b"}, "mqtt": 11883},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "basicAuthSecret": "scraper"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "edge", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
    },
}
Objects = list[dict[str, Any]]


class NoHelmError(Exception):
    """There is no Helm here."""


class RefusedError(Exception):
    """Helm refuses these values. The text says why."""


def rendered(values: dict[str, Any]) -> Objects:
    """The objects of a release with these values, by Helm, in the order of their kinds and names. Raises `NoHelmError`
    or `RefusedError`."""
    if (helm := shutil.which("helm")) is not None:
        found = list(yaml.safe_load_all(_by_command(helm, values)))
    elif find_spec("helm_python") is not None:
        found = [each for text in _by_library(values) for each in yaml.safe_load_all(text)]
    else:
        raise NoHelmError
    return sorted((each for each in found if each), key=lambda each: (each["kind"], each["metadata"]["name"]))


def _by_command(helm: str, values: dict[str, Any]) -> str:
    command = [helm, "template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--values", "-"]
    done = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RefusedError(done.stderr)
    return done.stdout


def _by_library(values: dict[str, Any]) -> list[str]:
    import helm_python  # type: ignore[import-not-found,unused-ignore]

    try:
        with helm_python.Chart.load(CHART) as chart:
            chart.validate_schema(values)
            files = chart.render(values, name=RELEASE, namespace=NAMESPACE)
    except Exception as error:  # the library has many
        raise RefusedError(str(error)) from error
    return [text for name, text in files.items() if name.endswith(".yaml")]


def digest() -> str:
    """Of what is rendered: the chart's files and the cases."""
    found = sha256(json.dumps(CASES, sort_keys=True).encode())
    for file in sorted(each for each in CHART.rglob("*") if each.is_file() and each.suffix != ".pyc"):
        found.update(f"{file.relative_to(CHART)}\0".encode() + sha256(file.read_bytes()).digest())
    return found.hexdigest()[:16]


def head() -> str:
    """The first line of a file of `RENDERED` that is up to date."""
    return f"# Rendered from the chart {digest()} by `python -m tests.deploy.chart`."


def last(case: str) -> Objects:
    """A case as it was rendered last."""
    return list(yaml.safe_load_all((RENDERED / f"{case}.yaml").read_text()))


def main() -> None:
    RENDERED.mkdir(exist_ok=True)
    for case, values in CASES.items():
        text = yaml.safe_dump_all(rendered(values), sort_keys=True, width=120)
        (RENDERED / f"{case}.yaml").write_text(f"{head()}\n{text}")


if __name__ == "__main__":
    main()
