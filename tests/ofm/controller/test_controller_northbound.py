"""The northbound over HTTP: who may ask, what is answered, and that the document says so. And the command itself."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import aiohttp
import msgspec
import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from saps.config import Address, SettingError
from saps.ofm.controller.controller import Controller
from saps.ofm.controller.driver import request_handler as request_handler
from saps.ofm.controller.driver.service import ControllerService
from saps.ofm.controller.driver.settings import ControllerSettings
from saps.ofm.controller.events import HostMoved, Intent, Settled, SwitchUp, TablesRead
from saps.ofm.controller.program import OfcProgram, northbound_tls, tls
from saps.ofm.flows.tables import Tables
from saps.ofm.network.topology import BrokerAddress, Link, Port
from saps.ofm.northbound.driver import server
from saps.ofm.northbound.driver.client import Client, NorthboundError, UnreachableError
from saps.ofm.northbound.driver.server import NorthboundServer
from saps.ofm.northbound.schema import OfmRequest, OfmState, Status
from saps.ofm.openflow.driver.switch import Channel, Switch
from saps.ofm.openflow.events import Ready
from saps.ofm.openflow.values import Features
from tests.ofm.controller.worlds import rules

BROKERS = [BrokerAddress("10.0.0.1", "02:00:00:00:00:01", 7000), BrokerAddress("10.0.0.2", "02:00:00:00:00:02", 7000)]


@asynccontextmanager
async def northbound(
    token: str = "", context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, ControllerService]]:
    """A northbound of a controller without switches."""
    service = ControllerService(Controller(rules()), grace=1.0)
    server = NorthboundServer(service, ip_version=4, token=token, tls=context)
    port = await server.start("127.0.0.1", 0)
    try:
        yield f"{'http' if context is None else 'https'}://127.0.0.1:{port}", service
    finally:
        await server.close()


async def test_metrics_and_health_are_there() -> None:
    async with northbound("secret") as (url, service), aiohttp.ClientSession() as session:
        service.handle(SwitchUp(1, {1: True}))
        await service.intent("a", Intent(frozenset(BROKERS)))
        async with session.get(url + "/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        async with session.get(url + "/metrics") as answer:
            assert answer.status == 401
        async with session.get(url + "/metrics", headers={"Authorization": "Bearer secret"}) as answer:
            text = await answer.text()
    assert 'saps_controller_ofms{status="constructing"} 1.0' in text
    assert 'saps_controller_switches{state="away"} 1.0' in text
    assert 'saps_controller_flow_budget{switch="0000000000000001"} 1000.0' in text


async def test_a_network_with_cycles_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    service = ControllerService(Controller(rules()), grace=1.0)
    ring = [Link.of(Port(a, 1), Port(b, 2)) for a, b in ((1, 2), (2, 3), (3, 1))]
    for dpid in (1, 2, 3):
        service.handle(SwitchUp(dpid, {1: True, 2: True}))
    for link in ring[:2]:
        service.link_up(link)
    service.handle(Settled({1, 2, 3}, set(ring[:2])))
    assert "cycles" not in caplog.text
    service.link_up(ring[2])
    service.link_up(ring[2])
    assert caplog.text.count("the network has cycles (links beyond a tree: 1)") == 1
    service.link_down(ring[0])
    service.link_up(ring[0])
    assert caplog.text.count("the network has cycles") == 2


async def test_a_switch_that_comes_and_goes_at_once_leaves_no_coroutine_behind() -> None:
    ready = Ready(Features(1, 0, 254), ("a maker", "a model"), ())
    service = ControllerService(Controller(rules()), grace=1.0)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        service.switch_up(Switch(cast(Channel, None), ready))
        service.switch_down(1)
        await asyncio.sleep(0)
        gc.collect()
    said = [str(warning.message) for warning in found]
    assert [each for each in said if "coroutine" in each] == []  # other tests' sockets may be collected here, too
    await service.close()


async def test_requests_are_idempotent_and_the_latest_wish_wins() -> None:
    async with northbound() as (url, _), Client(url) as client:
        assert (await client.get("a/b")).status is Status.NONE
        first = await client.put(OfmRequest("a/b", BROKERS))
        assert (first.status, first.reason) == (
            Status.CONSTRUCTING,
            "waiting for 02:00:00:00:00:01, 02:00:00:00:00:02",
        )
        assert await client.put(OfmRequest("a/b", BROKERS[::-1] * 2)) == first
        later = await client.put(OfmRequest("a/b", BROKERS[:1]))
        assert later.reason == "waiting for 02:00:00:00:00:01"
        assert later.version > first.version
        assert await client.list() == [later]
        assert (await client.delete("a/b")).status is Status.NONE
        assert (await client.delete("a/b")).status is Status.NONE
        assert await client.list() == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "detail"),
    [
        ("PUT", "/v1/ofms/a", b"{", 400, "Input data was truncated"),
        ("PUT", "/v1/ofms/a", b'{"brokers": []}', 400, "an OFM needs a broker"),
        (
            "PUT",
            "/v1/ofms/a",
            b'{"brokers": [{"ip": "239.0.0.1", "mac": "02:00:00:00:00:01", "port": 1}]}',
            400,
            "239.",
        ),
        ("PUT", "/v1/ofms/a", b'{"brokers": [{"ip": "fd00::1", "mac": "02:00:00:00:00:01", "port": 1}]}', 400, "IPv4"),
        (
            "PUT",
            "/v1/ofms/a",
            b'{"brokers": [{"ip": "127.0.0.1", "mac": "02:00:00:00:00:01", "port": 1}]}',
            400,
            "loopback",
        ),
        (
            "PUT",
            "/v1/ofms/a",
            b'{"brokers": [{"ip": "10.0.0.1", "mac": "02:00:00:00:00:01", "port": 1}],'
            b' "demand": {"messages": 1e200, "size": 1e200}}',
            400,
            "from 0 to 1e+15 bit/s",
        ),
        ("PUT", "/v1/ofms/a%2F%23", b'{"brokers": []}', 400, "wildcards"),
        ("GET", "/v1/ofms/a?wait=-1", None, 400, "wait must be"),
        ("GET", "/v1/nothing", None, 404, None),
        ("POST", "/v1/ofms", None, 405, None),
    ],
)
async def test_faults_are_problems(method: str, path: str, body: bytes | None, status: int, detail: str | None) -> None:
    async with northbound() as (url, _), aiohttp.ClientSession() as session:
        async with session.request(method, url + path, data=body) as response:
            assert (response.status, response.content_type) == (status, "application/problem+json")
            problem = await response.json(content_type=None)
        assert problem["status"] == status
        if detail is not None:
            assert detail in problem["detail"]


async def test_only_who_has_the_token_is_answered() -> None:
    async with northbound(token="secret") as (url, _):
        async with Client(url, token="secret") as client:
            assert await client.list() == []
        for wrong in ("Secret", "", None):
            async with Client(url, token=wrong) as client:
                with pytest.raises(NorthboundError, match="401"):
                    await client.put(OfmRequest("a", BROKERS))


@pytest.mark.parametrize("token", ["", "secret"])
async def test_only_who_has_a_certificate_or_the_token_is_answered(token: str, tmp_path: Path) -> None:
    ca, clients = trustme.CA(), trustme.CA()
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    clients.cert_pem.write_to_path(tmp_path / "clients.pem")
    (tmp_path / "token").write_text(token)
    settings = ControllerSettings(
        certificate=tmp_path / "server.pem",
        clients=tmp_path / "clients.pem",
        token_file=tmp_path / "token" if token else None,
    )

    def shown(authority: trustme.CA | None) -> ssl.SSLContext:
        context = ssl.create_default_context()
        ca.configure_trust(context)
        if authority is not None:
            authority.issue_cert("ofgate").configure_cert(context)
        return context

    async with northbound(token, northbound_tls(settings)) as (url, _):
        async with Client(url, tls=shown(clients)) as client:
            assert (await client.put(OfmRequest("a", BROKERS))).topic == "a"
        async with Client(url, tls=shown(None), token=token) as client:
            if token:
                assert len(await client.list()) == 1
            else:
                with pytest.raises(UnreachableError):
                    await client.list()
        async with Client(url, tls=shown(trustme.CA()), token=token) as client:
            with pytest.raises(UnreachableError):
                await client.list()
        async with Client(url, tls=shown(None)) as client:
            with pytest.raises(NorthboundError if token else UnreachableError):
                await client.list()


@pytest.mark.parametrize("prefix", ["", "openflow_"])
def test_certificates_that_cannot_be_used_are_named(prefix: str, tmp_path: Path) -> None:
    own, others = f"{prefix}certificate", f"{prefix}clients"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    good, bad = tmp_path / "server.pem", tmp_path / "bad.pem"
    bad.write_text("nothing")
    for files, setting, words in (
        ({others: good}, others, f"needs {own}"),
        ({own: tmp_path / "none"}, own, "No such file"),
        ({own: bad}, own, "cannot use"),
        ({own: good, others: bad}, others, "cannot use"),
    ):
        with pytest.raises(SettingError, match=words) as refused:
            tls(msgspec.structs.replace(ControllerSettings(), **files), own, others)
        assert refused.value.setting == setting
    assert tls(ControllerSettings(), own, others) is None


async def test_a_controller_that_is_not_there_is_unreachable() -> None:
    async with northbound() as (url, _):
        pass
    async with Client(url) as client:
        with pytest.raises(UnreachableError):
            await client.list()


@settings(max_examples=30)
@given(topic=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="+#\0"), min_size=1, max_size=20))
def test_every_topic_has_a_path_of_its_own(topic: str) -> None:
    async def ask() -> OfmState:
        async with northbound() as (url, _), Client(url) as client:
            await client.put(OfmRequest(topic, BROKERS))
            [state] = await client.list()
            return state

    assert asyncio.run(ask()).topic == topic


async def test_watching_tells_first_what_there_is_and_then_what_changes() -> None:
    async with northbound() as (url, _), Client(url) as client, Client(url) as other:
        await client.put(OfmRequest("a", BROKERS))
        async with asyncio.timeout(20):
            seen = aiter(other.watch())
            assert (await anext(seen)).topic == "a"
            changing = asyncio.ensure_future(anext(seen))
            await client.put(OfmRequest("b", BROKERS))
            assert (await changing).topic == "b"
            await client.delete("a")
            gone = await anext(seen)
            assert (gone.topic, gone.status) == ("a", Status.NONE)


async def test_the_document_describes_every_path_that_is_served() -> None:
    async with northbound() as (url, _), aiohttp.ClientSession() as session:
        async with session.get(url + "/openapi.json") as response:
            document = await response.json()
        assert document["openapi"].startswith("3.1")
        served = {("get", "/v1/ofms"), ("get", "/v1/changes"), ("get", "/v1/topology"), ("get", "/v1/budgets")}
        served |= {(method, "/v1/ofms/{topic}") for method in ("get", "put", "delete")}
        served |= {
            ("get", "/v1/addresses/{address}"),
            ("get", "/v1/ofms/{topic}/stats"),
            ("get", "/v1/ports"),
            ("get", "/healthz"),
            ("get", "/metrics"),
        }
        assert {(method, path) for path, item in document["paths"].items() for method in item} == served
        for method, path in served - {("put", "/v1/ofms/{topic}")}:
            async with session.request(method, url + path.replace("{topic}", quote("a/b", safe=""))) as response:
                assert str(response.status) in document["paths"][path][method]["responses"]
        for reference in references(document):
            name = reference.removeprefix("#/components/schemas/")
            assert name in document["components"]["schemas"]


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        return [value for key, value in node.items() if key == "$ref"] + [
            found for value in node.values() for found in references(value)
        ]
    return [found for value in node for found in references(value)] if isinstance(node, list) else []


async def test_budgets_and_topology_are_told() -> None:
    async with northbound() as (url, service), Client(url) as client:
        service.handle(SwitchUp(7, {1: True}))
        service.handle(TablesRead(7, Tables()))
        await client.put(OfmRequest("a", BROKERS[:1]))
        service.handle(HostMoved(BROKERS[0].mac, Port(7, 1)))
        [budget] = await client.budgets()
        assert (budget.dpid, budget.entries.used, budget.entries.budget) == ("0000000000000007", 1, 1000)
        assert (await client.topology()).where(BROKERS[0]) == Port(7, 1)


def controller(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "saps.cli.controller", "--listen", "127.0.0.1:0", "--northbound", "127.0.0.1:0"]
    return subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_sigterm_ends_it_in_order() -> None:
    with controller() as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready listen=127.0.0.1:")
        process.terminate()
        assert process.wait(120) == 0


@pytest.mark.parametrize("setting", ["--listen", "--northbound"])
def test_a_port_in_use_is_one_line_and_status_2(setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        out, error = controller(setting, address).communicate(timeout=120)
    assert out == ""
    [line] = error.splitlines()
    name = setting.removeprefix("--")
    assert line == f"saps: controller.{name} (flag {setting}): cannot listen on {address}: Address already in use"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["--ofm-range", "224.0.0.0/24:5000"],
            "saps: controller.ofm_range (flag --ofm-range): OFM range '224.0.0.0/24:5000'",
        ),
        (
            ["--flow-budget", "-1"],
            "saps: controller.flow_budget (flag --flow-budget): '-1' does not fit: ",
        ),
        (["--loopback", "fd00::1"], "saps: controller.loopback (flag --loopback): fd00::1 is IPv6"),
        (
            ["--state", "/nonexistent/ofc.json"],
            "saps: controller.state (flag --state): cannot write /nonexistent",
        ),
    ],
)
def test_a_setting_that_cannot_be_used_is_one_line(arguments: list[str], line: str) -> None:
    process = controller(*arguments)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 2
    assert error.startswith(line), error
    assert len(error.splitlines()) == 1


def test_a_state_file_that_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ofc.json"
    file.write_text("{}")
    process = controller("--state", str(file))
    _, error = process.communicate(timeout=120)
    assert (process.returncode, error.startswith("saps: controller.state (flag --state): cannot read")) == (2, True)


async def test_what_is_remembered_of_ofms_that_are_gone_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for changes later than that is told everything."""
    monkeypatch.setattr(request_handler, "REMEMBERED", 5)
    async with northbound() as (_, service):
        begun = await service.changes("", 0)
        for number in range(20):
            await service.intent(f"t/{number}", Intent(frozenset(BROKERS)))
            await service.intent(f"t/{number}", None)
        assert len(service._states) == 5
        assert (await service.changes(begun.run, begun.revision)).complete
        late = await service.changes(begun.run, 2 * (20 - 5))
        assert (late.complete, [ofm.topic for ofm in late.ofms]) == (False, [f"t/{number}" for number in range(15, 20)])


