"""Meshes of brokers with an identity: by certificates, renewed and revoked while they run, or by a secret."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from saps.broker.broker import Broker
from saps.config import Address, SettingError
from saps.config.links import LinkSettings
from saps.config.settings import OverlaySettings
from saps.identity.plain import sealed
from saps.identity.secret import new_secret
from tests.identity.authorities import Town
from tests.network.meshes import Client, cut, settings

pytestmark = pytest.mark.network

TIMEOUT = 60.0


@asynccontextmanager
async def broker(name: str, links: LinkSettings, join: str | None = None) -> AsyncIterator[Broker]:
    """A broker of cluster c."""
    own = settings(name, "c", [Address.parse(join)] if join else [])
    overlay = msgspec.structs.replace(own.overlay, join_timeout=TIMEOUT if name.startswith("b") else 0.2)
    started = Broker(msgspec.structs.replace(own, links=links, overlay=overlay))
    try:
        await started.start()
        yield started
    finally:
        if hasattr(started, "mesh"):
            await cut(started)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until it holds, looked at again and again. Raises TimeoutError."""
    async with asyncio.timeout(TIMEOUT):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def exchange(one: Client, other: Client, word: str) -> None:
    """What each publishes reaches both."""
    for client in (one, other):
        await client.publish(f"a/{client.name}", word, 1)
    for client in (one, other):
        for publisher in (one, other):
            await client.expect(f"a/{publisher.name}", word.encode())


async def test_a_mesh_by_certificates_is_renewed_and_loses_who_is_revoked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    town = Town(tmp_path / "ca")
    async with AsyncExitStack() as stack:
        b0 = await stack.enter_async_context(broker("b0", town.links("b0")))
        b1 = await stack.enter_async_context(broker("b1", town.links("b1"), b0.ref.address))
        one, other = [await stack.enter_async_context(Client(b.server.address)) for b in (b0, b1)]
        for client in (one, other):
            await client.subscribe("a/#")
        await exchange(one, other, "certified")
        assert b0.identity is not None
        before = b0.identity.credentials.own.serial
        town.issue("b0")
        await until(lambda: b0.identity is not None and b0.identity.credentials.own.serial != before)
        await exchange(one, other, "renewed")
        town.folder.revoke("b1", None, 1.0)
        await until(lambda: "link from b1 cut: its certificate is revoked" in caplog.text)
        await until(lambda: b0.mesh.node.port.lost(b1.ref))
        await other.publish("a/late", b"from outside", 0)
        await one.publish("a/own", b"still here", 1)
        await one.expect("a/own", b"still here")
        assert ("a/late", b"from outside") not in one.received


async def test_a_mesh_by_a_secret_lets_nobody_else_in(tmp_path: Path) -> None:
    secret, another = tmp_path / "secret", tmp_path / "another"
    for file in (secret, another):
        file.write_text(new_secret())
    links = LinkSettings(secret_file=str(secret))
    async with AsyncExitStack() as stack:
        b0 = await stack.enter_async_context(broker("b0", links))
        b1 = await stack.enter_async_context(broker("b1", links, b0.ref.address))
        one, other = [await stack.enter_async_context(Client(b.server.address)) for b in (b0, b1)]
        for client in (one, other):
            await client.subscribe("a/#")
        await exchange(one, other, "x")
        with pytest.raises(SettingError, match="no broker can be reached"):
            async with broker("x", LinkSettings(secret_file=str(another)), b0.ref.address):
                pass


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "b1.example.org"])
def test_beyond_loopback_links_are_plain_only_if_that_is_said(host: str) -> None:
    own = msgspec.structs.replace(settings("b", "c"), overlay=OverlaySettings(listen=Address(host, 0)))
    with pytest.raises(SettingError, match="can be reached from other machines") as caught:
        sealed(own)
    assert caught.value.setting == "overlay.listen"
    assert not sealed(msgspec.structs.replace(own, links=LinkSettings(plain=True)))
    assert sealed(msgspec.structs.replace(own, links=LinkSettings(secret_file="x")))
    assert not sealed(settings("b", "c"))
