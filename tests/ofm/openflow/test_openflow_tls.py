"""The OpenFlow channel under TLS: a real Open vSwitch with a good certificate is let in, and nobody else."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from msgspec import structs

from saps.ofm.controller.driver.settings import ControllerSettings
from saps.ofm.controller.program import tls
from saps.ofm.flows.tables import Tables
from saps.ofm.openflow.base import COOKIE, LIMITED
from saps.ofm.openflow.driver.server import OpenFlowServer
from tests.ofm.openflow.ovs import needs_ovs, open_vswitch
from tests.ofm.openflow.recorder import TIMEOUT, Recorder


class Authorities:
    """Who signs the controller's certificate, and who the switches'; files in a directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.controller, self.switches = trustme.CA(), trustme.CA()
        self.controller.cert_pem.write_to_path(folder / "controller-ca.pem")
        self.switches.cert_pem.write_to_path(folder / "switches-ca.pem")
        self.controller.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "controller.pem")
        one = self.switches.issue_cert("switch-one")
        one.private_key_pem.write_to_path(folder / "one-key.pem")
        one.cert_chain_pems[0].write_to_path(folder / "one.pem")

    @asynccontextmanager
    async def server(self) -> AsyncIterator[tuple[int, Recorder]]:
        """A server that asks for switches' certificates, as the settings say."""
        files = {"openflow_certificate": "controller.pem", "openflow_clients": "switches-ca.pem"}
        settings = structs.replace(ControllerSettings(), **{name: self.folder / file for name, file in files.items()})
        heard = Recorder()
        context = tls(settings, "openflow_certificate", "openflow_clients")
        server = OpenFlowServer("127.0.0.1", 0, heard, tls=context)
        port = await server.start()
        try:
            yield port, heard
        finally:
            await server.close()


@pytest.mark.network
@needs_ovs
async def test_a_switch_with_a_certificate_is_served_as_without_tls(tmp_path: Path) -> None:
    authorities = Authorities(tmp_path)
    with open_vswitch() as ovs:
        async with authorities.server() as (port, heard):
            ovs.show_certificate(tmp_path / "one-key.pem", tmp_path / "one.pem", tmp_path / "controller-ca.pem")
            ovs.bridge("one", 0xABCD, ["p1"])
            ovs.connect("one", port, "ssl")
            switch = await heard.connected(0xABCD)
            assert await switch.tables(COOKIE, (1 << 64) - 1) == Tables.of(LIMITED)


@pytest.mark.parametrize("shows", ["nothing", "a stranger's", "no TLS"])
async def test_whoever_has_no_good_certificate_hears_nothing(shows: str, tmp_path: Path) -> None:
    authorities = Authorities(tmp_path)
    context = ssl.create_default_context(cafile=str(tmp_path / "controller-ca.pem"))
    if shows == "a stranger's":
        trustme.CA().issue_cert("switch-one").configure_cert(context)
    hello = bytes([4, 0, 0, 8, 0, 0, 0, 1])
    heard_back = b""
    async with authorities.server() as (port, _), asyncio.timeout(TIMEOUT):
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=None if shows == "no TLS" else context
            )
            writer.write(hello)
            heard_back = await reader.read(8)
            writer.close()
        except (ConnectionError, ssl.SSLError):
            pass
    assert heard_back[:1] != b"\x04", "no OpenFlow message"