async def test_requests_are_taken_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer lines than those of aiohttp are read, as topics may be 64 KiB, and smaller bodies."""
    monkeypatch.setattr(server, "LONGEST_LINE", 30_000)
    monkeypatch.setattr(server, "LARGEST_BODY", 10_000)
    body = msgspec.json.encode({"brokers": BROKERS})
    async with northbound() as (url, _), aiohttp.ClientSession() as session:

        async def put(topic: int, size: int) -> int:
            """The answer to an intent with a topic and a body of so many bytes."""
            async with session.put(f"{url}/v1/ofms/{'t' * topic}", data=body.ljust(size)) as response:
                return response.status

        assert await put(20_000, 0) == 202
        assert await put(40_000, 0) == 400
        assert await put(1, 9_000) == 202
        assert await put(1, 11_000) == 413


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "rebound.example:8181"}, 421),
        ({"Host": "[rebound"}, 421),
        ({"Host": "localhost:8181"}, 200),
        ({"Host": "[::1]:8181"}, 200),
        ({}, 200),
    ],
)
async def test_no_page_may_ask(headers: dict[str, str], status: int) -> None:
    """A browser lets any page ask any address; one whose own name was pointed here says so in `Host`."""
    async with northbound() as (url, _), aiohttp.ClientSession() as session:
        answer = await session.get(f"{url}/v1/ofms", headers=headers)
        assert answer.status == status


async def test_who_has_the_token_may_ask_by_name() -> None:
    async with northbound(token="secret") as (url, _), aiohttp.ClientSession() as session:
        headers = {"Host": "controller:8181", "Authorization": "Bearer secret"}
        answer = await session.get(f"{url}/v1/ofms", headers=headers)
        assert answer.status == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "controller.example"])
def test_beyond_loopback_the_northbound_needs_a_token_or_certificates(host: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="token-file"):
        OfcProgram(ControllerSettings(northbound=Address(host, 8181)))
    (tmp_path / "token").write_text("secret\n")
    OfcProgram(ControllerSettings(northbound=Address(host, 8181), token_file=tmp_path / "token"))
    OfcProgram(ControllerSettings(northbound=Address("127.0.0.1", 8181)))
