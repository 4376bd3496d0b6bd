"""`saps brokers`, `topics`, `trace`, `top` and `doctor` against real brokers in this process."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from saps.agents.user import SubscriberAgent
from saps.broker.broker import Broker
from saps.cli.commands import app
from saps.cli.doctor import machine_checks
from saps.cli.doctor.findings import Finding
from saps.cli.look.http_client import AskError, url_of
from saps.cli.look.tables import safe
from saps.config.sources_io import load
from saps.frontend.mqtt.driver.access_files import edit_users
from saps.messages import Subscription
from saps.overlay.ring.keys import BrokerRef

ANY = "127.0.0.1:0"
TIMEOUT = 120.0
"""Seconds a test waits for what must come."""
SAPS = Path(sys.executable).with_name("saps")

Start = Callable[..., Awaitable[Broker]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts brokers with these settings; all are stopped at the end."""
    async with AsyncExitStack() as stack:

        async def one(name: str = "b1", **settings: Any) -> Broker:
            flags = {"mqtt": ANY, "overlay.listen": ANY, "web.listen": ANY, "overlay.leave_timeout": "2"}
            flags |= {key.replace("__", "."): str(value) for key, value in settings.items()}
            broker = Broker(load({"name": name, **flags}, {}).settings)
            await broker.start()
            stack.push_async_callback(broker.stop)
            return broker

        yield one


def web(broker: Broker) -> str:
    assert broker.web is not None
    host, port = broker.web.addresses[0]
    return f"{host}:{port}"


async def saps(*arguments: str, **environ: str) -> Result:
    """The command, in a thread of this process, whose event loop serves it meanwhile."""
    clean: dict[str, str | None] = {key: None for key in os.environ if key.startswith("SAPS_")}
    return await asyncio.to_thread(CliRunner().invoke, app, arguments, env=clean | environ)


