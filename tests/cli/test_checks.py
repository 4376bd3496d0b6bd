"""`saps check-config` and `saps doctor` against files, certificates, ports and brokers as a broker would find them."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from benchmarks.processes import free_port
from saps.broker.broker import Broker
from saps.cli.commands import app
from saps.config.sources_io import load
from saps.identity.certificates import SKEW, issue, make_authority, new_key
from saps.identity.names import Identity

DEPLOY = Path(__file__).resolve().parents[2] / "deploy/config"
ANY = "127.0.0.1:0"
DAY = 86400.0


def check(file: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["check-config", *options, str(file)])


async def checked(file: Path) -> Result:
    """In a thread: brokers of this process answer meanwhile."""
    return await asyncio.to_thread(check, file)


def certificate(folder: Path, begins: float, ends: float) -> str:
    """A broker's certificate and its authority in the folder; the table that names them."""
    now = time.time()
    authority = make_authority("mesh", new_key(), now - 30 * DAY, now + 365 * DAY)
    (folder / "authority.pem").write_bytes(authority.pem)
    (folder / "b1.pem").write_bytes(issue(authority, Identity("c", "b1"), now + begins, now + ends).pem)
    return f'[links.tls]\ncertificate = "{folder}/b1.pem"\nauthority = "{folder}/authority.pem"\n'


def config(folder: Path, more: str) -> Path:
    file = folder / "b1.toml"
    file.write_text(f'name = "b1"\ncluster = "c"\nmqtt = "{ANY}"\noverlay.listen = "{ANY}"\n{more}')
    return file


@pytest.mark.parametrize("file", sorted(DEPLOY.rglob("*.toml")), ids=lambda file: file.name)
def test_a_configuration_whose_files_are_not_there_is_refused_by_file_and_line(file: Path, tmp_path: Path) -> None:
    text = re.sub(r"\b10(\.\d+\.\d+\.\d+)", r"127\1", file.read_text())  # loopback: nobody else is asked
    file = tmp_path / file.name
    file.write_text(text)
    named = re.findall(r'"(/etc/saps/[\w.]+)"', text)
    missing = [name for name in named if not Path(name).exists()]
    done = check(file)
    for name in missing:
        if name != "/etc/saps/authority.pem":  # a broker reads its certificate first
            line = text[: text.index(name)].count("\n") + 1
            assert re.search(rf"^saps: [\w.]+ \({file}:{line}\): cannot read {name}: ", done.stderr, re.M), name
    assert done.exit_code == (2 if missing else 0), done.output


@pytest.mark.parametrize(
    ("begins", "ends", "status", "says"),
    [
        (-DAY, 300 * DAY, 0, ""),
        (-30 * DAY, 3 * DAY, 0, "warning: links.tls.certificate .*ends soon, "),
        (-20 * DAY, -DAY, 2, "links.tls.certificate .*its end was "),
        (DAY, 20 * DAY, 2, "links.tls.certificate .*holds from .* on only"),
    ],
)
def test_certificates_are_looked_at_for_their_time(
    tmp_path: Path, begins: float, ends: float, status: int, says: str
) -> None:
    done = check(config(tmp_path, certificate(tmp_path, begins, ends)))
    assert done.exit_code == status, done.output
    assert re.search(says, done.stderr)


def test_a_certificate_of_another_broker_is_refused(tmp_path: Path) -> None:
    file = config(tmp_path, certificate(tmp_path, -SKEW, DAY))
    file.write_text(file.read_text().replace('"b1"\n', '"b2"\n'))
    done = check(file)
    assert done.exit_code == 2
    assert "is of b1 of c, not of b2 of c" in done.stderr


def test_what_a_file_says_is_read_as_the_broker_reads_it(tmp_path: Path) -> None:
    (tmp_path / "acl.toml").write_text('[[rule]]\nallow = "everything"\ntopics = "#"\n')
    (tmp_path / "policy.toml").write_text("version = 'x'\n")
    more = f'[auth]\nacl = "{tmp_path}/acl.toml"\n[policy]\nfile = ["{tmp_path}/policy.toml"]\n'
    more += f'[storage]\nfile = "{tmp_path}/none/b1.db"\n[tls]\nlisten = ["{ANY}"]\ncertificate = "{tmp_path}/no.pem"\n'
    done = check(config(tmp_path, more))
    assert done.exit_code == 2
    for setting in ("auth.acl", "policy.file", "storage.file", "tls.certificate"):
        assert f"saps: {setting} (" in done.stderr, setting
    (acl,) = (line for line in done.stderr.splitlines() if f"{tmp_path}/acl.toml:2: " in line)
    assert acl.endswith("-> mend that line, or name another file")


