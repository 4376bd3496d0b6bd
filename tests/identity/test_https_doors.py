"""OFGate's door for decisions and the controller's northbound, with certificates of the mesh: who may ask, who not."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from monitoring.decisions.sink import Identity as SenderIdentity
from saps.agents.ofgate.decisions_io import DecisionHandler, DecisionServer
from saps.agents.ofgate.decisions_io import Gate as DoorGate
from saps.config import SettingError
from saps.identity.credentials import FileSet, from_files
from saps.ofm.controller.driver.settings import ControllerSettings
from saps.ofm.controller.program import northbound_tls, visitors
from saps.ofm.northbound.driver.client import Client, NorthboundError, UnreachableError
from saps.ofm.northbound.driver.server import Asked, NorthboundServer
from tests.identity.authorities import Town
from tests.identity.sealed import Clock, identity

TABLE = {"version": 1, "epoch": 1, "digest": "d", "trees": [{"topic": "a/b"}]}


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Town:
    return Town(tmp_path_factory.mktemp("town"))


class Gate:
    """Leads, and remembers what it was told to exploit."""

    def __init__(self) -> None:
        self.topics: set[str] = set()

    def leads(self) -> bool:
        return True

    async def exploit(self, topic: str) -> Any:
        self.topics.add(topic)

    def release(self, topic: str) -> Any:
        self.topics.discard(topic)

    def remeasure(self, topic: str) -> None:
        pass

    def spread(self, loads: dict[str, float]) -> None:
        pass

    def wanted(self) -> set[str]:
        return self.topics

    def describe(self) -> dict[str, Any]:
        return {}


def caller(town: Town, name: str, seconds: float = 3600.0) -> ssl.SSLContext:
    """What a broker of this name makes requests with."""
    files = FileSet(str(town.issue(name, seconds=seconds)), "", str(town.folder.certificate), "")
    return from_files(files).https


def unknown(town: Town) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(town.folder.certificate))


async def put(port: int, context: ssl.SSLContext | bool, scheme: str = "https") -> int | str:
    """The status of the answer, or what was wrong with the connection."""
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.put(f"{scheme}://127.0.0.1:{port}/v1/decisions", json=TABLE, ssl=context) as answer,
        ):
            return answer.status
    except (aiohttp.ClientError, OSError):
        return "no answer"


async def test_the_door_for_decisions_asks_for_a_certificate_and_a_name(town: Town) -> None:
    gate = Gate()
    request_handler = DecisionHandler(cast(DoorGate, gate), set)
    held = identity(town, "ofgate", clock=Clock())
    door = DecisionServer(request_handler, cast(DoorGate, gate), identity=held, names=["monitor"])
    port = await door.start("127.0.0.1", 0)
    try:
        async with asyncio.timeout(30):
            assert await put(port, True, "http") == "no answer"
            assert await put(port, unknown(town)) == "no answer"
            assert await put(port, caller(town, "b1")) == 403
            gone = caller(town, "monitor")
            town.folder.revoke("monitor", None, 1.0)
            held.look()
            assert await put(port, gone) == 403
            assert gate.topics == set()
            certificate = town.issue("monitor")
            sender = SenderIdentity(certificate, town.folder.certificate).context()
            assert await put(port, sender) == 200
            assert gate.topics == {"a/b"}
    finally:
        await door.close()


async def test_a_request_goes_only_to_the_host_that_the_certificate_names(town: Town) -> None:
    """A broker's certificate does not make it a controller at another address."""
    gate = Gate()
    held = identity(town, "b9", clock=Clock())
    door = DecisionServer(DecisionHandler(cast(DoorGate, gate), set), cast(DoorGate, gate), identity=held)
    port = await door.start("localhost", 0)
    try:
        async with asyncio.timeout(30), Client(f"https://localhost:{port}", tls=caller(town, "ofgate")) as client:
            with pytest.raises(UnreachableError, match=r"[Hh]ostname|certificate is not valid for"):
                await client.list()
    finally:
        await door.close()


class Nothing:
    """A controller without OFMs."""

    def states(self) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("who", "outcome"), [("ofgate", "answered"), ("b1", "forbidden"), ("ofgate2", "forbidden"), ("", "refused")]
)
async def test_the_northbound_answers_ofgate_only(town: Town, who: str, outcome: str) -> None:
    town.issue("ofgate2")
    gone = caller(town, "ofgate2")
    town.folder.revoke("ofgate2", None, 1.0)
    settings = ControllerSettings(
        certificate=town.issue("controller"),
        clients=town.folder.certificate,
        client_names="ofgate,ofgate2",
        revoked=town.folder.revoked,
    )
    tls, guests = northbound_tls(settings), visitors(settings)
    assert tls is not None
    assert tls.minimum_version is ssl.TLSVersion.TLSv1_3
    server = NorthboundServer(cast(Asked, Nothing()), ip_version=4, tls=tls, visitors=guests)
    port = await server.start("127.0.0.1", 0)
    context = gone if who == "ofgate2" else caller(town, who) if who else unknown(town)
    try:
        async with asyncio.timeout(30), Client(f"https://127.0.0.1:{port}", tls=context) as client:
            if outcome == "answered":
                assert await client.list() == []
            elif outcome == "forbidden":
                with pytest.raises(NorthboundError, match="403"):
                    await client.list()
            else:
                with pytest.raises(UnreachableError):
                    await client.list()
    finally:
        await server.close()


@pytest.mark.parametrize("setting", ["client_names", "revoked"])
def test_names_and_lists_need_certificates(setting: str) -> None:
    with pytest.raises(SettingError, match="needs clients") as caught:
        visitors(
            ControllerSettings(client_names="x") if setting == "client_names" else ControllerSettings(revoked=Path("x"))
        )
    assert caught.value.setting == setting
