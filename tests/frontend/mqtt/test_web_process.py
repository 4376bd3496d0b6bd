"""`saps broker --web`: the settings reach the Web port, also with TLS, and what cannot be used is refused."""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from aiohttp import ClientSession, TCPConnector

from examples.smart_city.processes import BrokerProcess
from saps.config import SettingError
from saps.config.sources_io import load
from saps.frontend.mqtt.codec.decode import PacketReader
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, Connack, Connect, Packet, Publish, Suback, Subscribe, SubscribeEntry

ANY = "127.0.0.1:0"


def broker(*arguments: str) -> BrokerProcess:
    """A `saps broker` with these arguments beside addresses on free ports."""
    program = Path(sys.executable).with_name("saps")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SAPS_")}
    command = [str(program), "broker", "--name", "b1", "--mqtt", ANY, "--overlay", ANY, *arguments]
    return BrokerProcess("b1", command, environment=environment)


@asynccontextmanager
async def web_of(*arguments: str) -> AsyncIterator[str]:
    """The address of the Web port, from the ready line."""
    async with broker(*arguments) as process:
        fields = dict(field.split("=", 1) for field in process.ready_line.split()[1:])
        yield fields["web"]


@pytest.mark.network
async def test_a_client_over_websocket_and_tls_finds_the_broker_and_its_status(tmp_path: Path) -> None:
    authority, file = trustme.CA(), tmp_path / "broker.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    arguments = ("--web", ANY, "--set", "web.tls=true", "--set", f"tls.certificate={file}")
    async with (
        web_of(*arguments) as address,
        ClientSession(connector=TCPConnector(ssl=trusting)) as session,
        session.ws_connect(f"wss://{address}/mqtt", protocols=("mqtt",)) as socket,
    ):
        wanted = Subscribe(1, [SubscribeEntry("$SYS/broker/version")])
        await socket.send_bytes(encode(Connect("c"), V5) + encode(wanted, V5))
        reader, got = PacketReader(V5), list[Packet]()
        while len(got) < 3:
            got += reader.feed((await socket.receive()).data)
        assert [type(packet) for packet in got] == [Connack, Suback, Publish]


@pytest.mark.parametrize(
    ("flags", "setting"),
    [
        ({"web.listen": ANY, "web.tls": "true"}, "web.tls"),
        ({"web.origins": "example.org"}, "web.origins"),
        ({"web": "127.0.0.1:1883"}, "web"),
        ({"web.listen": "127.0.0.1:1883"}, "web.listen"),
    ],
)
def test_what_cannot_be_used_is_refused(flags: dict[str, str], setting: str) -> None:
    with pytest.raises(SettingError) as caught:
        load({"name": "b1", **flags})
    assert caught.value.setting == setting


def test_the_web_port_counts_when_it_is_asked_who_can_reach_the_broker() -> None:
    assert not load({"name": "b1", "web.listen": "127.0.0.1:8080"}).settings.exposed()
    assert load({"name": "b1", "web.listen": "0.0.0.0:8080"}).settings.exposed()