def answer(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refusal(result: Result) -> str:
    """The one line of a command that could not do what it was to."""
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    (line,) = result.stderr.splitlines()
    return line


async def until(ask: Callable[[], Awaitable[Result]], wanted: Callable[[Result], bool]) -> Result:
    """The first answer that is as wanted."""
    async with asyncio.timeout(TIMEOUT):
        while not wanted(found := await ask()):  # noqa: ASYNC110 - what is asked does not tell
            await asyncio.sleep(0.1)
        return found


async def subscribe(broker: Broker, topic_filter: str) -> None:
    taken_up = asyncio.Event()
    SubscriberAgent(broker.hub, f"c{len(broker.hub.agents)}").subscribe(Subscription(topic_filter), taken_up.set)
    await asyncio.wait_for(taken_up.wait(), TIMEOUT)


async def test_the_mesh_its_topics_and_the_way_of_a_message(start: Start) -> None:
    first = await start("b0", cluster="tokyo/ward1")
    others = [await start(f"b{n}", cluster=f"tokyo/ward{n}", join=first.ref.address) for n in (1, 2)]
    for broker in others:
        await subscribe(broker, "air/ward1")
    await subscribe(others[1], "alert/#")
    here = ("--web", web(first))

    found = answer(await saps("brokers", "--json", *here))
    assert [(row["name"], row["cluster"]) for row in found["brokers"]] == [
        (f"b{n}", f"tokyo/ward{max(n, 1)}") for n in range(3)
    ]
    for variables in (
        {"SAPS_WEB": web(others[0])},
        {"SAPS_URL": f"http://{web(others[0])}"},
        {"SAPS_URL": f"http://{web(others[0])}", "SAPS_WEB": web(first)},
    ):
        shown = await saps("brokers", **variables)
        assert "3 brokers in 2 clusters, seen from b1" in shown.stdout
    assert all(f"b{n}" in shown.stdout for n in range(3))

    others[1].mesh.node.port.members.died(BrokerRef("b9", 5, "10.0.0.9:7300", "tokyo/ward9"))
    shown = await until(lambda: saps("brokers", *here), lambda shown: "b9" in shown.stdout)
    assert "3 brokers in 2 clusters, 1 away, seen from b0" in shown.stdout
    assert "'b1' is away" in refusal(await saps("brokers", "--forget", "b1", *here))
    assert "away" not in (await saps("brokers", "--forget", "b9", *here)).stdout

    for wanted, topics in (("air/+", ["air/ward1"]), ("WARD", ["air/ward1"]), ("alert/+", []), ("+/#", ["air/ward1"])):
        found = answer(await saps("topics", wanted, "--json", *here))
        assert ([row["topic"] for row in found["topics"]], found["total"]) == (topics, len(topics))

    trace = answer(await saps("trace", "air/ward1", "--from", "b0", "--json", *here))
    assert sorted(hop["target"] for hop in trace["hops"]) == ["b1", "b2"]
    shown = await saps("trace", "air/ward1", "--from", "b0", *here)
    assert "2 messages between brokers, 1 of them between clusters" in shown.stdout
    assert re.search(r"b0 \(published here\)\n.* b[12] by ALM", shown.stdout), shown.stdout
    assert all(f"- {reason}" in shown.stdout for reason in trace["reasons"])

    assert "air/+" in refusal(await saps("trace", "air/+", *here))
    assert "'b9' is not in the mesh" in refusal(await saps("trace", "air/ward1", "--from", "b9", *here))
    assert "400 Bad parameter (sort): one of rate, subscribers" in refusal(
        await saps("topics", "--sort", "colour", *here)
    )


async def test_a_name_and_a_password_are_asked_for(start: Start, tmp_path: Path) -> None:
    edit_users(tmp_path / "users", "ann", b"secret")
    (tmp_path / "password").write_text("secret\n")
    broker = await start(auth__passwords=tmp_path / "users", auth__anonymous="never")
    assert "401" in refusal(await saps("brokers", "--web", web(broker)))
    as_ann = ("--user", "ann", "--password-file", str(tmp_path / "password"), "--web", web(broker))
    assert answer(await saps("brokers", "--json", *as_ann))["seen_from"] == "b1"
    assert "--password-file" in refusal(await saps("brokers", "--user", "ann", "--web", web(broker)))


async def test_nobody_or_somebody_else_answers() -> None:
    for command in (("brokers",), ("topics",), ("trace", "a"), ("top",)):
        line = refusal(CliRunner().invoke(app, (*command, "--web", "127.0.0.1:1")))
        assert line.startswith("saps: no broker answers at http://127.0.0.1:1: ")
        assert "--web" in line

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    async with await asyncio.start_server(reply, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert "is no broker of this version" in refusal(await saps("brokers", "--web", f"http://127.0.0.1:{port}/"))


async def watching(*arguments: str, out: int = asyncio.subprocess.PIPE) -> asyncio.subprocess.Process:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SAPS_")} | {"TERM": "xterm"}
    return await asyncio.create_subprocess_exec(SAPS, "top", *arguments, stdout=out, env=clean)


@pytest.mark.network
async def test_top_writes_plain_documents_where_there_is_no_terminal(start: Start) -> None:
    broker = await start()
    await subscribe(broker, "air/ward1")
    process = await watching("--json", "-n", "2", "-i", "0.2", "--web", web(broker))
    written, _ = await asyncio.wait_for(process.communicate(), TIMEOUT)
    assert process.returncode == 0
    rounds = [json.loads(line) for line in written.splitlines()]
    assert [[b["name"] for b in each["brokers"]] for each in rounds] == [["b1"], ["b1"]]
    assert rounds[0]["at"] <= rounds[1]["at"]
    process = await watching("-n", "1", "--web", web(broker))
    written, _ = await asyncio.wait_for(process.communicate(), TIMEOUT)
    assert b"1 broker in 1 cluster" in written
    assert b"air/ward1" in written
    assert b"\x1b" not in written


@pytest.mark.network
async def test_top_takes_the_screen_and_gives_it_back_at_ctrl_c(start: Start) -> None:
    broker = await start()
    ours, theirs = pty.openpty()
    process = await watching("-i", "0.2", "--web", web(broker), out=theirs)
    os.close(theirs)
    written, more = bytearray(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(ours, more.set)

    async def read_until(wanted: bytes) -> None:
        async with asyncio.timeout(TIMEOUT):
            while wanted not in written:
                await more.wait()
                more.clear()
                written.extend(os.read(ours, 65536))

    await read_until(b"Ctrl-C ends")
    assert b"\x1b[?1049h" in written
    process.send_signal(signal.SIGINT)
    await read_until(b"\x1b[?1049l")
    assert await asyncio.wait_for(process.wait(), TIMEOUT) == 0
    loop.remove_reader(ours)
    os.close(ours)


def found_by(result: Result) -> dict[str, list[Finding]]:
    findings: dict[str, list[Finding]] = {}
    for line in result.stdout.splitlines():
        finding = msgspec.json.decode(line, type=Finding)
        assert (finding.mend is None) == (finding.verdict == "good"), finding
        findings.setdefault(finding.check, []).append(finding)
    return findings


async def test_doctor_says_what_is_wrong_and_how_to_mend_it(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "saps.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config.write_text(
            f'name = "b1"\nmqtt = "127.0.0.1:{port}"\njoin = ["127.0.0.1:1"]\n[overlay]\nlisten = "{ANY}"\n'
            f'[storage]\nfile = "{tmp_path}/none/b1.db"\n'
        )
        ill = await saps("doctor", "--json", "--config", str(config), "--web", "127.0.0.1:1")
    assert ill.exit_code == 1
    findings = found_by(ill)
    assert [findings[check][0].verdict for check in ("mqtt", "overlay.listen")] == ["fault", "good"]
    assert f"sport = :{port}" in str(findings["mqtt"][0].mend)
    assert [findings[check][0].verdict for check in ("join", "storage.file", "broker")] == [
        "fault",  # nobody answers at any address
        "fault",
        "warning",
    ]
    assert "nothing, if this is the mesh's first broker" in str(findings["join"][0].mend)

    config.write_text('name = "b1"\nmqqt = "127.0.0.1:0"\n[overlay]\ndead_after = -1\n')
    findings = found_by(await saps("doctor", "--json", "--config", str(config), "--web", "127.0.0.1:1"))
    assert [f.verdict for f in findings["configuration"]] == ["fault", "fault"]
    assert "did you mean mqtt?" in findings["configuration"][0].says


async def test_doctor_finds_a_running_broker_well(start: Start, tmp_path: Path) -> None:
    broker = await start()
    other = await start("b2", join=broker.ref.address)
    config = tmp_path / "saps.toml"
    host, port = broker.server.address
    config.write_text(f'mqtt = "{host}:{port}"\noverlay = "{broker.ref.address}"\njoin = ["{other.ref.address}"]\n')
    result = await saps("doctor", "--json", "--config", str(config), "--web", web(broker))
    findings = found_by(result)
    assert result.exit_code == 0, result.stdout
    for check in (
        "configuration",
        "files",
        "mqtt",
        "overlay.listen",
        "join",
        "broker",
        "broker's clock",
        "versions",
        "libraries",
    ):
        assert {f.verdict for f in findings[check]} == {"good"}, check
    assert "no faults" in (await saps("doctor", "--config", str(config), "--web", web(broker))).stdout


def test_too_few_open_files_are_told_with_the_number_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda what: (1024, 4096))
    (few,) = machine_checks.open_files(50_000)
    assert few.verdict == "warning"
    assert "LimitNOFILE=51000" in str(few.mend)
    (enough,) = machine_checks.open_files(3000)
    assert enough.verdict == "good"


@given(st.text())
def test_what_others_write_does_not_steer_the_terminal(text: str) -> None:
    shown = safe(text).plain
    assert shown.isprintable()
    assert text.isprintable() == (shown == text)


@given(st.text())
@example("[")
def test_any_web_port_is_understood_or_refused(text: str) -> None:
    try:
        url = url_of(text)
    except AskError:
        return
    assert url.startswith(("http://", "https://"))


@pytest.mark.parametrize(
    ("given_", "url"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("[::1]:8080,10.0.0.1:80", "http://[::1]:8080"),
        ("https://b1.example/", "https://b1.example"),
    ],
)
def test_a_web_port_is_named_as_to_the_broker_or_by_url(given_: str, url: str) -> None:
    assert url_of(given_) == url
