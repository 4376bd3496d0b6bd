"""The Helm chart: as it was rendered last, checked by Kubernetes' schemas and by SAPS's own parser; rendered anew where
there is a Helm."""

from __future__ import annotations

import importlib.util
import json
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest

from saps.config import Address, BrokerSettings
from saps.config.sources_io import load
from tests.deploy.chart import CASES, CHART, RENDERED, SEALED, NoHelmError, Objects, RefusedError, head, last, rendered


def of_kind(objects: Objects, kind: str) -> dict[str, Any]:
    (found,) = (each for each in objects if each["kind"] == kind)
    return found


def settings_of(objects: Objects) -> BrokerSettings:
    """What the first pod's broker reads out of its environment, once it has been started (`start.py`)."""
    (container,) = of_kind(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    environment = {each["name"]: each.get("value", "city-0") for each in container["env"]}
    started = {name: value for name, value in environment.items() if name.startswith("SAPS_")}
    started["SAPS_OVERLAY"] = f"{environment['PEERS'].split(',')[0]}:{environment['OVERLAY_PORT']}"
    if "MESH_SECRET" in environment:
        started["SAPS_LINKS__SECRET_FILE"] = "/run/saps/mesh.secret"
    return load({}, started).settings


@pytest.mark.parametrize("case", CASES)
def test_what_was_rendered_last_is_what_the_chart_says_now(case: str) -> None:
    """Else: ``python -m tests.deploy.chart``."""
    assert (RENDERED / f"{case}.yaml").read_text().partition("\n")[0] == head()
    with suppress(NoHelmError):
        assert rendered(CASES[case]) == last(case)


@pytest.mark.parametrize("case", CASES)
def test_kubernetes_understands_every_object(case: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    objects = last(case)
    assert sorted(each["kind"] for each in objects) == sorted(
        ["ConfigMap", "PodDisruptionBudget", "Service", "Service", "StatefulSet"] + ["ServiceMonitor"] * (case == "all")
    )
    for each in objects:
        if each["kind"] != "ServiceMonitor":  # the Prometheus operator's own
            validate.validate(each, validate.latest_version(), strict=True)


@pytest.mark.parametrize("case", CASES)
def test_the_broker_of_a_pod_has_settings_without_fault_and_the_ports_that_are_told(case: str) -> None:
    objects = last(case)
    settings = settings_of(objects)
    (container,) = of_kind(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert (settings.name, settings.mqtt.port, settings.overlay.listen) == (
        "city-0",
        ports["mqtt"],
        Address("city-0.city-brokers.iot.svc", ports["overlay"]),
    )
    assert [address.port for address in settings.web.listen] == [ports["web"]]
    assert [address.port for address in settings.tls.listen] == ([ports["mqtts"]] if case == "all" else [])
    scheme = "HTTPS" if settings.web.tls else "HTTP"
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert {(probe["port"], probe["scheme"]) for probe in probes} == {("web", scheme)}
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    for file in (settings.storage.file, settings.auth.passwords, settings.auth.acl, settings.tls.certificate):
        assert not file or str(Path(file).parent) in mounts
    if case == "all":
        assert (settings.cluster, settings.limits.maximum_connections) == ("tokyo/ward1", 20000)
        assert (settings.priority.topics, settings.overlay.dead_after) == (("alert/#",), 2.5)
    targets = {port["targetPort"] for each in objects if each["kind"] == "Service" for port in each["spec"]["ports"]}
    assert targets <= ports.keys()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (SEALED | {"replicas": 0}, "replicas"),
        (SEALED | {"replica": 3}, "replica"),
        (SEALED | {"cluster": "tokyo ward"}, "cluster"),
        ({"links": {"existing": "saps-mesh"}}, "existing"),
    ],
)
def test_wrong_values_are_refused_by_the_schema_and_named(values: dict[str, Any], said: str) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert all(jsonschema.Draft7Validator(schema).is_valid(case) for case in CASES.values())
    (fault,) = jsonschema.Draft7Validator(schema).iter_errors(values)
    assert said in f"{fault.json_path} {fault.message}"


def test_a_mesh_without_sealed_links_must_be_meant() -> None:
    try:
        with pytest.raises(RefusedError, match=r"links\.existingSecret"):
            rendered({})
    except NoHelmError:
        pytest.skip("Helm is not installed (helm, or the Python package helm-python-sdk)")


# --- start.py -----------------------------------------------------------------------------------------------


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script. What it would become is left in `became`: settings by variable."""
    spec = importlib.util.spec_from_file_location("start", CHART / "files" / "start.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.os, "environ", {})
    monkeypatch.setattr(module.os, "execvp", lambda *command: None)
    return module


def became(start: ModuleType, number: int, known: str, serving: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Pod `number` of three starts while the names of some are `known` and some are `serving`."""
    monkeypatch.setattr(start, "known", lambda host: host[5] in known + str(number))
    monkeypatch.setattr(start, "serves", lambda host, port: host[5] in serving)
    peers = ",".join(f"city-{n}.brokers.iot.svc" for n in range(3))
    start.os.environ.update({"PEERS": peers, "OVERLAY_PORT": "7300", "WEB_PORT": "8080", "SAPS_NAME": f"city-{number}"})
    start.main()
    found: dict[str, str] = start.os.environ
    assert found["SAPS_OVERLAY"] == f"city-{number}.brokers.iot.svc:7300"
    return found


@pytest.mark.parametrize(
    ("number", "known", "serving", "joins"),
    [
        (0, "", "", ""),  # the very first start
        (0, "12", "", ""),  # all were away at once
        (0, "12", "12", "12"),  # a restart
        (0, "12", "2", "2"),
        (1, "0", "0", "0"),
        (1, "02", "", "02"),  # the first one begins, meanwhile this one asks
        (2, "", "", "0"),  # names are not known yet
    ],
)
def test_one_mesh_begins_whoever_starts_when(
    number: int, known: str, serving: str, joins: str, start: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = became(start, number, known, serving, monkeypatch)
    expected = ",".join(f"city-{n}.brokers.iot.svc:7300" for n in joins)
    assert found.get("SAPS_JOIN", "") == expected


def test_a_peer_serves_when_it_says_so(start: ModuleType) -> None:
    with answering(200) as ready, answering(503) as busy:
        assert start.serves("127.0.0.1", str(ready))
        assert not start.serves("127.0.0.1", str(busy))
    assert not start.serves("127.0.0.1", str(ready))


class answering:  # noqa: N801  # reads as the block's condition
    """An HTTP server that answers every request with this status."""

    def __init__(self, status: int) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # its name in the library
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self) -> int:
        self._thread.start()
        return self._server.server_port

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