@pytest.fixture
async def b0(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker whose links are sealed by a secret."""
    (tmp_path / "secret").write_text("a" * 40)
    settings = {"name": "b0", "mqtt": ANY, "overlay.listen": ANY, "links.secret_file": str(tmp_path / "secret")}
    broker = Broker(load(settings | {"overlay.leave_timeout": "1"}, {}).settings)
    await broker.start()
    yield broker
    await broker.stop()


async def test_join_is_asked_as_the_broker_would_ask(b0: Broker, tmp_path: Path) -> None:
    more = f'join = ["{b0.ref.address}"]\n[links]\nsecret_file = "{tmp_path}/secret"\n'
    good = await checked(config(tmp_path, more))
    assert good.exit_code == 0, good.output
    plain = await checked(config(tmp_path, f'join = ["{b0.ref.address}"]\n'))
    assert plain.exit_code == 2
    assert "saps: join (" in plain.stderr
    (tmp_path / "other").write_text("b" * 40)
    other = await checked(config(tmp_path, more.replace("/secret", "/other")))
    assert other.exit_code == 2
    assert f"not reached: {b0.ref.address}: " in other.stderr


async def test_that_nobody_answers_is_a_fault_of_a_node_and_a_warning_of_a_file(b0: Broker, tmp_path: Path) -> None:
    seal = f'[links]\nsecret_file = "{tmp_path}/secret"\n'
    nobody = (await asyncio.to_thread(free_port), await asyncio.to_thread(free_port))
    file = config(tmp_path, f'join = ["127.0.0.1:{nobody[0]}", "127.0.0.1:{nobody[1]}"]\n{seal}')
    alone = await checked(file)
    assert alone.exit_code == 0, alone.output
    assert "saps: warning: join (" in alone.stderr
    assert "begins a mesh of its own" in alone.stderr
    examined = ["doctor", "--json", "--config", str(file), "--web", f"127.0.0.1:{nobody[0]}"]
    ill = await asyncio.to_thread(CliRunner().invoke, app, examined)
    assert ill.exit_code == 1
    assert '{"check":"join","verdict":"fault"' in ill.stdout
    file.write_text(file.read_text().replace(f"127.0.0.1:{nobody[1]}", str(b0.ref.address)))
    better = await asyncio.to_thread(CliRunner().invoke, app, examined)
    assert '{"check":"join","verdict":"warning"' in better.stdout


async def test_ports_that_the_broker_itself_has_are_no_fault(b0: Broker, tmp_path: Path) -> None:
    host, port = b0.server.address
    file = tmp_path / "b0.toml"
    seal = f'[links]\nsecret_file = "{tmp_path}/secret"\n'
    file.write_text(f'name = "b0"\nmqtt = "{host}:{port}"\noverlay.listen = "{b0.ref.address}"\n{seal}')
    own = await checked(file)
    assert own.exit_code == 0, own.output
    with socket.create_server(("127.0.0.1", 0)) as taken:
        other = config(tmp_path, seal)
        other.write_text(other.read_text().replace(f'mqtt = "{ANY}"', f'mqtt = "127.0.0.1:{taken.getsockname()[1]}"'))
        stranger = await checked(other)
    assert stranger.exit_code == 2
    assert "saps: mqtt (" in stranger.stderr
    assert "is in use" in stranger.stderr


def test_what_logins_need_is_looked_at_as_the_broker_does(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("{}")
    (tmp_path / "token").write_text("\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = check(
            config(
                tmp_path,
                f'[auth.jwt]\nkeys = "{tmp_path}/keys.json"\nca_file = "{tmp_path}/no-ca.pem"\n'
                f'[auth.http]\nlogin = "http://127.0.0.1:1/"\ntoken_file = "{tmp_path}/token"\n'
                f'[proxy]\nlisten = ["127.0.0.1:{port}"]\n',
            )
        )
    said = done.stderr.replace(f"{tmp_path}/", "")
    assert done.exit_code == 2
    for line in (
        "saps: auth.jwt.keys (b1.toml:6): keys.json is no JSON Web Key Set",
        "saps: auth.jwt.ca_file (b1.toml:7): cannot use no-ca.pem: No such file or directory",
        "saps: auth.http.token_file (b1.toml:10): token:1: is empty",
        f"saps: proxy.listen (b1.toml:12): 127.0.0.1:{port} is in use",
        "saps: warning: auth.http.login (b1.toml:9): 127.0.0.1:1: Connection refused",
    ):
        assert line in said, said
